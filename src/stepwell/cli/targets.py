"""Finding workflows by what is written on a command line: MODULE:NAME, or a whole MODULE."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from stepwell.errors import InvalidInput
from stepwell.sdk.workflow import Workflow


def load_workflows(targets: Sequence[str]) -> list[Workflow]:
    """The workflows that these targets name, each once; modules are found from here."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: dict[int, Workflow] = {}
    for target in targets:
        for workflow in _load(target):
            found[id(workflow)] = workflow
    return list(found.values())


def _load(target: str) -> list[Workflow]:
    module_name, colon, path = target.partition(":")
    module = _import(module_name, target)
    if not colon:
        workflows = [value for value in vars(module).values() if isinstance(value, Workflow)]
        if not workflows:
            raise InvalidInput(f"{target}: the module has no workflow at its top level.")
        return workflows
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError as error:
            raise InvalidInput(f"{target}: {module_name} has no {path!r}.") from error
    workflows = list(value) if isinstance(value, list | tuple) else [value]
    if not workflows or not all(isinstance(each, Workflow) for each in workflows):
        raise InvalidInput(
            f"{target} is neither a function decorated with @workflow nor a list of such functions."
        )
    return workflows


def _import(name: str, target: str) -> ModuleType:
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidInput(
            f"{target!r} is not MODULE or MODULE:NAME. Write modules as in an import: "
            "examples.onboarding, not examples/onboarding.py."
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput(f"{target}: there is no module {error.name!r} here.") from error
        raise _broken(target, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(target, error) from error


def _broken(target: str, error: BaseException) -> InvalidInput:
    if isinstance(error, SyntaxError):  # which has not got so far as to be called
        where = f"{error.filename}, line {error.lineno}"
        return InvalidInput(f"{target} cannot be imported: {error.msg} ({where}).")
    last = traceback.extract_tb(error.__traceback__)[-1]
    return InvalidInput(
        f"{target} cannot be imported: {type(error).__name__}: {error} "
        f"({last.filename}, line {last.lineno})."
    )

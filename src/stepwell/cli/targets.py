"""Finding workflows and functions by what is written on a command line: MODULE[:NAME]."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from stepwell.errors import InvalidInput
from stepwell.sdk.function import function_name
from stepwell.sdk.workflow import Workflow


class Targets(NamedTuple):
    """What modules bring."""

    workflows: list[Workflow]
    functions: list[Callable[..., Any]]


def load_targets(targets: Sequence[str]) -> Targets:
    """What these targets name, each once; modules are found from here."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: dict[int, Any] = {}
    for target in targets:
        for each in _load(target):
            found[id(each)] = each
    return Targets(
        [each for each in found.values() if isinstance(each, Workflow)],
        [each for each in found.values() if not isinstance(each, Workflow)],
    )


def _load(target: str) -> list[Any]:
    module_name, colon, path = target.partition(":")
    module = _import(module_name, target)
    if not colon:
        brought = [value for value in vars(module).values() if _is_part(value)]
        if not brought:
            raise InvalidInput(
                f"{target}: the module has no workflow and no @function at its top level."
            )
        return brought
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError as error:
            raise InvalidInput(f"{target}: {module_name} has no {path!r}.") from error
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values or not all(map(_is_part, values)):
        raise InvalidInput(
            f"{target} is neither decorated with @workflow or @function nor a list of such "
            "functions."
        )
    return values


def _is_part(value: Any) -> bool:
    return isinstance(value, Workflow) or function_name(value) is not None


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

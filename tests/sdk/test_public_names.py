"""The public names: all there, the same for people and for tools, and loaded one by one."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import stepwell

SOURCE = Path(stepwell.__file__)


def imported_for_types() -> dict[str, str]:
    """The names that type checkers see, with the modules they come from."""
    tree = ast.parse(SOURCE.read_text("utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_type_checkers_see_the_names_that_there_are() -> None:
    assert imported_for_types() == stepwell._HOMES
    assert sorted(stepwell._HOMES) == sorted(stepwell.__all__)


@pytest.mark.parametrize("name", stepwell.__all__)
def test_a_public_name_is_what_its_module_has(name: str) -> None:
    assert getattr(stepwell, name) is getattr(import_module(stepwell._HOMES[name]), name)
    assert name in dir(stepwell)


def test_what_there_is_not_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'stepwell' has no attribute 'Workflw'"):
        _ = stepwell.Workflw  # type: ignore[attr-defined]


def loaded_by(statement: str) -> set[str]:
    """The parts of the package that a new interpreter has after a statement."""
    shown = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    return {name.split(".")[1] for name in done.stdout.split() if name.startswith("stepwell.")}


def test_the_package_alone_loads_nothing() -> None:
    assert loaded_by("import stepwell") == set()
    assert loaded_by("from stepwell import StepwellError") == {"errors"}


def test_writing_a_workflow_loads_no_engine() -> None:
    assert not loaded_by("from stepwell import workflow, Retry") & {"engine", "app", "stores"}

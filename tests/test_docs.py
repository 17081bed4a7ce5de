"""The reference pages say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from stepwell.api.openapi import openapi_document
from stepwell.kernel.states import STEP_TRANSITIONS

DOCS = Path(__file__).parent.parent / "docs"


def _generator() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["api.md", "errors.md", "metrics.md", "nodes.md", "settings.md"])
def test_a_reference_page_is_up_to_date(name: str) -> None:
    page = _generator().PAGES[name]()
    assert (DOCS / "reference" / name).read_text("utf-8") == page, "run `make docs`"
    assert page.count("\n| `") >= 3


def test_the_reference_has_what_a_caller_meets() -> None:
    api = _generator().api_page()
    for part in (
        "`Stepwell(url=None, workflows=(), *, functions=(), workspace='default', settings=None",
        "`await start_many(starts) → list[RunHandle]`",
        "`async with worker(",
        "`created: bool`",
        "| `Attempt`: ",
        "`emit:done`",
        "`s#2`",
        "### sw.definitions",
        "`await publish(document, *, if_match=None",
        "`await rollback(name, ref, *",
        "`await decide(gate_id, decision, *, by",
        "`function(*, name=None)`",
        "| `GateRecord`: ",
    ):
        assert part in api
    assert "`**: \n" not in api, "something has no docstring"
    for status in {*STEP_TRANSITIONS, "waiting"}:
        assert f"| `{status}` | " in api


def test_the_reference_says_where_errors_are_imported_from() -> None:
    errors = _generator().errors_page()
    assert "| `run_failed` | `RunFailed` | `stepwell` |" in errors
    assert "| `not_open` | `NotOpen` | `stepwell.errors` |" in errors


def test_where_earlier_systems_had_it_leads_to_routes_that_there_are() -> None:
    routes = {
        (method.upper(), _shape(path))
        for path, item in openapi_document()["paths"].items()
        for method in item
    }
    rows = re.findall(
        r"^\| (.+) \| (.+) \|$", (DOCS / "server.md").read_text("utf-8"), re.MULTILINE
    )
    mapped = [re.findall(r"`([A-Z]+) (/[^`?]*)[^`]*`", here) for _, here in rows]
    assert sum(map(bool, mapped)) > 60
    for method, path in (route for found in mapped for route in found):
        assert (method, _shape(path)) in routes, f"{method} {path}"


def _shape(path: str) -> str:
    return re.sub(r"{\w+}", "{}", path)

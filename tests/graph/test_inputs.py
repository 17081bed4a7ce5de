"""Inputs that do not fit: what is said of them, and how little it costs to say so."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.errors import InputInvalid, InputTooLarge
from stepwell.graph.inputs import MOST_LISTED, Inputs

GREETED = {"type": "object", "properties": {"who": {"type": "string"}}}
TEXTS = {"items": {"type": "string"}}


def refused(schema: dict[str, Any], value: Any) -> InputInvalid:
    with pytest.raises(InputInvalid) as found:
        Inputs(schema).prepared(value)
    return found.value


def test_what_is_too_large_is_refused_for_that_before_the_schema_is_looked_at() -> None:
    for value in ([[]] * 400_000, dict.fromkeys(map(str, range(400_000)), 1), "x" * 2**20):
        with pytest.raises(InputTooLarge, match=r"The run's input has .* bytes"):
            Inputs(GREETED).prepared(value)
    with pytest.raises(InputTooLarge, match="accepts 10"):
        Inputs(GREETED).prepared({"who": "somebody"}, 10)


@pytest.mark.parametrize(
    ("schema", "value", "more"),
    [
        (GREETED, dict.fromkeys(map(str, range(500)), 1), 480),
        (GREETED, dict.fromkeys(map(str, range(50_000)), 1), 49_980),
        (TEXTS, [1] * 500, 480),
    ],
    ids=["unknown", "very many unknown", "of another type"],
)
def test_so_many_mistakes_are_listed_and_the_others_counted(
    schema: dict[str, Any], value: Any, more: int
) -> None:
    error = refused(schema, value)
    assert len(error.details["problems"]) == MOST_LISTED
    assert error.details["more"] == more
    assert f"and {more:,} more" in error.message


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (GREETED, "x" * 10_000),
        (GREETED, [[]] * 300_000),
        (GREETED, {"x" * 500_000: 1}),
        (GREETED, {"who": ["x" * 10_000]}),
        ({"enum": ["y" * 10_000]}, 1),
        ({"additionalProperties": TEXTS}, {"x" * 10_000: [1]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, [1] * 5000),
    ],
)
def test_what_is_said_of_a_mistake_is_short(schema: dict[str, Any], value: Any) -> None:
    error = refused(schema, value)
    [problem] = error.details["problems"]
    assert len(problem["message"]) < 500
    assert len(problem["path"]) < 500
    assert len(error.message) < 1000
    assert len(error.details["masked"]) < 1000


@pytest.mark.parametrize(
    "schema", [TEXTS, {"anyOf": [TEXTS, {"items": {"type": "null"}}]}], ids=["plain", "branches"]
)
def test_of_a_large_input_not_all_mistakes_are_looked_for(schema: dict[str, Any]) -> None:
    # To note each of these would take the library seconds.
    error = refused(schema, [1] * 500_000)
    assert len(error.details["problems"]) == 1
    assert "this large" in error.message


def test_what_is_written_down_has_nothing_that_was_in_the_input() -> None:
    error = refused(GREETED, {"who": ["hunter2"]})
    assert error.message == 'The input does not fit: who: ["hunter2"] is not of type "string".'
    assert error.details["masked"] == (
        'The input does not fit: who: the value is not of type "string".'
    )
    assert error.details["problems"] == [
        {"path": "who", "message": '["hunter2"] is not of type "string"'}
    ]

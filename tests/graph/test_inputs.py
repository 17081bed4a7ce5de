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


BACK = {"$ref": "#"}
ARGS = {"properties": {"args": {"items": {"$ref": "#/$defs/term"}}}, "required": ["args"]}
TERM = {
    "$ref": "#/$defs/term",
    "$defs": {
        "term": {"anyOf": [{**ARGS, "minProperties": 1}, ARGS, {"$ref": "#/$defs/leaf"}]},
        "leaf": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
    },
}  # fmt: skip


def nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"a": value}
    return value


def terms(levels: int) -> Any:
    value: Any = {"x": 1}
    for _ in range(levels):
        value = {"args": [value]}
    return value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TERM, terms(40)),
        ({"type": "object", "anyOf": [{"properties": {"a": BACK}}] * 2}, nested(40, 1)),
        ({"type": "object", "oneOf": [{"properties": {"a": BACK}}] * 2}, nested(40, 1)),
        ({"type": "object", "allOf": [{"properties": {"a": BACK}}] * 2}, nested(40, 1)),
        (
            {"properties": {"a": BACK, "b": {"type": "null"}}, "patternProperties": {"a": BACK}},
            {**nested(40, {}), "b": 1},
        ),
    ],
    ids=["terms", "anyOf", "oneOf", "allOf", "patterns"],
)
def test_an_input_that_is_nested_in_branches_is_refused_at_once(
    schema: dict[str, Any], value: Any
) -> None:
    error = refused(schema, value)
    assert "this branched" in error.message


def test_a_mistake_in_a_few_branches_is_still_shown() -> None:
    assert "is not valid under any of the schemas" in refused(TERM, terms(2)).message


def doubling(levels: int, last: dict[str, Any]) -> dict[str, Any]:
    """A schema in which each definition names the next one twice."""
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": last}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": doubling(10, {})["$defs"]["d0"], **doubling(12, {})}, [1] * 200_000),
        ({"items": {"allOf": [{}] * 5000}}, [1] * 200_000),
        ({"items": {"allOf": [{"pattern": "^(x|y)+$"}] * 4000}}, ["x" * 300] * 3000),
        ({**doubling(12, {}), "type": "array"}, list(range(100_000))),
    ],
)
def test_what_would_take_long_to_check_is_refused_unchecked(
    schema: dict[str, Any], value: Any
) -> None:
    with pytest.raises(InputTooLarge, match="parts of its schema"):
        Inputs(schema).prepared(value)


def test_a_schema_that_nothing_can_be_checked_by_is_told_of_before_it_is_tried() -> None:
    with pytest.raises(InputTooLarge, match=r"inputs\.\$defs\.d\d+: With all"):
        Inputs(doubling(60, {})).prepared(1)


def test_a_pattern_that_backtracks_is_given_up() -> None:
    schema = {"patternProperties": {"^(?:a|aa|aaa)*(?<=c)(?=.)$": {"type": "string"}}}
    error = refused(schema, {"a" * 40 + str(n): 1 for n in range(2000)})  # 30 ms each, else
    assert "backtracking" in error.message

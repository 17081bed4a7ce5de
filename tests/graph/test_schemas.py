"""Schemas that make too much work are refused where they are written; others are not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stepwell.catalog import node_types
from stepwell.engine.revisions import Revision
from stepwell.errors import InputTooLarge
from stepwell.graph.documents import checked
from stepwell.graph.inputs import Inputs
from stepwell.graph.problems import Problem
from stepwell.graph.schemas import TooMuchWork, work_of


def doubling(levels: int, last: Any, word: str = "allOf", ref: str = "#/$defs/d") -> dict[str, Any]:
    """A schema in which each definition names the next one twice."""
    defs = {f"d{i}": {word: [{"$ref": f"{ref}{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": f"{ref}0", "$defs": {**defs, f"d{levels}": last}}


def wrong_in(schema: dict[str, Any]) -> list[Problem]:
    nodes = [{"id": "a", "type": "transform", "config": {"value": 1}}]
    found = checked({"name": "x", "inputs": schema, "nodes": nodes}, node_types())
    return [each for each in found.problems if each.severity == "error"]


def complete(parts: int) -> dict[str, Any]:
    """Definitions that each name all of them, and look at nothing that is inside."""
    refs = [{"$ref": f"#/$defs/d{i}"} for i in range(parts)]
    return {"$ref": "#/$defs/d0", "$defs": {f"d{i}": {"allOf": refs} for i in range(parts)}}


def unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"anyOf": [schema], "unevaluatedProperties": False}
    return schema


def anchored(levels: int) -> dict[str, Any]:
    schema = doubling(levels, {}, ref="#n")
    for i in range(levels + 1):
        schema["$defs"][f"d{i}"] = {**schema["$defs"][f"d{i}"], "$anchor": f"n{i}"}
    return schema


def addressed(levels: int) -> dict[str, Any]:
    schema = doubling(levels, {}, ref="d")
    for i in range(levels + 1):
        schema["$defs"][f"d{i}"] = {**schema["$defs"][f"d{i}"], "$id": f"d{i}"}
    return {"$id": "https://example.com/schemas/all", **schema}


def named_otherwise(levels: int, **names: str) -> dict[str, Any]:
    """Definitions with names beside them that mean nothing, or something else."""
    schema = doubling(levels, {})
    for i in range(levels):
        schema["$defs"][f"d{i}"] |= {word: name.format(i) for word, name in names.items()}
    return schema


def shadowed(levels: int) -> dict[str, Any]:
    schema = addressed(levels)
    address = "https://example.com/schemas/d{}"
    return {"examples": [{"$id": address.format(i)} for i in range(levels)], **schema}


@pytest.mark.parametrize(
    "schema",
    [
        named_otherwise(40, id="x{}"),
        named_otherwise(40, title="x{}", id="#x{}"),
        shadowed(40),
        {"$schema": "http://json-schema.org/draft-07/schema#", **shadowed(40)},
        doubling(40, {"type": "string"}),
        doubling(40, {}, "anyOf"),
        doubling(40, {}, "oneOf"),
        {"items": doubling(40, {})["$defs"]["d0"], **doubling(40, {})},
        doubling(12, {"properties": {"a": {"$ref": "#/$defs/d0"}}}),
        complete(6),
        complete(20),
        unevaluated(20),
        anchored(40),
        addressed(40),
        {"$ref": "#/$defs/0", "$defs": {f"{i}": {"$ref": f"#/$defs/{i + 1}"} for i in range(999)}},
    ],
    ids=[
        "ids", "names", "shadowed", "draft 7",
        "allOf", "anyOf", "oneOf", "items", "back", "complete", "more complete", "unevaluated",
        "anchors", "addresses", "chain",
    ],
)  # fmt: skip
def test_a_schema_that_multiplies_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(TooMuchWork):
        work_of(schema)


def test_it_is_refused_in_the_document_with_its_place() -> None:
    [problem] = wrong_in(doubling(40, {}))
    assert problem.path.startswith("inputs.$defs.d")
    assert problem.code == "schema_too_large"
    assert problem.hint


def blocks(kinds: int) -> dict[str, Any]:
    """Pages of blocks of several kinds, some of which have blocks again; each is closed."""
    base = {"$ref": "#/$defs/base"}
    inner = {"type": "array", "items": {"$ref": "#/$defs/block"}}
    each = {
        f"k{i}": {
            "allOf": [base],
            "properties": {"kind": {"const": f"k{i}"}, "inner": inner},
            "unevaluatedProperties": False,
        }
        for i in range(kinds)
    }
    block = {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in each]}
    known = {"base": {"properties": {"id": {"type": "string"}}}, "block": block, **each}
    return {"type": "array", "items": {"$ref": "#/$defs/block"}, "$defs": known}


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        (blocks(20), 20_000),
        ({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(5000)}}, 2),
        ({"properties": {"next": {"$ref": "#"}, "value": {}}}, 10),
        ({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}, 10),
        ({"$ref": "#"}, 10),
        (anchored(4), 100),
        (addressed(4), 100),
        (
            {
                "$defs": {
                    f"k{i}": {"properties": {"args": {"items": {"$ref": "#"}}}} for i in range(40)
                },
                "oneOf": [{"$ref": f"#/$defs/k{i}"} for i in range(40)],
            },
            10_000,
        ),
    ],
    ids=["blocks", "wide", "list", "tree", "itself", "anchors", "addresses", "kinds of nodes"],
)
def test_what_schemas_usually_are_is_little_work(schema: dict[str, Any], most: int) -> None:
    assert 0 < work_of(schema).visits <= most
    assert wrong_in(schema) == []


def test_names_and_values_to_compare_with_are_work_too() -> None:
    names = [f"n{i}" for i in range(1000)]
    objects = [{"n": name} for name in names]
    for part in ({"required": names}, {"enum": objects}, {"dependentRequired": {"a": names}}):
        assert work_of({"items": part}).visits > 1000
    assert 20 < work_of({"items": {"enum": names}}).visits < 30


@pytest.mark.parametrize("ref", ["#/$defs/none", "other", "https://example.com/x", "#none"])
def test_what_is_not_there_cannot_be_referred_to(ref: str) -> None:
    [problem] = wrong_in({"properties": {"a": {"$ref": ref}}})
    assert (problem.path, problem.code) == ("inputs", "bad_schema")


META = {"$ref": "https://json-schema.org/draft/2020-12/schema"}  # which the library knows by heart


def test_what_was_accepted_before_goes_on() -> None:
    """A revision that is stored is compiled whatever its schema is; only inputs are refused."""
    nodes = [{"id": "a", "type": "transform", "config": {"value": 1}}]
    for schema in (doubling(40, {}), META):
        assert wrong_in(schema)
        document = msgspec.json.encode({"name": "x", "inputs": schema, "nodes": nodes}).decode()
        revision = Revision("0" * 64, document, node_types())
        assert list(revision.plan.nodes) == ["a"]
    assert Inputs(META).prepared({"type": "object"}) == {"type": "object"}
    with pytest.raises(InputTooLarge, match="no input can be checked"):
        Inputs(doubling(40, {})).prepared({})

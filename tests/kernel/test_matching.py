"""Matches: a payload satisfies one by containing it, and the index never hides one that does."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import InvalidInput
from stepwell.kernel.matching import (
    MAX_DEPTH,
    MAX_FILED,
    TERM_LENGTH,
    UNFILED,
    check_match,
    contains,
    filed_under,
    looked_up,
    number_of,
    term_of,
    terms_of,
)

ORDER = {"user": {"id": 7, "tags": ["new", "eu"]}, "total": 12.5, "paid": True, "note": None}


@pytest.mark.parametrize(
    "match",
    [
        {},
        {"total": 12.5},
        {"user": {"id": 7}},
        {"user": {"id": 7.0}},
        {"user": {}},
        {"user": {"tags": ["eu"]}},
        {"user": {"tags": ["eu", "new"]}},
        {"user": {"tags": ["eu", "eu"]}},
        {"user": {"tags": []}},
        {"paid": True, "note": None},
    ],
)
def test_a_payload_that_holds_all_of_a_match_satisfies_it(match: Any) -> None:
    assert contains(ORDER, match)


@pytest.mark.parametrize(
    "match",
    [
        {"total": 12},
        {"missing": None},
        {"note": False},
        {"note": ""},
        {"paid": 1},
        {"user": 7},
        {"user": {"id": "7"}},
        {"user": {"id": 7, "name": "Ada"}},
        {"user": {"tags": "eu"}},
        {"user": {"tags": ["eu", "us"]}},
        {"user": {"tags": {}}},
        ["user"],
        None,
    ],
)
def test_a_payload_that_lacks_any_of_a_match_does_not(match: Any) -> None:
    assert not contains(ORDER, match)


def test_items_of_a_list_are_matched_by_their_parts() -> None:
    payload = [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}]
    assert contains(payload, [{"sku": "b"}, {"sku": "a", "count": 1}])
    assert not contains(payload, [{"sku": "a", "count": 2}])


TEXTS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["ü", "e\u0301", "\u0000", "🪣", '"', "\\", "x" * TERM_LENGTH, "é" * 400]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
PAYLOADS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def _parts(draw: st.DrawFn, payload: Any) -> Any:
    """Something that the payload contains, its numbers perhaps written in the other way."""
    if isinstance(payload, dict):
        keys = draw(st.sets(st.sampled_from(sorted(payload)))) if payload else set()
        return {key: draw(_parts(payload[key])) for key in sorted(keys)}
    if isinstance(payload, list):
        picked = draw(st.lists(st.sampled_from(payload), max_size=4)) if payload else []
        return [draw(_parts(item)) for item in picked]
    if isinstance(payload, float) and payload.is_integer() and draw(st.booleans()):
        return int(payload)
    if type(payload) is int and abs(payload) < 2**53 and draw(st.booleans()):
        return float(payload)
    return payload


@settings(deadline=None)
@given(st.data())
def test_any_part_of_a_payload_is_contained_and_found_by_its_term(data: st.DataObject) -> None:
    payload = data.draw(PAYLOADS)
    match = data.draw(_parts(payload))
    assert contains(payload, match)
    assert term_of(match) in terms_of(payload)


def test_scalars_that_match_each_other_share_a_term_and_others_do_not() -> None:
    scalars = [True, False, None, 0, -0.0, 1, 1.0, 2**53, 2.0**53, 1e22, 10**22, 0.5, "", "1", "0"]
    for payload, match in itertools.product(scalars, scalars):
        found = term_of({"key": match}) in terms_of({"key": payload})
        assert found == contains({"key": payload}, {"key": match}), (payload, match)


def test_a_match_without_scalars_is_filed_under_the_empty_term() -> None:
    matches: list[Any] = [{}, [], {"tags": ["eu"]}, {"user": {"tags": [{"id": 7}]}}, "eu", 7, None]
    for match in matches:
        assert term_of(match) == ""
        assert "" in terms_of(match)


def test_a_match_is_filed_under_its_longest_scalar() -> None:
    match = {"kind": "order", "order_id": "06hhgn2g00eqdi5evc367av31s", "paid": True}
    assert term_of(match) == term_of({"order_id": match["order_id"]})
    assert term_of(match) != term_of({"customer_id": match["order_id"]})


def test_the_same_value_deeper_down_has_another_term() -> None:
    assert term_of({"id": 7}) not in terms_of({"user": {"id": 7}})
    assert term_of({"a.b": 7}) not in terms_of({"a": {"b": 7}})


def test_terms_are_short_and_listed_once() -> None:
    terms = terms_of({"first": "x" * 10_000, "k" * 300 + "1": 1, "k" * 300 + "2": 1})
    assert max(map(len, terms)) == TERM_LENGTH
    assert len(terms) == len(set(terms)) == 3


def test_a_match_is_a_mapping_that_is_not_nested_without_end() -> None:
    assert check_match({"a": (1, None)}, "It") == {"a": [1, None]}
    with pytest.raises(InvalidInput, match="mapping"):
        check_match([1], "It")
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    with pytest.raises(InvalidInput, match="levels deep"):
        check_match(deep, "It")
    assert check_match(deep["a"], "It") == deep["a"]
    assert not contains(deep["a"], deep)


def test_runs_are_filed_under_what_is_least_deep_in_their_inputs() -> None:
    many = {"deep": {f"field{n}": n for n in range(MAX_FILED)}, "id": 7}
    filed = filed_under(json.dumps(many))
    assert len(filed) == MAX_FILED + 1
    assert filed[-1] == UNFILED
    assert filed[:2] == [number_of(term_of({"id": 7})), number_of(term_of({"deep": {"field0": 0}}))]
    assert filed_under('{"id": 7.0}') == filed_under('{"id": 7}') == filed[:1]
    assert filed_under("7") == filed_under("[7]") == filed_under("{}") == []
    assert looked_up({"id": 7}) == [filed[0], UNFILED]
    assert looked_up({"ids": [7]}) == looked_up({}) == []

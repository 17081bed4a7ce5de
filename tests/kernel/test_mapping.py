"""Maps: what is taken from a payload, what is constant, and what happens where nothing is."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import InputTooLarge, InvalidPath, MissingPath, PathTooBroad
from stepwell.kernel.mapping import MAX_DEPTH, mapped, read_map

PAYLOAD = {
    "user": {"id": 7, "name": None},
    "items": [{"sku": "a"}, {"sku": "b"}],
    "headers": {"x-github-event": "push"},
}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("$.user.id", 7),
        ("$.user.name", None),
        ("$.items[*].sku", ["a", "b"]),
        ("$.none[*]", []),
        ("$.headers['x-github-event']", "push"),
        ("$", PAYLOAD),
        ("$$", "$"),
        ("$$.user.id", "$.user.id"),
        ("$$$", "$$"),
        ("plain", "plain"),
        ("costs $5", "costs $5"),
        ("", ""),
        (0, 0),
        (None, None),
        (False, False),
        ([1, "$.user.id", ["$$x"]], [1, 7, ["$x"]]),
        (["$.none", "$.user.id"], [None, 7]),
        ({"who": "$.user.id", "nobody": "$.none", "kind": {"$.k": "user"}},
         {"who": 7, "kind": {"$.k": "user"}}),
        ({"path": "$.none", "default": "$.literal"}, "$.literal"),
        ({"path": "$.none", "default": None}, None),
        ({"path": "$.user.name", "default": "x"}, None),
        ({"path": "$.none[*]", "default": ["x"]}, ["x"]),
        ({"path": "$.user.id", "required": True}, 7),
        ({"path": "$.items[*].sku", "required": True}, ["a", "b"]),
        ({"path": "$.user.id"}, 7),
        ({"$path": "$.user.id", "size": 3}, {"path": 7, "size": 3}),
        ({"$$path": 1, "$ref": 2}, {"$path": 1, "$ref": 2}),
        ({"path": "$.none", "default": {"path": "/x"}}, {"path": "/x"}),
    ],
)  # fmt: skip
def test_a_value_is_a_path_or_a_constant(value: Any, found: Any) -> None:
    assert mapped({"it": value}, PAYLOAD) == {"it": found}


@pytest.mark.parametrize("value", ["$.none", {"path": "$.none", "required": False}])
def test_a_path_to_nothing_leaves_its_name_out(value: Any) -> None:
    assert mapped({"it": value, "other": 1}, PAYLOAD) == {"other": 1}


@pytest.mark.parametrize("path", ["$.none", "$.none[*]"])
def test_a_required_path_to_nothing_is_an_error_that_names_it(path: str) -> None:
    with pytest.raises(MissingPath, match=r"map\.it\[0\]: \$\.none") as raised:
        mapped({"it": [{"path": path, "required": True}]}, PAYLOAD)
    assert raised.value.details["path"] == path


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("$5.00", r"map\.it: .*Write \$\$ for a literal"),
        ("$.a b", r"map\.it: .*should follow"),
        ({"deep": ["$.x", "$["]}, r"map\.it\.deep\[1\]: "),
        ({"path": "user.id", "default": 1}, r"map\.it\.path: .*begins with"),
        ({"path": "nope"}, r"map\.it\.path: .*begins with"),
        ({"path": "$.a", "defalt": 1}, r"map\.it\.defalt: .* Did you mean 'default'\?"),
        ([{"path": "$.a", "requird": True}], r"map\.it\[0\]\.requird: .*mean 'required'\?"),
        ({"path": "$.a", "size": "$.b"}, r"map\.it\.size: .* Write \$path for a field"),
        ({"path": 3, "default": 1}, r"map\.it\.path: A path is a text"),
        ({"path": "$.x", "required": "yes"}, r"map\.it\.required must be true or false"),
        ({"path": "$.x", "required": True, "default": 1}, r"map\.it is required and has a default"),
    ],
)
def test_what_is_wrong_with_a_map_is_said_with_its_place(value: Any, why: str) -> None:
    with pytest.raises(InvalidPath, match=why):
        read_map({"it": value})


def test_a_map_is_a_mapping_that_is_not_nested_without_end() -> None:
    with pytest.raises(InvalidPath, match="must be a mapping"):
        read_map(["$.x"])  # type: ignore[arg-type]
    deep: Any = "$.user.id"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    with pytest.raises(InvalidPath, match="levels deep"):
        read_map({"it": deep})
    assert mapped({"it": deep[0]}, PAYLOAD)


def test_a_payload_cannot_be_multiplied_without_end() -> None:
    large = {"text": "x" * 1_000_000, "nested": [[[["x" * 100_000]]]] * 100}
    began = time.perf_counter()
    with pytest.raises(InputTooLarge, match="only once"):
        mapped({f"copy{i}": "$" for i in range(1000)}, large)
    with pytest.raises(PathTooBroad):
        mapped({f"all{i}": "$..*" for i in range(1000)}, {"many": [[0]] * 4_000})
    assert time.perf_counter() - began < 5


def test_a_payload_of_very_many_parts_can_be_taken_whole() -> None:
    points = [[n, n] for n in range(90_000)]
    assert mapped({"all": "$", "one": "$.points[0]"}, {"points": points})["one"] == [0, 0]
    with pytest.raises(PathTooBroad):  # what might be multiplied has to be measured
        mapped({"all": "$..points"}, {"points": points})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


def _as_constant(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_constant(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_constant(each) for each in value]
    return f"${value}" if isinstance(value, str) and value.startswith("$") else value


@given(JSON)
def test_any_value_can_be_written_as_a_constant(value: Any) -> None:
    assert mapped({"it": _as_constant(value)}, {}) == {"it": value}


@pytest.mark.parametrize("slip", [{"path": "nope"}, {"path": "$.a", "size": 1}, {"path": 3}])
def test_slips_of_a_stored_map_are_the_constants_they_were(slip: Any) -> None:
    with pytest.raises(InvalidPath):
        read_map({"it": slip})
    kept = read_map({"it": slip}, stored=True).of({"a": 7})["it"]
    assert kept.keys() == slip.keys()

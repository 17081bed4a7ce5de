"""Paths: what they find, where reading them fails, and that no data makes them expensive."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepwell.errors import InvalidPath, PathTooBroad
from stepwell.kernel.jsonpath import (
    MAX_LENGTH,
    MAX_LOOKS,
    MAX_RESULTS,
    MAX_SEGMENTS,
    NOTHING,
    read_path,
)

SHOP: dict[str, Any] = {
    "store": {
        "books": [
            {"title": "Sayings", "price": 8.95, "tags": ["old"]},
            {"title": "Sword", "price": 12.99, "tags": []},
            {"title": "Moby Dick", "isbn": "0-553", "price": 8.99, "tags": ["sea", "old"]},
        ],
        "bicycle": {"colour": "red", "price": 399},
    },
    "odd": {"j j": {"k.k": 3}, "'": {"@": 2}, "a\\b": 1, "é☺": 5, "": 6, "null": None, "\n": 7},
}
BOOKS = SHOP["store"]["books"]
TEN = list(range(10))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", SHOP),
        ("$.store.bicycle.colour", "red"),
        ("$['store']['bicycle'][\"colour\"]", "red"),
        ("$ ['store'] . bicycle".replace(" . ", " ."), SHOP["store"]["bicycle"]),
        ("$.store.books[0].title", "Sayings"),
        ("$.store.books[-1].isbn", "0-553"),
        ("$.store.books[ 1 ]['price']", 12.99),
        ("$.odd['j j']['k.k']", 3),
        ("$.odd[\"'\"]['@']", 2),
        (r"$.odd['\'']['@']", 2),
        (r"$.odd['a\\b']", 1),
        (r"$.odd['\u00e9\u263A']", 5),
        ("$.odd.é☺", 5),
        ("$.odd['']", 6),
        (r"$.odd['\n']", 7),
        ("$.odd.null", None),
    ],
)
def test_a_singular_path_finds_one_value(path: str, found: Any) -> None:
    assert read_path(path).singular
    assert read_path(path).find(SHOP) == found


@pytest.mark.parametrize(
    "path",
    [
        "$.nothing",
        "$.store.books.title",
        "$.store.books['0']",
        "$.store.books[3]",
        "$.store.books[-4]",
        "$.store[0]",
        "$.store.bicycle.colour[0]",
        "$.store.bicycle.price.x",
        "$.odd.null.x",
    ],
)
def test_a_singular_path_that_leads_nowhere_finds_nothing(path: str) -> None:
    assert read_path(path).find(SHOP) is NOTHING
    assert not NOTHING


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.store.books[*].title", ["Sayings", "Sword", "Moby Dick"]),
        ("$.store.books.*.price", [8.95, 12.99, 8.99]),
        ("$..price", [8.95, 12.99, 8.99, 399]),
        ("$..books[2].title", ["Moby Dick"]),
        ("$..books[-1]['title','isbn']", ["Moby Dick", "0-553"]),
        ("$.store.books[0,0].price", [8.95, 8.95]),
        ("$.store.books[:2].title", ["Sayings", "Sword"]),
        ("$.store.books[ : : -1 ].title", ["Moby Dick", "Sword", "Sayings"]),
        ("$.store.books[*].tags[*]", ["old", "sea", "old"]),
        ("$..tags", [["old"], [], ["sea", "old"]]),
        ("$..[0]", [BOOKS[0], "old", "sea"]),
        ("$.store.bicycle.*", ["red", 399]),
        ("$.store.bicycle.colour.*", []),
        ("$.nothing[*]", []),
        ("$.store.books[1:1]", []),
        ("$.store.books[::0]", []),
        ("$..*..*..x", []),
    ],
)
def test_any_other_path_finds_a_list(path: str, found: list[Any]) -> None:
    assert not read_path(path).singular
    assert read_path(path).find(SHOP) == found


def test_parents_are_found_before_their_children() -> None:
    data = {"o": [{"a": [{"a": 1}]}], "a": 2}
    assert read_path("$..a").find(data) == [2, [{"a": 1}], 1]
    assert read_path("$..*").find([[1], 2]) == [[1], 2, 1]
    assert read_path("$..[0,1]").find([[1, 2], [3]]) == [[1, 2], [3], 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "position", "why"),
    [
        ("", 1, "begins with"),
        ("user.name", 1, r"Write '\$.user.name'"),
        ("@.user", 1, r"Write '\$.user'"),
        (" $", 1, "begins with"),
        ("$ ", 3, "end with spaces"),
        ("$.", 3, "name is missing"),
        ("$..", 4, "name is missing"),
        ("$.1", 3, "does not begin with a letter"),
        ("$. a", 3, "name is missing"),
        ("$.[0]", 3, "too many before"),
        ("$...a", 4, "name is missing"),
        ("$user", 2, "should follow"),
        ("$.foo-bar", 6, "like-this"),
        ("$.length()", 9, "Functions are not supported"),
        ("$.items[?@.x]", 9, "Filters are not supported"),
        ("$.items[?(@.x > 1)]", 9, "Filters are not supported"),
        ("$[(@.length-1)]", 3, r"\[-1\]"),
        ("$[]", 3, "should stand here"),
        ("$[name]", 3, "have quotes"),
        ("$[0", 4, "should follow"),
        ("$[0 1]", 5, "should follow"),
        ("$[0,]", 5, "should stand here"),
        ("$[01]", 4, "should follow"),
        ("$[-0]", 3, "should stand here"),
        ("$[+1]", 3, "should stand here"),
        ("$[1.0]", 4, "should follow"),
        ("$[1:2:3:4]", 8, "should follow"),
        ("$[9007199254740992]", 3, "lies between"),
        ("$[0:" + "9" * 900 + "]", 5, "lies between"),
        ("$['a", 3, "does not end"),
        ("$['a\\", 5, "no such escape"),
        (r"$['\x']", 4, "no such escape"),
        (r"$['\"']", 4, "no such escape"),
        (r"$['\u12']", 4, "no such escape"),
        (r"$['\ud800']", 4, "no such escape"),
        (r"$['\udc00\ud800']", 4, "no such escape"),
        ("$['\n']", 4, "Control characters"),
        ("$['\ud800']", 4, "Control characters"),
        ("$.a\ud800", 4, "should follow"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(path: str, position: int, why: str) -> None:
    with pytest.raises(InvalidPath, match=why) as raised:
        read_path(path)
    assert raised.value.details["position"] == position
    assert raised.value.details["path"] == path


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert read_path(r"$['\uD83D\uDE00']").find({"😀": 1}) == 1


def test_paths_are_short() -> None:
    assert read_path("$" + ".a" * MAX_SEGMENTS).find({}) is NOTHING
    with pytest.raises(InvalidPath, match="segments"):
        read_path("$" + ".a" * (MAX_SEGMENTS + 1))
    with pytest.raises(InvalidPath, match="characters"):
        read_path("$." + "a" * MAX_LENGTH)
    with pytest.raises(InvalidPath, match="is a text"):
        read_path(3)  # type: ignore[arg-type]


def test_no_data_makes_a_path_expensive() -> None:
    wide: list[Any] = [0] * (MAX_RESULTS + 1)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    square = [[0] * 700] * 700
    began = time.perf_counter()
    assert read_path("$[0]").find(wide) == 0
    assert len(read_path("$[1:]").find(wide)) == MAX_RESULTS
    for path, data in [("$[*]", wide), ("$..*", square), ("$..*..*..*", deep), ("$..*..x", deep)]:
        with pytest.raises(PathTooBroad) as raised:
            read_path(path).find(data)
        assert raised.value.details["path"] == path
    assert read_path("$..x").find(deep) == []
    assert time.perf_counter() - began < 5


def test_a_path_looks_at_so_many_objects_and_lists_and_no_more() -> None:
    within = [{"a": {"b": 1}}] * (MAX_LOOKS // 2 - MAX_LOOKS // 20)
    assert read_path("$..x").find(within) == []
    with pytest.raises(PathTooBroad, match="Name more of the way"):
        read_path("$..x").find(within * 2)
    # Numbers and texts beside each other, and what is empty, are gone through quickly.
    assert read_path("$..x").find([0, "", [], {}] * 100_000) == []


# Oracles: the RFC's own rules for slices, written out, and a walk in the plainest way.


def _sliced(
    items: list[Any], start: int | None, end: int | None, step: int | None
) -> Iterator[Any]:
    length, by = len(items), 1 if step is None else step
    if by == 0:
        return

    def normal(i: int) -> int:
        return i if i >= 0 else length + i

    first = (0 if by > 0 else length - 1) if start is None else start
    last = (length if by > 0 else -length - 1) if end is None else end
    if by > 0:
        lower = min(max(normal(first), 0), length)
        upper = min(max(normal(last), 0), length)
        while lower < upper:
            yield items[lower]
            lower += by
    else:
        upper = min(max(normal(first), -1), length - 1)
        lower = min(max(normal(last), -1), length - 1)
        while lower < upper:
            yield items[upper]
            upper += by


BOUNDS = st.none() | st.integers(-13, 13) | st.sampled_from([2**53 - 1, 1 - 2**53])


@given(st.integers(0, 10), BOUNDS, BOUNDS, BOUNDS)
@example(10, None, None, -2)
def test_slices_follow_the_standard(
    length: int, start: int | None, end: int | None, step: int | None
) -> None:
    items = TEN[:length]
    shown = ["" if each is None else str(each) for each in (start, end, step)]
    assert read_path(f"$[{':'.join(shown)}]").find(items) == list(_sliced(items, start, end, step))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=15,
)


def _walked(value: Any, name: str) -> list[Any]:
    here = [value[name]] if isinstance(value, dict) and name in value else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return here + [found for each in inner for found in _walked(each, name)]


@given(VALUES, st.sampled_from("abcd"))
def test_descent_finds_what_a_plain_walk_finds(value: Any, name: str) -> None:
    assert read_path(f"$..{name}").find(value) == _walked(value, name)
    assert read_path(f"$..['{name}']").find(value) == _walked(value, name)


PIECES = st.lists(
    st.sampled_from(
        [*"$.[]*'\"\\,:?@()-+ \n019abé", "..", "'a'", "[0]", "::", r"\u00", "😀", "\x00"]
    )
)


@settings(max_examples=200)
@given(PIECES.map(lambda pieces: "$" + "".join(pieces)) | st.text(), VALUES)
def test_any_text_is_a_path_or_refused(text: str, value: Any) -> None:
    with contextlib.suppress(InvalidPath):
        path = read_path(text)
        assert isinstance(path.find(value), list) or path.singular

"""Values as JSON text: what comes back, what is refused, and what is too large."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pydantic
import pytest

from stepwell.errors import InputTooLarge, NotSerialisable, ResultNotSerialisable, ResultTooLarge
from stepwell.kernel.codec import (
    MAX_DEPTH,
    MAX_RESULT_BYTES,
    decode,
    describe,
    encode,
    encode_result,
)


@dataclass
class Point:
    x: int
    y: float


class Account(msgspec.Struct):
    name: str
    opened_at: datetime


class Customer(pydantic.BaseModel):
    name: str
    born_at: datetime


class Opaque:
    """Nothing that JSON could say."""


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [None, False, True, 0, -1, 0.0, 1.5, 2**53 + 1, 2**100, 1e300, "", "0", "ü🪣\u0000", [], {}],
    ids=repr,
)
def test_plain_values_come_back_exactly(value: Any) -> None:
    back = decode(encode({"value": [value]}, "The input"))["value"][0]
    assert back == value
    assert type(back) is type(value)


def test_a_missing_value_is_not_null() -> None:
    assert decode(encode({"a": None}, "The input")) != decode(encode({}, "The input"))


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Point(1, 2.0), {"x": 1, "y": 2.0}),
        (Account("Ada", NOON), {"name": "Ada", "opened_at": "2026-07-01T12:00:00Z"}),
        (Customer(name="Ada", born_at=NOON), {"name": "Ada", "born_at": "2026-07-01T12:00:00Z"}),
        (NOON, "2026-07-01T12:00:00Z"),
        (NOON.astimezone(timezone(timedelta(hours=2))), "2026-07-01T14:00:00+02:00"),
        (b"\x00\xff", "AP8="),
        ((1, 2), [1, 2]),
        ({1: "one"}, {"1": "one"}),
    ],
)
def test_richer_values_become_plain_data(value: Any, plain: Any) -> None:
    assert decode(encode(value, "The input")) == plain
    assert decode(encode_result([value], MAX_RESULT_BYTES)) == [plain]


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "value",
    [Opaque(), Customer, iter([1]), len, 1j, {(1, 2): 3}, "\ud800", _endless()],
    ids=["object", "class", "iterator", "function", "complex", "key", "surrogate", "endless"],
)
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(NotSerialisable, match=r"^The payload cannot be written as JSON") as input:
        encode({"value": value}, "The payload")
    assert input.value.code == "not_serialisable"
    with pytest.raises(ResultNotSerialisable, match="Return plain data") as result:
        encode_result({"value": value}, MAX_RESULT_BYTES)
    assert result.value.code == "result_not_serialisable"


def test_the_refusal_names_the_type_in_the_way() -> None:
    with pytest.raises(NotSerialisable, match="objects of type Opaque have no JSON form"):
        encode([1, [Opaque()]], "The input")
    with pytest.raises(NotSerialisable, match="objects of type ModelMetaclass have no JSON form"):
        encode(Customer, "The input")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"user": {"tags": ["a", Opaque()]}}, r""" at \['user'\]\['tags'\]\[1\]: objects"""),
        ([{"n": float("nan")}], r""" at \[0\]\['n'\]: JSON has no number"""),
        ({"a": {(1, 2): 3}}, r""" at \['a'\]: """),
        (Opaque(), r"JSON: objects"),
        ({"a": _endless()}, r"JSON: "),
    ],
)
def test_the_refusal_says_where_in_nested_data(value: Any, path: str) -> None:
    with pytest.raises(NotSerialisable, match=path):
        encode(value, "The input")
    with pytest.raises(ResultNotSerialisable, match=path):
        encode_result(value, MAX_RESULT_BYTES)


def test_a_model_that_cannot_be_dumped_is_refused() -> None:
    class Broken:
        def model_dump(self, mode: str) -> Any:
            raise RuntimeError(f"no {mode} today")

    with pytest.raises(NotSerialisable, match="no json today"):
        encode(Broken(), "The input")


def test_the_limit_counts_bytes_and_is_itself_allowed() -> None:
    assert encode("ü" * 4, "The input", limit=10) == '"üüüü"'
    with pytest.raises(InputTooLarge, match=r"The input has 12 bytes.* accepts 10\.") as input:
        encode("ü" * 5, "The input", limit=10)
    assert input.value.code == "input_too_large"
    assert encode_result("ü" * 4, 10) == '"üüüü"'
    with pytest.raises(ResultTooLarge, match=r"has 12 bytes.* accepts 10\.") as result:
        encode_result("ü" * 5, 10)
    assert result.value.code == "result_too_large"


def test_an_input_may_have_a_mebibyte_unless_told_otherwise() -> None:
    assert len(encode("x" * (1024 * 1024 - 2), "The input")) == 1024 * 1024
    with pytest.raises(InputTooLarge):
        encode("x" * (1024 * 1024 - 1), "The input")


def test_an_error_is_described_whatever_its_text() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(ValueError("no")) == "no"
    assert describe(ValueError()) == "ValueError"
    assert describe(Mute()) == "Mute (its text cannot be read)"
    assert describe(ValueError("\ud800!")) == "?!"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [None, -float("inf")]}])
def test_what_json_has_no_number_for_is_refused_and_not_made_null(value: Any) -> None:
    with pytest.raises(NotSerialisable, match="no number"):
        encode(value, "The input")
    with pytest.raises(ResultNotSerialisable, match="no number"):
        encode_result(value, 1000)


def _nested(levels: int) -> Any:
    value: Any = '\\"[{'
    for level in range(levels):
        value = [value, "]"] if level % 2 else {'"[': value}
    return value


def test_what_is_nested_too_deep_to_be_read_everywhere_is_refused() -> None:
    assert decode(encode(_nested(MAX_DEPTH), "The input")) == _nested(MAX_DEPTH)
    flat = [{"[": ["[[", '"[{', "\\"]}] * 1000
    assert decode(encode(flat, "The input")) == flat
    with pytest.raises(NotSerialisable, match="more than 200 levels deep"):
        encode(_nested(MAX_DEPTH + 1), "The input")
    with pytest.raises(ResultNotSerialisable, match="more than 200 levels deep"):
        encode_result(_nested(MAX_DEPTH + 1), MAX_RESULT_BYTES)


def test_a_coroutine_is_asked_for_its_await() -> None:
    async def later() -> None: ...

    coroutine = later()
    with pytest.raises(ResultNotSerialisable, match=r"is an `await` missing\? Return") as caught:
        encode_result({"user": coroutine}, 1000)
    assert "at ['user']" in caught.value.message
    coroutine.close()

"""The one way values become JSON text and come back."""

from __future__ import annotations

import math
import re
from collections.abc import Coroutine
from itertools import accumulate
from typing import Any

import msgspec

from stepwell.errors import InputTooLarge, NotSerialisable, ResultNotSerialisable, ResultTooLarge
from stepwell.kernel.names import show

MAX_RESULT_BYTES = 1024 * 1024
# How much is said of the path to a part that cannot be written.
MAX_PATH = 200
# Deeper data can be written, but not always read: that depends on who reads it.
MAX_DEPTH = 200


def _hook(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, Coroutine):
        raise NotImplementedError("a coroutine has no JSON form: is an `await` missing?")
    raise NotImplementedError(f"objects of type {type(value).__qualname__} have no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=_hook)
decode = msgspec.json.Decoder().decode


def _to_json(value: Any, limit: int = 0) -> bytes:
    data = _encoder.encode(value)
    if 0 < limit < len(data):
        return data  # refused for that, without a closer look
    if b"null" in data:
        # What JSON has no number for would come back as null, silently.
        _check_numbers(msgspec.to_builtins(value, enc_hook=_hook))
    if limit and data.count(b"[") + data.count(b"{") > MAX_DEPTH < depth_of(data):
        raise RecursionError(f"it is nested more than {MAX_DEPTH} levels deep")
    return data


# Keeps brackets, all of one kind, and quotes.
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b'[]{}"'))
_STRINGS = re.compile(rb'"[^"]*"')


def depth_of(data: bytes) -> int:
    """How deep JSON is nested."""
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    bare = unescaped.translate(_BRACKETS, _OTHERS).replace(b'""', b"")
    left = _STRINGS.sub(b"", bare)
    for depth in range(10):  # most data is done after a few rounds, each of which is quick
        if not left:
            return depth
        left = left.replace(b"[]", b"")
    # An opening bracket is one less than the number in the middle, a closing one is one more.
    return 10 + max(accumulate(map((ord("[") + 1).__sub__, left)), default=0)


def _check_numbers(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no number for {value}")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            _check_numbers(each)


def encode(value: Any, what: str, limit: int = MAX_RESULT_BYTES) -> str:
    """JSON text of a value the caller gave, at most `limit` bytes; errors name `what`."""
    try:
        data = _to_json(value, limit)
    except Exception as error:
        raise NotSerialisable(
            f"{what} cannot be written as JSON{_where(value, error)}: {_sentence(error)}"
        ) from error
    if len(data) > limit:
        raise InputTooLarge(
            f"{what} has {len(data):,} bytes of JSON; the store accepts {limit:,}. "
            "Keep large data elsewhere and pass where it is."
        )
    return data.decode()


def encode_result(value: Any, limit: int) -> str:
    """JSON text of what user code returned, at most `limit` bytes."""
    try:
        data = _to_json(value, limit)
    except Exception as error:
        raise ResultNotSerialisable(
            f"The result cannot be written as JSON{_where(value, error)}: {_sentence(error)} "
            "Return plain data, dataclasses, or Pydantic or msgspec models."
        ) from error
    if len(data) > limit:
        raise ResultTooLarge(
            f"The result has {len(data):,} bytes of JSON; the store accepts {limit:,}. "
            "Keep large data elsewhere and return where it is."
        )
    return data.decode()


def _sentence(error: Exception) -> str:
    text = describe(error)
    return text if text.endswith("?") else f"{text}."


def _where(value: Any, error: Exception) -> str:
    """Where in plain nested data the part is that cannot be written: ` at ["user"][2]`."""
    path = ""
    while len(path) < MAX_PATH and not isinstance(error, RecursionError):
        inner = dict.items(value) if isinstance(value, dict) else enumerate(_listed(value))
        for key, each in inner:
            if not _is_writable(each):
                path, value = f"{path}[{show(key)}]", each
                break
        else:
            break
    return f" at {path}" if path else ""


def _listed(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()


def _is_writable(value: Any) -> bool:
    try:
        _to_json(value)
    except Exception:
        return False
    return True


def describe(error: BaseException) -> str:
    """The error's text, even if its own `__str__` is broken."""
    try:
        text = str(error)
    except Exception:
        return f"{type(error).__name__} (its text cannot be read)"
    return writable(text) or type(error).__name__


# An escaped half of a pair of UTF-16 without the other one.
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def why_unread(data: bytes, error: Exception) -> str:
    """Why data is not JSON; of half a character the library says that the data was cut off."""
    half = _HALF.search(data.replace(rb"\\", b"  "))
    if half is None:
        return str(error)
    return f"{half[0].decode()} is half a character (a lone surrogate)"


def writable(text: str) -> str:
    """The text without lone surrogates, which have no UTF-8 form."""
    return text.encode("utf-8", "replace").decode()

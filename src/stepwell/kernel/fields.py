"""`user.id=42`: what somebody looks for in inputs, written as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepwell.errors import InvalidInput
from stepwell.kernel.codec import decode


def read_fields(pairs: Iterable[tuple[str, str]], what: str) -> dict[str, Any] | None:
    """The object that (`user.id`, `42`) and others describe; values that are not JSON are text."""
    found: dict[str, Any] = {}
    for path, text in pairs:
        *outer, last = path.split(".")
        if not all((*outer, last)):
            raise InvalidInput(f"{what} {path!r}: write it as name=value or outer.inner=value.")
        inner: Any = found
        for name in outer:
            inner = inner.setdefault(name, {}) if isinstance(inner, dict) else inner
        if not isinstance(inner, dict) or last in inner:
            raise InvalidInput(f"{what} {path!r} contradicts another {what}.")
        try:
            inner[last] = decode(text)
        except ValueError:
            inner[last] = text
        except RecursionError as error:
            raise InvalidInput(f"{what} {path!r}: its value is nested too deep.") from error
    return found or None

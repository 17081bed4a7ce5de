"""Cursors: where a list of runs goes on, as text that says nothing to its reader."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import msgspec

from stepwell.errors import InvalidCursor
from stepwell.kernel.ids import is_id
from stepwell.kernel.names import show

DIGEST_LENGTH = 8


def digest_of(question: Any) -> str:
    """A short text that differs for lists that ask for something else."""
    text = msgspec.json.encode(question, order="sorted")
    return hashlib.sha256(text).hexdigest()[:DIGEST_LENGTH]


def write_cursor(run_id: str, digest: str) -> str:
    """The cursor for what comes after this run, in the list with this digest."""
    return base64.urlsafe_b64encode(f"{run_id}{digest}".encode()).decode().rstrip("=")


def read_cursor(cursor: str, digest: str) -> str:
    """The run a cursor was made from, by the list with this digest."""
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (ValueError, binascii.Error, TypeError, AttributeError) as error:
        raise _invalid(cursor) from error
    run_id = text[:-DIGEST_LENGTH]
    if not is_id(run_id) or write_cursor(run_id, digest) != cursor:
        raise _invalid(cursor)
    return run_id


def _invalid(cursor: object) -> InvalidCursor:
    return InvalidCursor(
        f"{show(cursor)} is not a cursor of this list, which goes on with the filters of its first "
        "page."
    )

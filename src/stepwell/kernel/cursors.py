"""Cursors: where a list of runs goes on, as text that says nothing to its reader."""

from __future__ import annotations

import base64
import binascii

from stepwell.errors import InvalidCursor
from stepwell.kernel.ids import is_id
from stepwell.kernel.names import show


def write_cursor(run_id: str) -> str:
    """The cursor for what comes after this run."""
    return base64.urlsafe_b64encode(run_id.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """The run a cursor was made from."""
    try:
        run_id = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (ValueError, binascii.Error, TypeError, AttributeError) as error:
        raise _invalid(cursor) from error
    if not is_id(run_id) or write_cursor(run_id) != cursor:
        raise _invalid(cursor)
    return run_id


def _invalid(cursor: object) -> InvalidCursor:
    return InvalidCursor(f"{show(cursor)} is not a cursor of this list.")

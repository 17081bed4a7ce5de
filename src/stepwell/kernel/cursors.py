"""Cursors: where a list of runs goes on, as text that says nothing to its reader."""

from __future__ import annotations

import base64
import binascii

from stepwell.errors import InvalidCursor


def write_cursor(run_id: str) -> str:
    """The cursor for what comes after this run."""
    return base64.urlsafe_b64encode(run_id.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """The run a cursor was made from."""
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (ValueError, binascii.Error, TypeError, AttributeError) as error:
        raise InvalidCursor(f"{cursor!r} is not a cursor of this list.") from error

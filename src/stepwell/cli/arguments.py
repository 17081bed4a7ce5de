"""Arguments that commands share, and how their texts are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from stepwell.errors import InvalidDuration, InvalidInput
from stepwell.kernel.codec import decode
from stepwell.kernel.durations import check_deadline, seconds
from stepwell.kernel.fields import read_fields

_LIKE = '{"name": 1}'

F = TypeVar("F", bound=Callable[..., Any])

store_option = click.option(
    "--store",
    metavar="URL",
    help="Where runs are kept; else the server STEPWELL_URL, else the store STEPWELL_STORE, else "
    "the server that runs in this folder, else a file in it.",
)
# For what no server does in place of a store.
store_alone = click.option(
    "--store",
    metavar="URL",
    help="Where runs are kept; else STEPWELL_STORE, else a file in this folder.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Write one JSON document.")
run_id = click.argument("run_id", metavar="RUN")
_wait = click.option("--wait", is_flag=True, help="Wait for the run to end and print its output.")
_timeout = click.option(
    "--timeout", metavar="DURATION", help="With --wait: how long to wait at most."
)


def common(command: F) -> F:
    """--store and --json."""
    return store_option(as_json(command))


def waiting(command: F) -> F:
    """--wait and --timeout."""
    return _wait(_timeout(command))


def read_json(text: str, what: str, like: str | None = None) -> Any:
    """JSON given as an argument; `-` reads standard input.

    `like` is an object to go by, where nothing but an object is meant.
    """
    if text == "-":
        if sys.stdin is None:
            raise InvalidInput(f"{what} is to be read from standard input, which is closed.")
        text = sys.stdin.read()
    try:
        return decode(text)
    except (ValueError, RecursionError) as error:
        way = f"Write it like '{like or _LIKE}', or - to give it on standard input"
        text_too = "" if like else "; text needs its own quotes: '\"like this\"'"
        raise InvalidInput(f"{what} is not JSON: {error}. {way}{text_too}.") from error


def read_input(argument: str | None, option: str | None) -> Any:
    """The input of a run, given as the argument or as --input; `...` if it was not given."""
    if argument is not None and option is not None:
        raise click.UsageError("Give the input as an argument or as --input, not as both.")
    text = argument if argument is not None else option
    return ... if text is None else read_json(text, "The input")


def read_duration(text: str) -> str | float:
    """A duration as typed; a bare number is seconds."""
    try:
        return float(text)
    except ValueError:
        return text


def read_deadline(text: str) -> str | float | datetime:
    """A duration, or a time in ISO 8601."""
    found = read_duration(text)
    deadline = _iso(found) or found if isinstance(found, str) else found
    check_deadline(deadline, "--deadline")
    return deadline


def read_time(text: str, what: str, now: datetime) -> datetime:
    """A time in ISO 8601, or how long ago."""
    found = read_duration(text)
    at = _iso(found) if isinstance(found, str) else None
    if at is not None:
        return at
    try:
        return now - timedelta(seconds=seconds(found, what))
    except InvalidDuration as error:
        raise InvalidInput(
            f"{what}: {text!r} is no time. Write one like 2026-01-31T12:00:00Z, or how long ago, "
            'like "90m".'
        ) from error
    except OverflowError as error:
        raise InvalidInput(f"{what}: {text!r} is too long ago.") from error


def _iso(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def read_pairs(pairs: Sequence[str]) -> dict[str, Any] | None:
    """`user.id=42` as the object it describes."""
    found = []
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals:
            raise InvalidInput(f"--input {pair!r}: write it as name=value or outer.inner=value.")
        found.append((path, text))
    return read_fields(found, "--input")

"""Rows on their way into a statement: a text for each column, taken apart by the server.

The driver's own arrays take the client three times as long, which is most of what a batch of
journal entries costs it. Only texts without control characters may go this way: names, ids,
and JSON, in which they are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stepwell.errors import InvalidInput

SEPARATOR = "\x1f"
NULL = "\x1e"
# How a packed text becomes an array again; an empty one becomes an empty array.
_TEXTS = r"string_to_array({}::text, E'\x1f', E'\x1e')"


def texts(parameter: str) -> str:
    """SQL for the array that `pack_texts` made a parameter of."""
    return _TEXTS.format(parameter)


def packable(text: object) -> bool:
    """Whether this may be a name or id at all; what is not, is nowhere in the store."""
    return isinstance(text, str) and text != "" and text.isprintable()


def pack_texts(values: Sequence[str | None]) -> str:
    """Texts that are not empty, or None, as one text."""
    packed = SEPARATOR.join([NULL if value is None else value for value in values])
    if packed.count(SEPARATOR) != max(len(values) - 1, 0) or (values and not packed):
        raise InvalidInput("A name or id is empty or has control characters.")
    return packed


def _pack_numbers(values: Iterable[int | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


class Columns:
    """The columns of the rows that a statement takes as parameters, from the `first` on."""

    def __init__(self, *declared: str, first: int = 1) -> None:
        self._types = [column.rpartition(" ")[2] for column in declared]
        # Several unnest in one SELECT go in step, and do without the tables of FROM unnest.
        self.sql = "SELECT " + ", ".join(
            f"unnest({texts(f'${number}') if type_ == 'text' else f'${number}::text::{type_}[]'})"
            f" AS {column.rpartition(' ')[0]}"
            for number, (column, type_) in enumerate(zip(declared, self._types, strict=True), first)
        )

    def pack(self, rows: Iterable[Sequence[Any]]) -> list[str]:
        """The parameters for these rows."""
        columns = list(zip(*rows, strict=True)) or [()] * len(self._types)
        return [
            pack_texts(values) if type_ == "text" else _pack_numbers(values)
            for type_, values in zip(self._types, columns, strict=True)
        ]

"""Numbers of turns: arithmetic over whole numbers, as in `1..2^{disks}-1`."""

from __future__ import annotations

import re
from collections.abc import Callable

# Long enough for everybody, short enough not to be followed into endless depths.
MAX_LENGTH = 200
# What is greater could not be counted anyway.
_MOST = 2**63

_TOKEN = re.compile(r"\s*(?:(\d+)|\{\{?\s*([A-Za-z_]\w*)\s*\}?\}|([-+*/^()]))")

Variable = Callable[[str], str]


def bounds(text: str, variable: Variable) -> tuple[int, int]:
    """The first and the last number of a range; raises ValueError if it is none."""
    first, dots, last = text.partition("..")
    if not dots:
        raise ValueError(f"{text[:MAX_LENGTH]!r} is no range like 1..10")
    return number(first, variable), number(last, variable)


def number(text: str, variable: Variable) -> int:
    """What an expression yields; raises ValueError if it yields nothing."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters")
    return _Expression(text, variable).value()


class _Expression:
    def __init__(self, text: str, variable: Variable) -> None:
        self._text = text
        self._variable = variable
        self._tokens = self._read()
        self._at = 0

    def value(self) -> int:
        found = self._sum()
        if self._at < len(self._tokens):
            raise self._unreadable()
        return found

    def _read(self) -> list[str]:
        tokens, end, whole = [], 0, self._text.rstrip()
        while end < len(whole):
            match = _TOKEN.match(whole, end)
            if match is None:
                raise self._unreadable()
            end = match.end()
            tokens.append(match[1] or match[3] or self._number_of(match[2]))
        return tokens

    def _number_of(self, name: str) -> str:
        found = self._variable(name).strip()
        if not re.fullmatch(r"\d{1,20}", found):
            raise ValueError(f"{name!r} is {found[:50]!r}, which is no whole number")
        return found

    def _next(self, *wanted: str) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at] in wanted:
            self._at += 1
            return self._tokens[self._at - 1]
        return None

    def _sum(self) -> int:
        found = self._product()
        while sign := self._next("+", "-"):
            other = self._product()
            found = self._bounded(found + other if sign == "+" else found - other)
        return found

    def _product(self) -> int:
        found = self._power()
        while sign := self._next("*", "/"):
            other = self._power()
            if sign == "/" and (other == 0 or found % other):
                raise ValueError(f"{found}/{other} is no whole number")
            found = self._bounded(found * other if sign == "*" else found // other)
        return found

    def _power(self) -> int:
        base = self._single()
        if not self._next("^"):
            return base
        exponent = self._power()
        if exponent < 0:
            raise ValueError(f"{base}^{exponent} is no whole number")
        if abs(base) > 1 and exponent > 64:
            raise ValueError(f"{base}^{exponent} is too great")
        return self._bounded(base**exponent)

    def _single(self) -> int:
        if self._next("-"):
            return -self._power()
        if self._next("("):
            found = self._sum()
            if not self._next(")"):
                raise self._unreadable()
            return found
        if self._at < len(self._tokens) and self._tokens[self._at].isdigit():
            self._at += 1
            return self._bounded(int(self._tokens[self._at - 1]))
        raise self._unreadable()

    def _bounded(self, value: int) -> int:
        if abs(value) >= _MOST:
            raise ValueError(f"{self._text.strip()!r} yields a number that is too great")
        return value

    def _unreadable(self) -> ValueError:
        return ValueError(f"{self._text.strip()[:MAX_LENGTH]!r} is no arithmetic that can be read")

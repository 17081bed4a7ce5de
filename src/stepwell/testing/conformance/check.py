"""The list that every check enters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stepwell.store import Store

Check = Callable[[Store], Awaitable[None]]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function

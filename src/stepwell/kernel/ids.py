"""Ids: 26 characters that sort by time of creation, strictly increasing within a process."""

from __future__ import annotations

import base64
import random
import re

from stepwell.kernel.clock import Clock

_ID = re.compile("[0-9a-v]{26}")


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def lowest_id(at: int) -> str:
    """An id below all that are made at this time or later: they never run behind their clock."""
    return _text(max(0, at // 1000) << 80)


def _text(value: int) -> str:
    return base64.b32hexencode(value.to_bytes(16, "big"))[:26].decode().lower()


class Ids:
    """Makes ids: 48 bits of milliseconds, then 80 random bits, counted up within a millisecond."""

    def __init__(self, clock: Clock, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self._last = 0

    def new(self) -> str:
        value = (self._clock.now() // 1000) << 80
        if value >> 80 <= self._last >> 80:
            value = self._last + 1
        else:
            value |= self._rng.getrandbits(80)
        self._last = value
        return _text(value)

    def fraction(self) -> float:
        """A random number in [0, 1), for jitter."""
        return self._rng.random()

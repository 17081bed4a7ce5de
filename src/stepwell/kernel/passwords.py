"""Passwords: how long they are, and how they are hashed and compared, off the event loop."""

from __future__ import annotations

import asyncio
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.profiles import RFC_9106_LOW_MEMORY

from stepwell.errors import PasswordInvalid

SHORTEST, LONGEST = 12, 1024

_hasher = PasswordHasher.from_parameters(RFC_9106_LOW_MEMORY)
# Each hash takes 64 MiB: many who log in at once take turns.
_threads = ThreadPoolExecutor(2, thread_name_prefix="stepwell-passwords")


class Verdict(NamedTuple):
    """What became of comparing a password."""

    right: bool
    # Whether it should be hashed anew, because it was hashed in an older way.
    outdated: bool = False


def check_password(password: str) -> str:
    """The password, if it can be one."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise PasswordInvalid(
            f"A password has {SHORTEST} to {LONGEST:,} characters; this one has "
            f"{len(password):,}. Several words are easy to remember."
        )
    return password


async def hashed(password: str) -> str:
    """What is stored of a password."""
    given = _bytes(check_password(password))
    return await asyncio.get_running_loop().run_in_executor(_threads, _hasher.hash, given)


async def compared(password: str, hash: str | None) -> Verdict:
    """Whether a password has that hash; None takes as long, and is never right."""
    if len(password) > LONGEST:
        return Verdict(False)
    return await asyncio.get_running_loop().run_in_executor(
        _threads, _compare, _bytes(password), hash
    )


def _compare(password: bytes, hash: str | None) -> Verdict:
    try:
        _hasher.verify(_nobodys() if hash is None else hash, password)
    except (VerificationError, InvalidHashError):
        return Verdict(False)
    return Verdict(hash is not None, hash is not None and _hasher.check_needs_rehash(hash))


@cache
def _nobodys() -> str:
    """A hash to compare with when there is none, so that nobody can tell by the time it takes."""
    return _hasher.hash(b"nobody")


def _bytes(password: str) -> bytes:
    # The same characters come differently composed from different keyboards.
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")

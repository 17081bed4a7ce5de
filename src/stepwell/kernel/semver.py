"""Versions of definitions: three numbers, by the rules of semver.org."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from stepwell.errors import InvalidInput
from stepwell.kernel.names import show

Bump = Literal["minor", "patch"]

_NUMBER = r"(0|[1-9]\d*)"
_IDENTIFIER = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
# Of a version that somebody gives; there has to be room for those that come after it.
MAX_LENGTH = 60
_MAX_READ = 100


class Version(NamedTuple):
    """A version that has been read; greater ones come later."""

    major: int
    minor: int
    patch: int
    # A release comes after all that lead to it.
    released: bool = True
    # A number comes before a word, so each is a pair that says which it is.
    prerelease: tuple[tuple[bool, int, str], ...] = ()


def read_version(text: Any) -> Version:
    found = _VERSION.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_READ else None
    if found is None:
        raise InvalidInput(f'A version is written like "1.2.0", not {show(text)}.')
    major, minor, patch, before = found.groups()
    identifiers = before.split(".") if before else []
    return Version(
        int(major), int(minor), int(patch), before is None,
        tuple((not each.isdigit(), int(each) if each.isdigit() else 0, each)
              for each in identifiers),
    )  # fmt: skip


def next_version(current: str | None, bump: Bump, wanted: str | None = None) -> str:
    """The version after the current one: the wanted one if it is later, else by a step."""
    if wanted is not None:
        later = read_version(wanted)
        if len(wanted) > MAX_LENGTH:
            raise InvalidInput(f"A version has at most {MAX_LENGTH} characters.")
        if current is not None and later <= read_version(current):
            raise InvalidInput(f"Version {wanted} is not greater than {current}, the current one.")
        return wanted
    if current is None:
        return "1.0.0"
    major, minor, patch, released, _ = read_version(current)
    if bump == "minor":
        # The release that 2.1.0-rc.1 leads to has not been there yet.
        return f"{major}.{minor + (released or patch > 0)}.0"
    return f"{major}.{minor}.{patch + released}"

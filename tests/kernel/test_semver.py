"""Versions of definitions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stepwell.errors import InvalidInput
from stepwell.kernel.semver import Bump, next_version, read_version


def test_versions_are_ordered_as_semver_says() -> None:
    in_order = [
        "0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
        "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.10.0", "2.0.0",
    ]  # fmt: skip
    for before, after in itertools.pairwise(map(read_version, in_order)):
        assert before < after


@pytest.mark.parametrize(
    "text", ["", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0 ", "1.0.0+", 1, None]
)
def test_what_is_no_version_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInput):
        read_version(text)


@pytest.mark.parametrize(
    ("current", "bump", "expected"),
    [
        (None, "minor", "1.0.0"),
        (None, "patch", "1.0.0"),
        ("1.0.4", "minor", "1.1.0"),
        ("1.0.4", "patch", "1.0.5"),
        ("2.0.0-rc.1", "minor", "2.0.0"),
        ("2.0.0-rc.1", "patch", "2.0.0"),
        ("2.0.1-rc.1", "minor", "2.1.0"),
        ("1.0.4+build", "patch", "1.0.5"),
    ],
)
def test_the_next_version_is_greater(current: str | None, bump: Bump, expected: str) -> None:
    assert next_version(current, bump) == expected
    assert current is None or read_version(current) < read_version(expected)


def test_a_wanted_version_has_to_be_greater() -> None:
    assert next_version("1.4.0", "patch", "3.0.0") == "3.0.0"
    assert next_version(None, "minor", "0.1.0") == "0.1.0"
    for wanted in ("1.4.0", "1.3.9", "1.4.0-rc.1", "1.4.0+other"):
        with pytest.raises(InvalidInput, match="not greater"):
            next_version("1.4.0", "minor", wanted)


def test_there_is_always_room_for_a_next_version() -> None:
    version = next_version(None, "minor", f"1.{'9' * 56}.0")
    for _ in range(3):
        version = next_version(version, "minor")
    with pytest.raises(InvalidInput, match="at most"):
        next_version(None, "minor", f"1.{'9' * 60}.0")

"""Rules of access: permissions, what opens a door, names, and who may act for whom."""

from __future__ import annotations

import pytest

from stepwell.errors import InvalidName, LastOwner
from stepwell.kernel.access import (
    PERMISSIONS,
    ROLES,
    LinkRecord,
    MemberRecord,
    SessionRecord,
    TokenRecord,
    UserRecord,
    allows,
    check_owner_stays,
    check_workspace_id,
    fits,
    hash_of,
    is_live,
    lesser,
    may_act_for,
    network_of,
    new_token,
    token_id_of,
    user_name,
)
from stepwell.kernel.ids import Ids
from stepwell.kernel.presenting import present
from stepwell.testing.clock import FakeClock


def test_each_permission_includes_those_before_it() -> None:
    assert [ROLES[role] for role in ("viewer", "member", "admin", "owner")] == list(PERMISSIONS)
    for number, held in enumerate(PERMISSIONS):
        assert [allows(held, needed) for needed in PERMISSIONS].count(True) == number + 1
        assert [lesser(held, other) for other in PERMISSIONS] == [
            PERMISSIONS[min(number, other)] for other in range(4)
        ]


def test_a_token_says_its_id_and_is_told_from_others_by_its_secret(clock: FakeClock) -> None:
    token_id = Ids(clock).new()
    text, other = new_token(token_id), new_token(token_id)
    assert token_id_of(text) == token_id_of(other) == token_id
    assert fits(text, hash_of(text))
    assert not fits(other, hash_of(text))
    assert len(text.removeprefix(f"sw_{token_id}_")) == 43, "256 bits"


@pytest.mark.parametrize(
    "text", ["", "sw_", "sw_x_y", "Bearer", f"sw_{'0' * 26}_{'x' * 42}", "\ud800", "sw_" * 10_000]
)
def test_what_cannot_be_a_token_has_no_id(text: str) -> None:
    assert token_id_of(text) is None
    assert not fits(text, hash_of("another"))


def test_nothing_that_opens_a_door_is_shown() -> None:
    records = [
        UserRecord("u", "ada", "SECRET", 0),
        TokenRecord("t", "w", "u", "ci", "SECRET", "run", 0),
        SessionRecord("SECRET", "s", "u", 0, 1),
        LinkRecord("SECRET", "u", 1),
    ]
    shown = [present(each) for each in records]
    assert "SECRET" not in str(shown)
    assert not any("hash" in key for each in shown for key in each)


def test_a_door_is_closed_when_its_time_is_up_or_it_was_revoked() -> None:
    token = TokenRecord("t", "w", "u", "ci", "", "run", 0, expires_at=10)
    assert is_live(token, 9)
    assert not is_live(token, 10)
    assert is_live(TokenRecord("t", "w", "u", "ci", "", "run", 0), 10**18)
    assert not is_live(SessionRecord("", "s", "u", 0, 10, revoked_at=1), 2)


def test_a_user_has_one_name_however_it_is_typed() -> None:
    assert user_name(" Ada@Example.org ") == "ada@example.org"
    assert user_name("ａｄａ") == "ada"  # noqa: RUF001 (letters of full width)
    for text in ("", "two words", "a/b", "a@b@c", "@", "me", "x" * 201, "a\nb"):
        with pytest.raises(InvalidName):
            user_name(text)


def test_the_id_of_a_workspace_can_stand_in_an_address() -> None:
    assert check_workspace_id("team-7") == "team-7"
    for text in ("", "Team", "a/b", "-a", "a-", "ü", "x" * 64):
        with pytest.raises(InvalidName):
            check_workspace_id(text)


def test_attempts_are_counted_by_network() -> None:
    assert network_of("203.0.113.9") == network_of("::ffff:203.0.113.9") == "203.0.113.9"
    assert network_of("2001:db8::1") == network_of("2001:db8::2%eth0") == "2001:db8::/64"
    assert network_of("2001:db8:0:1::1") != network_of("2001:db8::1")
    assert network_of("unix") == "unix"


def test_the_last_owner_stays() -> None:
    ada, bob = MemberRecord("w", "ada", "owner"), MemberRecord("w", "bob", "viewer")
    check_owner_stays([ada, bob], "bob")
    check_owner_stays([ada, MemberRecord("w", "bob", "owner")], "ada")
    with pytest.raises(LastOwner):
        check_owner_stays([ada, bob], "ada")


def test_only_an_owner_of_all_workspaces_of_a_user_may_act_for_them() -> None:
    own = [MemberRecord("a", "ada", "owner"), MemberRecord("b", "ada", "admin")]
    assert may_act_for(own, [MemberRecord("a", "bob", "owner")])
    assert may_act_for(own, [])
    assert not may_act_for(
        own, [MemberRecord("a", "bob", "viewer"), MemberRecord("b", "bob", "viewer")]
    )
    assert not may_act_for([], [MemberRecord("a", "bob", "viewer")])

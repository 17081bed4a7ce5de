"""Logging in: what is refused, how often one may try, and passwords that were hashed long ago."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from argon2 import PasswordHasher
from msgspec.structs import replace

from stepwell.access import Pace
from stepwell.app import doorkeeper
from stepwell.errors import RateLimited, Unauthenticated, UserNotFound
from stepwell.kernel.access import MemberRecord, new_secret, new_token
from stepwell.testing.clock import FakeClock
from tests.app.doors import HERE, PASSWORD, Doors, opened
from tests.operations.support import outcomes


@pytest.fixture
async def doors(store_url: str, clock: FakeClock) -> AsyncIterator[Doors]:
    async with opened(store_url, clock) as found:
        yield found


async def test_nobody_can_tell_why_a_login_failed(doors: Doors, clock: FakeClock) -> None:
    await doors.user("root")
    await doors.user("ada", password=PASSWORD)
    await doors.user("bob")  # has no password yet
    eve = await doors.user("eve", password=PASSWORD)
    await doors.access.remove_member("default", eve.id, clock.now())
    tries = [
        ("ada", "another password"), ("bob", PASSWORD), ("nobody", PASSWORD), ("a b", PASSWORD),
        ("eve", PASSWORD), ("ada", ""), ("ada", "x" * 2000), ("\ud800", "\ud800" * 12),
    ]  # fmt: skip
    said = set()
    for name, password in tries:
        with pytest.raises(Unauthenticated) as refused:
            await doors.keeper.login(name, password, HERE)
        said.add(refused.value.message)
    assert said == {"The name or the password is wrong."}
    assert (await doors.keeper.login("ada", PASSWORD, HERE)).user.name == "ada"


async def test_guesses_about_an_account_from_one_network_do_not_lock_it_elsewhere(
    doors: Doors, store_url: str, clock: FakeClock
) -> None:
    await doors.user("ada", password=PASSWORD)
    async with opened(store_url, clock) as elsewhere:
        guesses = [
            each.keeper.login("ada", "guess", HERE) for _ in range(8) for each in (doors, elsewhere)
        ]
        _, errors = await outcomes(*guesses)
        limited = [error for error in errors if isinstance(error, RateLimited)]
        assert (len(errors), len(limited)) == (16, 6)
        assert {error.details["retry_after"] for error in limited} == {30.0}
        with pytest.raises(RateLimited):
            await elsewhere.keeper.login("ADA", PASSWORD, HERE)
        assert await elsewhere.keeper.login("ADA", PASSWORD, "198.51.100.1")
        clock.advance(30)
        assert await elsewhere.keeper.login("ADA", PASSWORD, HERE)


async def test_guesses_about_an_account_are_limited_from_everywhere_together(
    doors: Doors, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorkeeper, "PER_ACCOUNT", Pace(12, 300))
    await doors.user("ada", password=PASSWORD)
    guesses = [
        doors.keeper.login("ada", "guess", f"198.51.100.{number}")
        for number in range(3)
        for _ in range(5)
    ]
    _, errors = await outcomes(*guesses)
    assert [type(error) for error in errors].count(RateLimited) == 3
    with pytest.raises(RateLimited):
        await doors.keeper.login("ada", PASSWORD, HERE)
    clock.advance(25)
    assert await doors.keeper.login("ada", PASSWORD, HERE)


async def test_a_login_is_written_down_where_its_user_is_at_home_and_nowhere_else(
    doors: Doors, clock: FakeClock
) -> None:
    ada = await doors.user("ada", password=PASSWORD, workspace="team")
    await doors.user("eve", workspace="another")
    await doors.access.add_member(
        MemberRecord("another", ada.id, "viewer", clock.now() + 1), replace(ada, serial=2)
    )
    with pytest.raises(Unauthenticated):
        await doors.keeper.login("ada", "guess", HERE)
    login = await doors.keeper.login("ada", PASSWORD, HERE)
    await doors.keeper.login_with_link(await doors.keeper.new_link("ada"), HERE)
    second, first = await doors.access.audit("team", None, 10)
    assert (first.operation, first.actor, first.user_id) == ("login", "ada", ada.id)
    assert (first.subject, first.details["way"]) == (login.session_id, "password")
    assert second.details == {"way": "link", "address": HERE}
    assert await doors.access.audit("another", None, 10) == []


async def test_guesses_from_an_address_are_limited_whoever_they_are_about(
    doors: Doors, clock: FakeClock
) -> None:
    await doors.user("ada", password=PASSWORD)
    _, errors = await outcomes(
        *(doors.keeper.login_with_link(f"guess {number}", HERE) for number in range(32))
    )
    assert [type(error) for error in errors].count(RateLimited) == 2
    with pytest.raises(RateLimited):
        await doors.keeper.login("ada", PASSWORD, HERE)
    assert await doors.keeper.login("ada", PASSWORD, "198.51.100.1")
    clock.advance(10)
    assert await doors.keeper.login("ada", PASSWORD, HERE)


async def test_wrong_tokens_from_an_address_are_limited_and_right_ones_are_not(
    doors: Doors, clock: FakeClock
) -> None:
    ada = await doors.user("ada", password=PASSWORD)
    _, text = await doors.token(ada)
    login = await doors.keeper.login("ada", PASSWORD, HERE)
    wrong = [doors.keeper.by_token(new_token(doors.ids.new()), HERE) for _ in range(62)]
    _, errors = await outcomes(*wrong)
    assert [type(error) for error in errors].count(RateLimited) == 2
    for guess in (new_token(doors.ids.new()), "guess", ""):
        with pytest.raises(RateLimited) as refused:
            await doors.keeper.by_token(guess, HERE)
        assert 0 < refused.value.details["retry_after"] <= 1
    for guess in (new_secret(), "guess"):
        with pytest.raises(RateLimited):
            await doors.keeper.by_session(guess, address=HERE)
    assert await doors.keeper.by_token(text, HERE)
    assert await doors.keeper.by_session(login.cookie, address=HERE)
    clock.advance(2)
    with pytest.raises(Unauthenticated):
        await doors.keeper.by_token("guess", HERE)


async def test_what_can_open_nothing_is_looked_for_once_at_most(doors: Doors) -> None:
    await doors.user("ada")
    token, cookie = new_token(doors.ids.new()), new_secret()
    for guess in (doors.keeper.by_token(token), doors.keeper.by_session(cookie)):
        with pytest.raises(Unauthenticated):
            await guess
    await doors.store.close()
    for text in (token, "guess", ""):
        with pytest.raises(Unauthenticated):
            await doors.keeper.by_token(text)
    for text in (cookie, "guess", ""):
        with pytest.raises(Unauthenticated):
            await doors.keeper.by_session(text)


async def test_a_token_of_somebody_with_another_role_allows_as_much_at_once(doors: Doors) -> None:
    await doors.user("root")
    ada = await doors.user("ada", "viewer")
    _, text = await doors.token(ada)
    assert (await doors.keeper.by_token(text, HERE)).caller.permission == "read"
    await doors.access.set_role(MemberRecord("default", ada.id, "admin"))
    assert (await doors.keeper.by_token(text, HERE)).caller.permission == "build"


async def test_a_link_lets_in_once_and_for_a_day(doors: Doors, clock: FakeClock) -> None:
    ada = await doors.user("ada")
    link, late = await doors.keeper.new_link("Ada"), await doors.keeper.new_link("ada")
    logins, errors = await outcomes(*(doors.keeper.login_with_link(link, HERE) for _ in range(4)))
    assert [login.user for login in logins] == [ada]
    assert [type(error) for error in errors] == [Unauthenticated] * 3
    clock.advance("1d")
    with pytest.raises(Unauthenticated):
        await doors.keeper.login_with_link(late, HERE)
    with pytest.raises(UserNotFound):
        await doors.keeper.new_link("nobody")


async def test_a_password_hashed_in_an_older_way_is_hashed_anew_by_a_login(doors: Doors) -> None:
    ada = await doors.user("ada")
    old = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(PASSWORD)
    await doors.access.change_user(replace(ada, password_hash=old, serial=2))
    await asyncio.gather(*(doors.keeper.login("ada", PASSWORD, HERE) for _ in range(2)))
    found = await doors.access.user(ada.id)
    assert found is not None
    assert found.serial == 3
    assert "m=65536,t=3" in str(found.password_hash)
    assert await doors.keeper.login("ada", PASSWORD, HERE)


@pytest.mark.parametrize("way", ["password", "link"])
async def test_a_login_under_way_does_not_outlive_a_new_password(
    doors: Doors, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    ada = await doors.user("ada", password=PASSWORD)
    link, read = await doors.keeper.new_link("ada"), doors.access.memberships

    async def slowly(user_id: str) -> Any:
        """The last look at who logs in; then their password is changed."""
        found = await read(user_id)
        changed = replace(ada, password_hash="another", serial=2)
        await doors.access.change_password(changed, clock.now())
        return found

    monkeypatch.setattr(doors.access, "memberships", slowly)
    keeper = doors.keeper
    with pytest.raises(Unauthenticated):
        await (
            keeper.login_with_link(link, HERE)
            if way == "link"
            else keeper.login("ada", PASSWORD, HERE)
        )
    assert await doors.access.sessions(ada.id, clock.now()) == []

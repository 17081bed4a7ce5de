"""Logging in: what is refused, how often one may try, and passwords that were hashed long ago."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from argon2 import PasswordHasher
from msgspec.structs import replace

from stepwell.errors import RateLimited, Unauthenticated, UserNotFound
from stepwell.kernel.access import new_token
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


async def test_guesses_about_an_account_are_limited_from_everywhere_together(
    doors: Doors, store_url: str, clock: FakeClock
) -> None:
    await doors.user("ada", password=PASSWORD)
    async with opened(store_url, clock) as elsewhere:
        guesses = [
            each.keeper.login("ada", "guess", f"198.51.100.{number}")
            for number in range(8)
            for each in (doors, elsewhere)
        ]
        _, errors = await outcomes(*guesses)
        limited = [error for error in errors if isinstance(error, RateLimited)]
        assert len(errors) == 16
        assert len(limited) == 6
        assert {error.details["retry_after"] for error in limited} == {30.0}
        with pytest.raises(RateLimited):
            await elsewhere.keeper.login("ADA", PASSWORD, HERE)
        clock.advance(30)
        assert await elsewhere.keeper.login("ADA", PASSWORD, HERE)


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


async def test_wrong_tokens_from_an_address_are_limited_and_right_ones_elsewhere_are_not(
    doors: Doors, clock: FakeClock
) -> None:
    ada = await doors.user("ada")
    _, text = await doors.token(ada)
    wrong = [doors.keeper.by_token(new_token(doors.ids.new()), HERE) for _ in range(62)]
    _, errors = await outcomes(*wrong)
    assert [type(error) for error in errors].count(RateLimited) == 2
    with pytest.raises(RateLimited) as refused:
        await doors.keeper.by_token(text, HERE)
    assert 0 < refused.value.details["retry_after"] <= 1
    with pytest.raises(RateLimited):
        await doors.keeper.by_session("guess", address=HERE)
    assert await doors.keeper.by_token(text, "198.51.100.1")
    assert await doors.keeper.by_token(text, HERE), "it is remembered"
    clock.advance(2)
    assert await doors.keeper.by_token(text, HERE)


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

"""Being let in: by tokens and sessions, for how long, and what ends that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.app import doorkeeper
from stepwell.catalog import operations
from stepwell.errors import Unauthenticated, WorkspaceNotFound
from stepwell.kernel.access import MemberRecord, new_token
from stepwell.kernel.clock import SECOND
from stepwell.testing.clock import FakeClock
from tests.app.doors import HERE, PASSWORD, Doors, opened
from tests.stores.everything import everything


@pytest.fixture
async def doors(store_url: str, clock: FakeClock) -> AsyncIterator[Doors]:
    async with opened(store_url, clock) as found:
        yield found


async def test_a_token_lets_its_user_in_with_no_more_than_both_may(doors: Doors) -> None:
    ada = await doors.user("ada", "admin")
    for permission, left in (("read", "read"), ("build", "build"), ("own", "build")):
        token_id, text = await doors.token(ada, permission)  # type: ignore[arg-type]
        found = await doors.keeper.by_token(text)
        assert (found.workspace_id, found.caller.permission) == ("default", left)
        assert (found.caller.name, found.caller.role) == ("ada", "admin")
        assert (found.caller.user_id, found.caller.token_id) == (ada.id, token_id)


async def test_a_token_that_is_wrong_revoked_or_expired_lets_nobody_in(
    doors: Doors, clock: FakeClock
) -> None:
    ada = await doors.user("ada")
    token_id, text = await doors.token(ada)
    _, brief = await doors.token(ada, expires_at=clock.now() + SECOND)
    await doors.keeper.by_token(brief)
    for wrong in ("", "sw_", text[:-1], new_token(token_id), new_token(doors.ids.new())):
        with pytest.raises(Unauthenticated):
            await doors.keeper.by_token(wrong)
    assert await doors.keeper.by_token(text)
    await doors.access.revoke_token("default", token_id, clock.now())
    with pytest.raises(Unauthenticated):
        await doors.keeper.by_token(text)
    clock.advance(1)
    with pytest.raises(Unauthenticated):
        await doors.keeper.by_token(brief)


async def test_what_is_changed_here_counts_at_once_and_elsewhere_within_two_seconds(
    doors: Doors, store_url: str, clock: FakeClock
) -> None:
    await doors.user("ada")
    bob = await doors.user("bob")
    _, text = await doors.token(bob)
    async with opened(store_url, clock) as elsewhere:
        for keeper in (doors.keeper, elsewhere.keeper):
            assert (await keeper.by_token(text)).caller.permission == "own"
        await doors.access.set_role(MemberRecord("default", bob.id, "viewer"))
        assert (await doors.keeper.by_token(text)).caller.permission == "read"
        assert (await elsewhere.keeper.by_token(text)).caller.permission == "own"
        clock.advance(2)
        assert (await elsewhere.keeper.by_token(text)).caller.permission == "read"
        await elsewhere.access.remove_member("default", bob.id, clock.now())
        clock.advance(2)
        with pytest.raises(Unauthenticated):
            await doors.keeper.by_token(text)


async def test_who_was_let_in_costs_no_trip_to_the_store(doors: Doors) -> None:
    ada = await doors.user("ada", password=PASSWORD)
    _, text = await doors.token(ada)
    login = await doors.keeper.login("ada", PASSWORD, HERE)
    first = await doors.keeper.by_token(text), await doors.keeper.by_session(login.cookie)
    await doors.store.close()
    again = await doors.keeper.by_token(text), await doors.keeper.by_session(login.cookie)
    assert again == first


async def test_what_is_taken_away_while_it_is_looked_up_is_not_remembered(
    doors: Doors, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await doors.user("ada")
    token_id, text = await doors.token(ada)
    read = doors.access.token

    async def slowly(wanted: str) -> Any:
        found = await read(wanted)
        await doors.access.revoke_token("default", token_id, clock.now())
        return found

    with monkeypatch.context() as slow:
        slow.setattr(doors.access, "token", slowly)
        assert await doors.keeper.by_token(text), "it came just in time"
    with pytest.raises(Unauthenticated):
        await doors.keeper.by_token(text)


async def test_no_more_is_remembered_than_there_is_room_for(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorkeeper, "MAX_REMEMBERED", 3)
    ada = await doors.user("ada")
    for _ in range(5):
        _, text = await doors.token(ada)
        assert await doors.keeper.by_token(text)
    assert len(doors.keeper._remembered) == 3


async def test_the_last_use_of_a_token_is_known_to_the_minute(
    doors: Doors, clock: FakeClock
) -> None:
    ada = await doors.user("ada")
    token_id, text = await doors.token(ada)
    begun, seen = clock.now(), []
    for _ in range(6):
        await doors.keeper.by_token(text)
        found = await doors.access.token(token_id)
        assert found is not None
        assert found[0].last_used_at is not None
        seen.append((found[0].last_used_at - begun) // SECOND)
        clock.advance(25)
    assert seen == [0, 0, 0, 75, 75, 75]


async def test_a_session_lets_into_the_workspaces_of_its_user_only(
    doors: Doors, clock: FakeClock
) -> None:
    ada = await doors.user("ada", password=PASSWORD, workspace="team")
    await doors.user("bob", workspace="other")
    login = await doors.keeper.login(" ADA ", PASSWORD, HERE)
    found = await doors.keeper.by_session(login.cookie)
    assert (found.workspace_id, found.caller.permission) == ("team", "own")
    assert found.caller.session_id == login.session_id
    clock.advance(1)
    for serial, taken_in_by in enumerate(("default", "a-stranger"), ada.serial + 1):
        await doors.access.add_member(
            MemberRecord(taken_in_by, ada.id, "viewer", clock.now()), replace(ada, serial=serial)
        )
        found = await doors.keeper.by_session(login.cookie)
        assert (found.workspace_id, found.caller.permission) == ("team", "own")
        found = await doors.keeper.by_session(login.cookie, taken_in_by)
        assert (found.workspace_id, found.caller.permission) == (taken_in_by, "read")
    for workspace in ("other", "none"):
        with pytest.raises(WorkspaceNotFound):
            await doors.keeper.by_session(login.cookie, workspace)


async def test_a_session_ends_by_time_logout_and_from_elsewhere(
    doors: Doors, clock: FakeClock
) -> None:
    ada = await doors.user("ada", password=PASSWORD)
    first, second, third = [await doors.keeper.login("ada", PASSWORD, HERE) for _ in range(3)]
    assert first.cookie != second.cookie
    await doors.keeper.by_session(first.cookie)
    await doors.keeper.logout(first.cookie)
    await doors.keeper.logout(first.cookie)
    await doors.keeper.logout("nobody's")
    with pytest.raises(Unauthenticated):
        await doors.keeper.by_session(first.cookie)
    assert await doors.keeper.by_session(second.cookie)
    await doors.access.end_sessions(ada.id, clock.now())
    with pytest.raises(Unauthenticated):
        await doors.keeper.by_session(second.cookie)
    last = await doors.keeper.login("ada", PASSWORD, HERE)
    assert await doors.keeper.by_session(last.cookie)
    clock.advance("30d")
    for cookie in (third.cookie, last.cookie, "", "made up"):
        with pytest.raises(Unauthenticated):
            await doors.keeper.by_session(cookie)


async def test_of_several_first_starts_one_makes_the_owner(
    store_url: str, clock: FakeClock
) -> None:
    async with opened(store_url, clock) as one, opened(store_url, clock) as other:
        links = await asyncio.gather(
            *(doors.keeper.first_start() for doors in (one, other) for _ in range(3))
        )
        [link] = [each for each in links if each is not None]
        before = await everything(store_url)
        assert await other.keeper.first_start() is None
        assert await everything(store_url) == before, "nothing is written"
        assert link not in before
        login = await other.keeper.login_with_link(link, HERE)
        found = await one.keeper.by_session(login.cookie)
        assert (found.workspace_id, found.caller.name) == ("default", "owner")
        assert found.caller.permission == "own"
        with pytest.raises(Unauthenticated, match="used already"):
            await one.keeper.login_with_link(link, HERE)


async def test_an_audit_row_says_who_did_what_to_what_and_keeps_no_secret(doors: Doors) -> None:
    ada = await doors.user("ada")
    token_id, text = await doors.token(ada)
    admission = await doors.keeper.by_token(text)
    declared = operations()
    given: dict[str, Any] = {"name": "hook", "value": "the secret value"}
    await doors.keeper.record(admission, declared["secrets.set"], given, request_id="r1")
    decided = {
        "gate_id": "g",
        "decision": "approve",
        "token": "the secret token",
        "note": "x" * 999,
    }
    await doors.keeper.record(admission, declared["gates.decide"], decided)
    forked = {"run_id": "r", "from_step": "s", "input": "a secret payload"}
    await doors.keeper.record(admission, declared["runs.fork"], forked)
    third, second, first = await doors.access.audit("default", None, 10)
    assert (first.actor, first.user_id, first.operation) == ("ada", ada.id, "secrets.set")
    assert (first.subject, first.request_id) == ("hook", "r1")
    assert first.details == {"token_id": token_id}
    assert second.details == {"decision": "approve", "token_id": token_id}
    assert (third.subject, third.details) == ("r", {"from_step": "s", "token_id": token_id})

"""Tokens: made up to what their maker may, shown once, listed and revoked."""

from __future__ import annotations

import dataclasses

import pytest

from stepwell.catalog import operations
from stepwell.errors import (
    InvalidDuration,
    PermissionDenied,
    QuotaExceeded,
    TokenNotFound,
    Unauthenticated,
    UserNotFound,
)
from stepwell.kernel.access import PERMISSIONS
from stepwell.kernel.clock import SECOND
from stepwell.kernel.presenting import present
from stepwell.operations import tokens
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.operations.people import LOCAL, call, join, keeper_of
from tests.stores.everything import everything


async def test_a_token_is_shown_once_and_nowhere_else(world: World, store_url: str) -> None:
    async with world() as sw:
        ada = await join(sw, "ada")
        made = await call(sw, ada, "tokens.create", name="ci", permission="build")
        assert made.text.startswith(f"sw_{made.id}_")
        found = await keeper_of(sw).by_token(made.text)
        assert (found.caller.name, found.caller.permission) == ("ada", "build")
        [listed] = await call(sw, ada, "tokens.list")
        assert (listed.id, listed.name, listed.expires_at) == (made.id, "ci", None)
        secret = made.text.removeprefix(f"sw_{made.id}_")
        assert secret not in str(listed) + await everything(store_url)
        assert "hash" not in present(listed)


async def test_nobody_makes_a_token_that_may_more_than_they(world: World) -> None:
    async with world() as sw:
        await join(sw, "ada")
        bob = await join(sw, "bob", "member")
        by_token = dataclasses.replace(bob, permission="read", token_id="t")
        for caller, most in ((bob, "run"), (by_token, "read")):
            for permission in PERMISSIONS:
                making = call(sw, caller, "tokens.create", name="ci", permission=permission)
                if PERMISSIONS.index(permission) <= PERMISSIONS.index(most):  # type: ignore[arg-type]
                    assert (await making).permission == permission
                else:
                    with pytest.raises(PermissionDenied) as refused:
                        await making
                    assert refused.value.details["needs"] == permission


async def test_a_token_is_made_for_somebody_else_by_owners_only(world: World) -> None:
    async with world() as sw, world(workspace="other") as other:
        ada, bob = await join(sw, "ada"), await join(sw, "bob", "admin")
        eve = await join(other, "eve")
        made = await call(sw, ada, "tokens.create", name="x", permission="own", user_id=bob.user_id)
        assert (await keeper_of(sw).by_token(made.text)).caller.permission == "build"
        for caller in (LOCAL, ada):
            with pytest.raises(UserNotFound):
                await call(sw, caller, "tokens.create", name="x", permission="read",
                           user_id=eve.user_id)  # fmt: skip
        with pytest.raises(PermissionDenied):
            await call(sw, bob, "tokens.create", name="x", permission="read", user_id=ada.user_id)
        with pytest.raises(UserNotFound, match="Say whose it is, with user_id"):
            await call(sw, LOCAL, "tokens.create", name="x", permission="read")


async def test_a_token_ends_when_it_was_to(world: World, clock: FakeClock) -> None:
    async with world() as sw:
        ada = await join(sw, "ada")
        made = await call(sw, ada, "tokens.create", name="x", permission="read", expires_in="1h")
        keeper = keeper_of(sw)
        clock.advance("59m")
        assert await keeper.by_token(made.text)
        clock.advance("1m")
        with pytest.raises(Unauthenticated):
            await keeper.by_token(made.text)
        for wrong in ("soon", -1):
            with pytest.raises(InvalidDuration):
                await call(sw, ada, "tokens.create", name="x", permission="read", expires_in=wrong)
        assert len(await call(sw, ada, "tokens.list")) == 1
        clock.advance("31d")
        kept = await call(sw, ada, "tokens.create", name="y", permission="read")
        assert [each.id for each in await call(sw, ada, "tokens.list")] == [kept.id]


async def test_a_user_has_so_many_tokens_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    async with world() as sw:
        ada = await join(sw, "ada")
        for name in ("a", "b"):
            await call(sw, ada, "tokens.create", name=name, permission="read")
        with pytest.raises(QuotaExceeded):
            await call(sw, ada, "tokens.create", name="c", permission="read")


async def test_a_token_is_revoked_at_once_by_its_user_or_an_owner(world: World) -> None:
    async with world() as sw, world(workspace="other") as other:
        ada, bob = await join(sw, "ada"), await join(sw, "bob", "admin")
        eve = await join(other, "eve")
        keeper = keeper_of(sw)
        first, second = [
            await call(sw, bob, "tokens.create", name=name, permission="run") for name in "ab"
        ]
        owners = await call(sw, ada, "tokens.create", name="c", permission="run")
        for place, caller, token_id in (
            (other, eve, first.id), (sw, bob, owners.id), (sw, bob, "none"),
        ):  # fmt: skip
            with pytest.raises(TokenNotFound):
                await call(place, caller, "tokens.revoke", token_id=token_id)
        for caller, made in ((bob, first), (ada, second)):
            assert await keeper.by_token(made.text)
            await call(sw, caller, "tokens.revoke", token_id=made.id)
            with pytest.raises(Unauthenticated):
                await keeper.by_token(made.text)
            with pytest.raises(TokenNotFound):
                await call(sw, caller, "tokens.revoke", token_id=made.id)


async def test_a_token_leads_to_none_that_lasts_longer_or_may_more(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw:
        await join(sw, "ada")
        bob = await join(sw, "bob", "admin")
        weak = await call(sw, bob, "tokens.create", name="x", permission="read", expires_in="1h")
        strong = await call(sw, bob, "tokens.create", name="y", permission="build")
        by_token = (await keeper_of(sw).by_token(weak.text)).caller
        for expires_in, seconds in ((None, 3600), ("2h", 3600), ("1m", 60)):
            made = await call(sw, by_token, "tokens.create", name="z", permission="read",
                              expires_in=expires_in)  # fmt: skip
            assert made.expires_at == clock.now() + seconds * SECOND
        with pytest.raises(TokenNotFound):
            await call(sw, by_token, "tokens.revoke", token_id=strong.id)
        for token_id in (made.id, weak.id):
            await call(sw, by_token, "tokens.revoke", token_id=token_id)
        await call(sw, LOCAL, "users.set_role", user_id="bob", role="viewer")
        viewer = dataclasses.replace(bob, permission="read", role="viewer")
        await call(sw, viewer, "tokens.revoke", token_id=strong.id)


async def test_an_owner_sees_the_tokens_of_everyone_and_others_their_own(world: World) -> None:
    async with world() as sw:
        ada, bob = await join(sw, "ada"), await join(sw, "bob", "admin")
        made = [
            await call(sw, caller, "tokens.create", name="x", permission="read")
            for caller in (ada, bob)
        ]
        for caller, own in ((ada, made[0]), (bob, made[1])):
            assert [each.id for each in await call(sw, caller, "tokens.list")] == [own.id]
        everyones = await call(sw, ada, "tokens.list", everyone=True)
        assert [each.id for each in everyones] == [made[1].id, made[0].id]
        with pytest.raises(PermissionDenied):
            await call(sw, bob, "tokens.list", everyone=True)
        assert await call(sw, LOCAL, "tokens.list") == []


def test_what_changes_access_is_audited_also_where_everybody_may() -> None:
    for name in ("tokens.create", "tokens.revoke", "users.set_password", "users.revoke_session"):
        assert operations()[name].needs == "read"
        assert operations()[name].is_recorded
    assert not operations()["tokens.list"].is_recorded

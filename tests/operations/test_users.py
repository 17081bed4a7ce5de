"""Users: taken in, given roles, taken out, and their passwords and sessions."""

from __future__ import annotations

import dataclasses

import pytest

from stepwell.errors import (
    InvalidName,
    LastOwner,
    PasswordInvalid,
    PermissionDenied,
    RateLimited,
    SessionNotFound,
    Unauthenticated,
    UserExists,
    UserNotFound,
    WorkspaceNotFound,
)
from stepwell.kernel.presenting import present
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.operations.people import HERE, LOCAL, PASSWORD, call, join, keeper_of
from tests.operations.support import outcomes

NEW = "another battery staple"


async def test_somebody_comes_in_by_a_link_and_sets_a_password(world: World) -> None:
    async with world() as sw:
        keeper = keeper_of(sw)
        made = await call(sw, LOCAL, "users.create", name=" Ada@Example.org", role="owner")
        assert (made.user.name, made.user.role) == ("ada@example.org", "owner")
        assert not made.user.has_password
        login = await keeper.login_with_link(made.login.link, HERE)
        ada = (await keeper.by_session(login.cookie)).caller
        me = await call(sw, ada, "users.me")
        assert (me.id, me.permission, me.workspace_id) == (made.user.id, "own", "default")
        await call(sw, ada, "users.set_password", user_id="me", password=PASSWORD)
        assert (await keeper.login("ada@example.org", PASSWORD, HERE)).user.id == me.id
        [listed] = await call(sw, ada, "users.list")
        assert listed.has_password
        assert "argon2" not in str(present([listed, made, await sw.store.access.user(me.id)]))


async def test_with_a_password_nobody_needs_a_link(world: World) -> None:
    async with world() as sw:
        made = await call(sw, LOCAL, "users.create", name="ada", role="viewer", password=PASSWORD)
        assert made.login is None
        assert (await keeper_of(sw).login("ada", PASSWORD, HERE)).user.id == made.user.id
        with pytest.raises(UserExists):
            await call(sw, LOCAL, "users.create", name="ADA", role="viewer")
        with pytest.raises(PasswordInvalid):
            await call(sw, LOCAL, "users.create", name="bob", role="viewer", password="short")
        with pytest.raises(InvalidName):
            await call(sw, LOCAL, "users.create", name="b o b", role="viewer")
        assert [each.name for each in await call(sw, LOCAL, "users.list")] == ["ada"]


async def test_of_several_who_take_in_the_same_user_one_does(world: World) -> None:
    async with world() as sw:
        made, errors = await outcomes(
            *(call(sw, LOCAL, "users.create", name="ada", role="owner") for _ in range(4))
        )
        assert len(made) == 1
        assert [type(error) for error in errors] == [UserExists] * 3


async def test_an_owner_of_another_workspace_gets_no_way_to_log_in_as_somebody(
    world: World,
) -> None:
    async with world() as sw, world(workspace="other") as other:
        await join(sw, "ada", password=PASSWORD)
        eve = await join(other, "eve")
        for fields in ({}, {"password": NEW}):
            with pytest.raises(UserExists, match="do not own"):
                await call(other, eve, "users.create", name="ada", role="viewer", **fields)
        invited = await call(other, LOCAL, "users.create", name="ada", role="viewer")
        assert invited.login is None
        for name in ("users.link", "users.sessions"):
            with pytest.raises(PermissionDenied, match="not yours"):
                await call(other, eve, name, user_id="ada")
        with pytest.raises(PermissionDenied, match="not yours"):
            await call(other, eve, "users.set_password", user_id="ada", password=NEW)
        login = await keeper_of(sw).login("ada", PASSWORD, HERE)
        found = await keeper_of(sw).by_session(login.cookie, "other")
        assert (found.workspace_id, found.caller.permission) == ("other", "read")


async def test_a_name_that_somebody_made_first_brings_them_into_no_other_workspace(
    world: World,
) -> None:
    async with world(workspace="evil") as evil, world(workspace="bank") as bank:
        mallory, owner = await join(evil, "mallory"), await join(bank, "bob")
        ada = {"name": "ada@example.org"}
        keeper = keeper_of(bank)
        await call(evil, mallory, "users.create", **ada, role="owner", password=PASSWORD)
        link = (await call(evil, mallory, "users.link", user_id=ada["name"])).link
        with pytest.raises(UserExists, match=r"do not own.* on the store itself"):
            await call(bank, owner, "users.create", **ada, role="admin")
        login = await keeper.login(ada["name"], PASSWORD, HERE)
        with pytest.raises(WorkspaceNotFound):
            await keeper.by_session(login.cookie, "bank")
        await call(evil, mallory, "users.remove", user_id=ada["name"])
        invited = await call(bank, owner, "users.create", **ada, role="admin")
        for attempted in (
            keeper.login(ada["name"], PASSWORD, HERE), keeper.login_with_link(link, HERE),
            keeper.by_session(login.cookie),
        ):  # fmt: skip
            with pytest.raises(Unauthenticated):
                await attempted
        assert await keeper.login_with_link(invited.login.link, HERE)


async def test_an_owner_takes_their_people_into_another_workspace_of_theirs(world: World) -> None:
    async with world() as sw, world(workspace="team") as team:
        ada = await join(sw, "ada")
        await join(sw, "bob", "viewer", password=PASSWORD)
        await call(sw, ada, "workspaces.create", id="team")
        with pytest.raises(UserExists, match="password of their own"):
            await call(team, ada, "users.create", name="bob", role="admin", password=NEW)
        invited = await call(team, ada, "users.create", name="bob", role="admin")
        assert invited.login is None
        login = await keeper_of(sw).login("bob", PASSWORD, HERE)
        found = await keeper_of(sw).by_session(login.cookie, "team")
        assert found.caller.permission == "build"


async def test_users_of_another_workspace_are_not_found(world: World) -> None:
    async with world() as sw, world(workspace="other") as other:
        ada = await join(sw, "ada")
        eve = await join(other, "eve")
        for ref in (ada.user_id, "ada", "nobody"):
            for name, fields in (
                ("users.set_role", {"role": "viewer"}), ("users.remove", {}),
            ):  # fmt: skip
                with pytest.raises(UserNotFound):
                    await call(other, LOCAL, name, user_id=ref, **fields)
            for name, fields in (
                ("users.link", {}), ("users.sessions", {}),
                ("users.set_password", {"password": NEW}),
                ("users.revoke_session", {"session_id": "s"}),
            ):  # fmt: skip
                with pytest.raises(UserNotFound):
                    await call(other, eve, name, user_id=ref, **fields)


async def test_a_new_role_takes_effect_at_once_and_the_last_owner_stays(world: World) -> None:
    async with world() as sw:
        ada, bob = await join(sw, "ada"), await join(sw, "bob", "viewer")
        keeper = keeper_of(sw)
        token = await call(sw, LOCAL, "tokens.create", name="ci", permission="own",
                           user_id=bob.user_id)  # fmt: skip
        assert (await keeper.by_token(token.text)).caller.permission == "read"
        changed = await call(sw, ada, "users.set_role", user_id="bob", role="admin")
        assert changed.role == "admin"
        assert (await keeper.by_token(token.text)).caller.permission == "build"
        for name, fields in (("users.set_role", {"role": "admin"}), ("users.remove", {})):
            with pytest.raises(LastOwner):
                await call(sw, ada, name, user_id="ada", **fields)
        await call(sw, ada, "users.set_role", user_id="bob", role="owner")
        done, errors = await outcomes(
            call(sw, ada, "users.remove", user_id="ada"),
            call(sw, bob, "users.remove", user_id="bob"),
        )
        assert done == [None]
        assert [type(error) for error in errors] == [LastOwner]


async def test_who_was_removed_is_out_and_can_be_taken_in_again(world: World) -> None:
    async with world() as sw:
        ada = await join(sw, "ada")
        bob = await join(sw, "bob", password=PASSWORD)
        keeper = keeper_of(sw)
        login = await keeper.login("bob", PASSWORD, HERE)
        token = await call(sw, bob, "tokens.create", name="ci", permission="read")
        await keeper.by_session(login.cookie)
        await call(sw, ada, "users.remove", user_id=bob.user_id)
        for attempted in (
            keeper.by_session(login.cookie), keeper.by_token(token.text),
            keeper.login("bob", PASSWORD, HERE),
        ):  # fmt: skip
            with pytest.raises(Unauthenticated):
                await attempted
        again = await call(sw, ada, "users.create", name="bob", role="member")
        assert again.user.id == bob.user_id
        assert await keeper.login_with_link(again.login.link, HERE)
        with pytest.raises(Unauthenticated):
            await keeper.by_token(token.text)


async def test_a_password_is_changed_by_who_knows_it_and_ends_other_sessions(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw:
        await join(sw, "ada", password=PASSWORD)
        keeper = keeper_of(sw)
        here, there = [await keeper.login("ada", PASSWORD, HERE) for _ in range(2)]
        unused = await keeper.new_link("ada")
        ada = (await keeper.by_session(here.cookie)).caller
        for current in (None, "", NEW):
            with pytest.raises(PasswordInvalid, match="current"):
                await call(sw, ada, "users.set_password", user_id="me", password=NEW,
                           current=current)  # fmt: skip
        with pytest.raises(PasswordInvalid, match="12 to"):
            await call(sw, ada, "users.set_password", user_id="me", password="x", current=PASSWORD)
        await call(sw, ada, "users.set_password", user_id="me", password=NEW, current=PASSWORD)
        assert await keeper.by_session(here.cookie)
        for attempted in (
            keeper.by_session(there.cookie), keeper.login("ada", PASSWORD, HERE),
            keeper.login_with_link(unused, HERE),
        ):  # fmt: skip
            with pytest.raises(Unauthenticated):
                await attempted
        assert await keeper.login("ada", NEW, HERE)
        guess = {"user_id": "me", "password": NEW, "current": "a guess at it"}
        _, errors = await outcomes(
            *(call(sw, ada, "users.set_password", **guess) for _ in range(10))
        )
        assert {type(error) for error in errors} == {PasswordInvalid, RateLimited}


async def test_only_an_owner_sets_the_password_of_others_and_no_token_its_users_own(
    world: World,
) -> None:
    async with world() as sw:
        ada, bob = await join(sw, "ada"), await join(sw, "bob", "admin")
        with pytest.raises(PermissionDenied):
            await call(sw, bob, "users.set_password", user_id="ada", password=NEW)
        await call(sw, ada, "users.set_password", user_id="bob", password=NEW)
        assert await keeper_of(sw).login("bob", NEW, HERE)
        by_token = dataclasses.replace(ada, token_id="t")
        with pytest.raises(PermissionDenied, match="Log in"):
            await call(sw, by_token, "users.set_password", user_id="me", password=NEW)


async def test_a_token_of_one_workspace_opens_no_other_by_a_users_login(world: World) -> None:
    async with world() as sw, world(workspace="team") as team:
        ada = await join(sw, "ada")
        await call(sw, ada, "workspaces.create", id="team")
        for place in (sw, team):
            await call(place, ada, "users.create", name="bob", role="viewer")
        assert (await call(sw, ada, "users.link", user_id="bob")).link
        by_token = dataclasses.replace(ada, token_id="t")
        for user in ("bob", "ada"):
            with pytest.raises(PermissionDenied):
                await call(sw, by_token, "users.link", user_id=user)
        with pytest.raises(PermissionDenied):
            await call(sw, by_token, "users.set_password", user_id="bob", password=NEW)
        await call(team, ada, "users.remove", user_id="bob")
        assert (await call(sw, by_token, "users.link", user_id="bob")).link


async def test_sessions_are_listed_and_revoked(world: World) -> None:
    async with world() as sw:
        ada = await join(sw, "ada")
        bob = await join(sw, "bob", "member", password=PASSWORD)
        keeper = keeper_of(sw)
        first, second = [await keeper.login("bob", PASSWORD, HERE) for _ in range(2)]
        found = await call(sw, bob, "users.sessions", user_id="me")
        assert [each.id for each in found] == [second.session_id, first.session_id]
        assert "hash" not in str(present(found))
        await keeper.by_session(first.cookie)
        session = {"user_id": "bob", "session_id": first.session_id}
        await call(sw, ada, "users.revoke_session", **session)
        with pytest.raises(Unauthenticated):
            await keeper.by_session(first.cookie)
        for caller in (ada, bob):
            with pytest.raises(SessionNotFound):
                await call(sw, caller, "users.revoke_session", **session)
        eve = await join(sw, "eve", "admin")
        with pytest.raises(PermissionDenied):
            await call(sw, eve, "users.revoke_session", **session)
        with pytest.raises(PermissionDenied):
            await call(sw, eve, "users.sessions", user_id="bob")
        by_token = dataclasses.replace(bob, token_id="t")
        with pytest.raises(PermissionDenied, match="logged in"):
            await call(sw, by_token, "users.sessions", user_id="me")

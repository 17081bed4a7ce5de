"""Workspaces: those of the caller, made once, and never over what is there."""

from __future__ import annotations

import dataclasses

import pytest

from stepwell.errors import InvalidInput, InvalidName, WorkspaceExists, WorkspaceNotFound
from tests.conftest import World
from tests.operations.people import HERE, LOCAL, PASSWORD, call, join, keeper_of
from tests.operations.support import document, outcomes


async def test_who_makes_a_workspace_owns_it(world: World) -> None:
    async with world() as sw:
        ada = await join(sw, "ada", password=PASSWORD)
        made = await call(sw, ada, "workspaces.create", id="team-7", title="Team 7")
        assert (made.id, made.title) == ("team-7", "Team 7")
        keeper = keeper_of(sw)
        login = await keeper.login("ada", PASSWORD, HERE)
        found = await keeper.by_session(login.cookie, "team-7")
        assert (found.workspace_id, found.caller.permission) == ("team-7", "own")
        listed = await call(sw, ada, "workspaces.list")
        assert [each.id for each in listed] == ["default", "team-7"]
        assert await call(sw, ada, "workspaces.get", workspace_id="team-7") == made
        with pytest.raises(InvalidName):
            await call(sw, ada, "workspaces.create", id="Team/8")
        assert (await call(sw, ada, "workspaces.create", id="plain")).title == "plain"


async def test_a_workspace_that_nobody_would_own_is_not_made(world: World) -> None:
    async with world() as sw:
        with pytest.raises(InvalidInput, match="Make it at a server"):
            await call(sw, LOCAL, "workspaces.create", id="plain")
        assert await sw.store.access.workspace("plain") is None


async def test_a_workspace_that_is_in_use_cannot_be_made_ones_own(world: World) -> None:
    async with world() as sw, world(workspace="used") as used:
        ada = await join(sw, "ada")
        await used.definitions.publish(document())
        made, errors = await outcomes(
            call(sw, ada, "workspaces.create", id="default"),
            call(sw, ada, "workspaces.create", id="used"),
            *(call(sw, ada, "workspaces.create", id="new") for _ in range(3)),
        )
        assert [each.id for each in made] == ["new"]
        assert [type(error) for error in errors] == [WorkspaceExists] * 4
        bob = await join(used, "bob")  # by whoever has the store
        assert [each.id for each in await call(used, bob, "workspaces.list")] == ["used"]


async def test_workspaces_of_others_are_not_found(world: World) -> None:
    async with world() as sw, world(workspace="other") as other:
        ada = await join(sw, "ada")
        await join(other, "eve")
        assert [each.id for each in await call(sw, ada, "workspaces.list")] == ["default"]
        for workspace_id in ("other", "none"):
            with pytest.raises(WorkspaceNotFound):
                await call(sw, ada, "workspaces.get", workspace_id=workspace_id)
            with pytest.raises(WorkspaceNotFound):
                await call(sw, ada, "workspaces.rename", workspace_id=workspace_id, title="Mine")
        found = await sw.store.access.workspace("other")
        assert found is not None
        assert found.title == "other"


async def test_a_token_knows_only_the_workspace_it_is_for(world: World) -> None:
    async with world() as sw:
        ada = await join(sw, "ada")
        await call(sw, ada, "workspaces.create", id="team-7")
        by_token = dataclasses.replace(ada, token_id="t")
        assert [each.id for each in await call(sw, by_token, "workspaces.list")] == ["default"]
        with pytest.raises(WorkspaceNotFound):
            await call(sw, by_token, "workspaces.get", workspace_id="team-7")


async def test_a_workspace_is_renamed_from_inside(world: World) -> None:
    async with world() as sw:
        ada = await join(sw, "ada")
        renamed = await call(
            sw, ada, "workspaces.rename", workspace_id="default", title="Production"
        )
        assert renamed.title == "Production"
        assert await call(sw, ada, "workspaces.get", workspace_id="default") == renamed
        with pytest.raises(InvalidName):
            await call(sw, ada, "workspaces.rename", workspace_id="default", title=" ")

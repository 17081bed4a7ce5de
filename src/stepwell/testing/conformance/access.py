"""Workspaces, users, and what lets them in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from msgspec.structs import replace

from stepwell.errors import Overtaken
from stepwell.kernel.access import (
    AuditRecord,
    LinkRecord,
    MemberRecord,
    Role,
    SessionRecord,
    TokenRecord,
    UserRecord,
    WorkspaceRecord,
    is_live,
)
from stepwell.store import Store
from stepwell.testing.conformance.check import check
from stepwell.testing.samples import WORKSPACE, commit, start


async def user(
    store: Store, name: str, role: Role = "owner", workspace_id: str = WORKSPACE
) -> UserRecord:
    """A user whose id is the name, in a workspace."""
    made = UserRecord(name, name, None, store.clock.now())
    member = MemberRecord(workspace_id, name, role, made.created_at)
    await store.access.add_member(member, made)
    return made


def token(store: Store, token_id: str, user_id: str, **fields: Any) -> TokenRecord:
    now = store.clock.now()
    return TokenRecord(token_id, WORKSPACE, user_id, "ci", "hash", "run", now, **fields)


def session(store: Store, name: str, user_id: str, seconds: int = 60) -> SessionRecord:
    now = store.clock.now()
    return SessionRecord(f"hash of {name}", name, user_id, now, now + seconds)


async def refused(change: Awaitable[Any]) -> bool:
    try:
        await change
    except Overtaken:
        return True
    return False


async def roles(store: Store) -> dict[str, str]:
    return {each.user_id: each.role for _, each in await store.access.members(WORKSPACE)}


@check
async def of_those_who_begin_at_once_one_does(store: Store) -> None:
    now = store.clock.now()

    async def begin(number: int) -> bool:
        owner = UserRecord(f"u{number}", "owner", None, now)
        link = LinkRecord(f"h{number}", owner.id, now + 60)
        return await store.access.begin(WorkspaceRecord(WORKSPACE, "Default", now), owner, link)

    begun = await asyncio.gather(*(begin(number) for number in range(5)))
    assert sum(begun) == 1
    first = f"u{begun.index(True)}"
    assert await roles(store) == {first: "owner"}
    assert await store.access.workspace(WORKSPACE) == WorkspaceRecord(WORKSPACE, "Default", now)
    used = [await store.access.use_link(f"h{number}", now) for number in range(5)]
    assert [each.id for each in used if each is not None] == [first]
    other = UserRecord("another", "another", None, now)
    assert not await store.access.begin(
        WorkspaceRecord("another", "", now), other, LinkRecord("h", "another", now + 60)
    )


@check
async def a_workspace_is_made_once_and_never_over_what_is_there(store: Store) -> None:
    ada = await user(store, "ada")
    now = store.clock.now()
    made = WorkspaceRecord("new", "New", now)
    taken = await asyncio.gather(
        *(refused(store.access.add_workspace(made, ada.id)) for _ in range(3))
    )
    assert sorted(taken) == [False, True, True]
    await commit(store, start(store, "r", workspace_id="used"))
    assert await refused(store.access.add_workspace(replace(made, id="used"), ada.id))
    assert [each.id for each in await store.access.workspaces(ada.id)] == ["default", "new"]
    assert await store.access.workspaces("nobody") == []
    assert await store.access.rename_workspace("new", "Newer")
    assert not await store.access.rename_workspace("used", "Mine")
    assert await store.access.workspace("new") == replace(made, title="Newer")
    assert [each.id for each in await store.access.workspaces()] == ["default", "new"]


@check
async def a_user_is_changed_from_what_was_seen(store: Store) -> None:
    ada = await user(store, "ada")
    assert await refused(user(store, "ada")), "the name is taken"
    assert await store.access.user_named("ada") == ada == await store.access.user("ada")
    assert await store.access.user_named("nobody") is None
    changed = replace(ada, password_hash="secret", serial=2)
    await store.access.change_user(changed)
    assert await refused(store.access.change_user(replace(ada, serial=2)))
    assert await store.access.user("ada") == changed
    again = store.access.add_member(MemberRecord("other", "ada", "viewer"), replace(ada, serial=2))
    assert await refused(again), "somebody has changed the user"
    assert len(await store.access.memberships("ada")) == 1


@check
async def some_owner_remains(store: Store) -> None:
    for name in ("ada", "bob"):
        await user(store, name)
    access, now = store.access, store.clock.now()
    demoted = await asyncio.gather(
        *(
            refused(access.set_role(MemberRecord(WORKSPACE, name, "viewer")))
            for name in ("ada", "bob")
        )
    )
    assert sorted(demoted) == [False, True], "they demoted each other, and one was first"
    [last] = [name for name, role in (await roles(store)).items() if role == "owner"]
    assert await refused(access.remove_member(WORKSPACE, last, now))
    await access.set_role(MemberRecord(WORKSPACE, last, "owner"))
    await user(store, "eve")
    removed = await asyncio.gather(
        *(refused(access.remove_member(WORKSPACE, name, now)) for name in (last, "eve"))
    )
    assert sorted(removed) == [False, True]
    assert sorted((await roles(store)).values()) == ["owner", "viewer"]
    assert await refused(access.set_role(MemberRecord(WORKSPACE, "nobody", "owner")))


@check
async def who_is_removed_has_nothing_left(store: Store) -> None:
    for name in ("ada", "bob"):
        await user(store, name)
    access, now = store.access, store.clock.now()
    bob = await access.user("bob")
    assert bob is not None
    await access.add_member(MemberRecord("other", "bob", "viewer"), replace(bob, serial=2))
    await access.add_token(token(store, "t", "bob"))
    await access.add_session(session(store, "s", "bob"), 2)
    await access.add_link(LinkRecord("l", "bob", now + 60), 2)
    changes = access.changes
    await access.remove_member(WORKSPACE, "bob", now)
    assert access.changes > changes
    found = await access.token("t")
    assert found is not None
    assert found[0].revoked_at == now
    assert found[1].members == []
    assert [each.id for each in await access.sessions("bob", now)] == ["s"], "there is the other"
    await access.remove_member("other", "bob", now)
    assert await access.sessions("bob", now) == []
    assert await access.use_link("l", now) is None
    gone = await access.user("bob")
    assert gone is not None
    assert gone.disabled_at == now


@check
async def who_is_removed_everywhere_at_once_has_nothing_left(store: Store) -> None:
    await user(store, "ada", "owner")
    access, now = store.access, store.clock.now()
    for number in range(10):
        name = f"bob{number}"
        bob = await user(store, name)
        await access.add_member(MemberRecord("other", name, "viewer"), replace(bob, serial=2))
        await access.add_session(session(store, f"s{number}", name), 2)
        await asyncio.gather(
            access.remove_member(WORKSPACE, name, now), access.remove_member("other", name, now)
        )
        assert await access.sessions(name, now) == []
        gone = await access.user(name)
        assert gone is not None
        assert gone.disabled_at == now


@check
async def who_belongs_no_more_is_given_no_token(store: Store) -> None:
    for name in ("ada", "bob"):
        await user(store, name)
    access = store.access
    await access.remove_member(WORKSPACE, "bob", store.clock.now())
    assert await refused(access.add_token(token(store, "t", "bob")))
    assert await access.token("t") is None


@check
async def a_token_comes_with_its_user_and_role(store: Store) -> None:
    access, now = store.access, store.clock.now()
    ada = await user(store, "ada", "admin")
    await user(store, "bob")
    made = token(store, "t1", "ada", expires_at=now + 60)
    await access.add_token(made)
    await access.add_token(token(store, "t2", "bob"))
    found = await access.token("t1")
    assert found is not None
    assert found[0] == made
    assert found[1].user == ada
    assert found[1].members == [MemberRecord(WORKSPACE, "ada", "admin", now)]
    assert await access.token("t3") is None
    assert await access.tokens(WORKSPACE, "ada") == [made]
    assert [each.id for each in await access.tokens(WORKSPACE)] == ["t2", "t1"]
    await access.touch_token("t1", now, now - 60)
    await access.touch_token("t1", now + 5, now - 55)
    assert not await access.revoke_token("another", "t1", now)
    assert await access.revoke_token(WORKSPACE, "t1", now)
    assert not await access.revoke_token(WORKSPACE, "t1", now)
    assert await access.tokens(WORKSPACE, "ada") == [
        replace(made, last_used_at=now, revoked_at=now)
    ]
    await access.prune_tokens(WORKSPACE, now)
    assert len(await access.tokens(WORKSPACE)) == 2
    await access.prune_tokens(WORKSPACE, now + 1)
    assert [each.id for each in await access.tokens(WORKSPACE)] == ["t2"]


@check
async def a_session_comes_with_all_that_its_user_is(store: Store) -> None:
    access, now = store.access, store.clock.now()
    ada = await user(store, "ada")
    await access.add_workspace(WorkspaceRecord("new", "New", now), "ada")
    for name, seconds in (("a", 60), ("b", 60), ("c", 60), ("old", -1)):
        await access.add_session(session(store, name, "ada", seconds), ada.serial)
    found = await access.session("hash of a")
    assert found is not None
    assert found[0] == session(store, "a", "ada")
    assert is_live(found[0], now)
    assert found[1].user == ada
    assert [each.workspace_id for each in found[1].members] == ["default", "new"]
    assert [each.id for each in await access.sessions("ada", now)] == ["c", "b", "a"]
    assert await access.end_sessions("ada", now, only="a")
    assert not await access.end_sessions("ada", now, only="a")
    assert not await access.end_sessions("bob", now, only="b")
    assert await access.end_sessions("ada", now, but="c")
    assert [each.id for each in await access.sessions("ada", now)] == ["c"]
    assert await access.end_sessions("ada", now)
    ended = await access.session("hash of a")
    assert ended is not None
    assert not is_live(ended[0], now)
    await access.add_session(session(store, "d", "ada"), ada.serial)
    assert await access.session("hash of old") is None, "it is forgotten by the next login"


@check
async def a_link_is_used_once_and_in_time(store: Store) -> None:
    access, now = store.access, store.clock.now()
    ada = await user(store, "ada")
    for name, at in (("good", now + 1), ("late", now), ("void", now + 1)):
        await access.add_link(LinkRecord(name, "ada", at), ada.serial)
    used = await asyncio.gather(*(access.use_link("good", now) for _ in range(5)))
    assert [each for each in used if each is not None] == [ada]
    assert await access.use_link("late", now) is None
    assert await access.use_link("none", now) is None
    await access.change_password(replace(ada, password_hash="new", serial=2), now)
    assert await access.use_link("void", now) is None


@check
async def nobody_logs_in_as_who_was_changed_meanwhile(store: Store) -> None:
    access, now = store.access, store.clock.now()
    ada = await user(store, "ada")
    for name in ("here", "there"):
        await access.add_session(session(store, name, "ada"), ada.serial)
    changed = replace(ada, password_hash="new", serial=2)
    in_time = [
        await refused(change)
        for change in (
            access.change_password(changed, now, "here"),
            access.change_password(changed, now),
            access.add_session(session(store, "late", "ada"), ada.serial),
            access.add_link(LinkRecord("late", "ada", now + 60), ada.serial),
            access.add_session(session(store, "new", "ada"), changed.serial),
            access.add_link(LinkRecord("new", "ada", now + 60), changed.serial),
        )
    ]
    assert in_time == [False, True, True, True, False, False]
    assert [each.id for each in await access.sessions("ada", now)] == ["new", "here"]
    assert await access.use_link("late", now) is None
    assert await access.use_link("new", now) == changed
    for number in range(20):
        logging_in = access.add_session(session(store, f"{number}", "ada"), changed.serial)
        changed = replace(changed, serial=changed.serial + 1)
        await asyncio.gather(refused(logging_in), access.change_password(changed, now))
        assert await access.sessions("ada", now) == [], "it came before, or not at all"


@check
async def the_audit_log_is_read_in_pages(store: Store) -> None:
    now = store.clock.now()
    rows = [
        AuditRecord(f"a{n}", WORKSPACE, now, "ada", None, "x.y", "z", {"n": [n]}, f"req{n}")
        for n in range(4)
    ]
    for row in (*rows, replace(rows[0], workspace_id="another")):
        await store.access.write_audit(row)
    assert await store.access.audit(WORKSPACE, None, 3) == rows[:0:-1]
    assert await store.access.audit(WORKSPACE, "a1", 3) == [rows[0]]

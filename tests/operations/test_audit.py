"""The audit log: what was changed, by whom, in pages, and nothing that is secret."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.app.doorkeeper import Admission
from stepwell.catalog import operations
from stepwell.errors import InvalidCursor
from stepwell.kernel.presenting import present
from tests.conftest import World
from tests.operations.people import LOCAL, PASSWORD, call, join, keeper_of


async def test_the_log_is_read_from_the_newest_on_in_pages(world: World) -> None:
    async with world() as sw, world(workspace="other") as other:
        ada, keeper = await join(sw, "ada"), keeper_of(sw)
        admission = Admission("default", ada, None)
        for number in range(5):
            name = {"name": f"definition-{number}"}
            await keeper.record(admission, operations()["definitions.delete"], name)
        page = await call(sw, ada, "audit.list", limit=2)
        assert [each.subject for each in page.items] == ["definition-4", "definition-3"]
        subjects = []
        while page.next_cursor is not None:
            page = await call(sw, ada, "audit.list", limit=2, cursor=page.next_cursor)
            subjects += [each.subject for each in page.items]
        assert subjects == ["definition-2", "definition-1", "definition-0"]
        assert (await call(other, LOCAL, "audit.list")).items == []
        for cursor in ("nonsense", "\0"):
            with pytest.raises(InvalidCursor):
                await call(sw, ada, "audit.list", cursor=cursor)


async def test_no_password_gets_into_the_log(world: World) -> None:
    async with world() as sw:
        ada, keeper = await join(sw, "ada"), keeper_of(sw)
        admission = Admission("default", ada, None)
        given: list[tuple[str, dict[str, Any]]] = [
            ("users.create", {"name": "bob", "role": "viewer", "password": PASSWORD}),
            (
                "users.set_password",
                {"user_id": "bob", "password": PASSWORD + "!", "current": PASSWORD},
            ),
        ]
        for name, arguments in given:
            declared = operations()[name]
            assert declared.audited
            result = await declared.call(sw, ada, arguments)
            await keeper.record(admission, declared, arguments, result=result)
        found = (await call(sw, ada, "audit.list")).items
        assert PASSWORD not in str(present(found))
        bob = await sw.store.access.user_named("bob")
        assert bob is not None
        assert [(each.subject, each.details) for each in found] == [
            ("bob", {}), (bob.id, {"name": "bob", "role": "viewer"}),
        ]  # fmt: skip
        assert {each.actor for each in found} == {"ada"}

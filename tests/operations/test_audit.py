"""The audit log: what was changed, by whom, in pages, and nothing that is secret."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stepwell.app.doorkeeper import Admission
from stepwell.catalog import operations
from stepwell.errors import InvalidCursor
from stepwell.kernel.presenting import is_hidden, present
from stepwell.operation import TIDY_UP
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
        with pytest.raises(InvalidCursor):
            await call(sw, ada, "audit.list", cursor="nonsense")


def test_every_parameter_that_is_a_secret_is_hidden() -> None:
    like = re.compile("password|secret|token|current|value|cookie|link|hash$")
    # What they are called is no secret, nor is what is in a definition.
    open_ones = {"token_id", "base_hash", "seen_hash"}
    found = {
        (operation.name, name): is_hidden(parameter.type)
        for operation in operations().values()
        for name, parameter in operation.parameters.items()
        if like.search(name) and name not in open_ones
    }
    assert {("gates.answer", "token"), ("secrets.set", "value")} <= found.keys()
    assert [each for each, hidden in found.items() if not hidden] == []


async def test_a_row_names_what_was_published_and_synced(world: World) -> None:
    async with world() as sw:
        ada, keeper = await join(sw, "ada"), keeper_of(sw)
        admission = Admission("default", ada, None)
        one, two = ({**TIDY_UP, "name": name} for name in ("one", "two"))
        anew = {**two, "policy": {"timeout": "1h"}}
        for name, arguments in [
            ("definitions.publish", {"document": one}),
            ("definitions.sync", {"document": two}),
            ("definitions.sync_all", {"documents": [one, anew], "apply": True}),
            ("events.emit", {"type": "paid", "payload": {"a": "secret"}}),
        ]:
            declared = operations()[name]
            result = await declared.call(sw, ada, arguments)
            await keeper.record(admission, declared, arguments, result=result)
        found = (await call(sw, ada, "audit.list")).items
        assert [(each.subject, each.details) for each in found] == [
            ("paid", {}), ("two", {"apply": True}), ("two", {}), ("one", {}),
        ]  # fmt: skip


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
            assert declared.is_recorded
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

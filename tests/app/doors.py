"""A store with a doorkeeper, and people to let in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stepwell.app.doorkeeper import Doorkeeper
from stepwell.catalog import store_for
from stepwell.kernel.access import (
    MemberRecord,
    Permission,
    Role,
    TokenRecord,
    UserRecord,
    hash_of,
    new_token,
)
from stepwell.kernel.ids import Ids
from stepwell.kernel.passwords import hashed
from stepwell.store import Store
from stepwell.testing.clock import FakeClock

PASSWORD = "correct horse battery"
HERE = "203.0.113.9"


class Doors:
    """A process that lets people in."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store, self.access, self.clock = store, store.access, clock
        self.ids = Ids(clock)
        self.keeper = Doorkeeper(store, clock, self.ids)

    async def user(
        self, name: str, role: Role = "owner", workspace: str = "default",
        password: str | None = None,
    ) -> UserRecord:  # fmt: skip
        """A new user in a workspace."""
        hash = None if password is None else await hashed(password)
        made = UserRecord(self.ids.new(), name, hash, self.clock.now())
        await self.access.add_member(MemberRecord(workspace, made.id, role, self.clock.now()), made)
        return made

    async def token(
        self, user: UserRecord, permission: Permission = "own", expires_at: int | None = None
    ) -> tuple[str, str]:
        """The id and the text of a new token."""
        token_id = self.ids.new()
        text, now = new_token(token_id), self.clock.now()
        await self.access.add_token(
            TokenRecord(
                token_id, "default", user.id, "ci", hash_of(text), permission, now, expires_at
            )
        )
        return token_id, text


@asynccontextmanager
async def opened(url: str, clock: FakeClock) -> AsyncIterator[Doors]:
    store = store_for(url, clock)
    await store.open()
    try:
        yield Doors(store, clock)
    finally:
        await store.close()

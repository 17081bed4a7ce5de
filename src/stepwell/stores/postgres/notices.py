"""Telling other processes, and hearing from them: LISTEN and NOTIFY.

A notice is empty when a run has become due, `!` when a trigger may have to fire, or names a run
that was stopped and the worker that held it. Notices may be lost and may come late, so they only
ever save time.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import asyncpg

from stepwell.errors import StoreUnavailable
from stepwell.kernel.changes import Committed
from stepwell.store import Heard, Notice
from stepwell.stores.postgres.address import FIRST_PAUSE, LONGEST_PAUSE, Address
from stepwell.stores.postgres.connections import Pool

CHANNEL = "stepwell"
# The notice that some trigger may have to fire; no run has such an id.
FIRING = "!"
# What is announced within this time after a notice goes out with the next one.
GATHER_SECONDS = 0.005
FLUSH_SECONDS = 2.0


class Notices:
    """One store's side of the conversation."""

    def __init__(self, address: Address, pool: Pool) -> None:
        self._address = address
        self._pool = pool
        self._notice: Notice | None = None
        self._listener: asyncio.Task[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._to_send: dict[str, None] = {}

    def watch(self, notice: Notice) -> None:
        if self._listener is None:
            self._notice = notice
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    def announce(self, committed: Committed) -> None:
        if committed.due:
            self._to_send[""] = None
        if committed.firing:
            self._to_send[FIRING] = None
        for run_id, owner in committed.stopped:
            self._to_send[f"{run_id} {owner or ''}"] = None
        if self._to_send and self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Stop listening; what is still to be said is said first."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
            self._listener = None
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=FLUSH_SECONDS)
            if self._sender is not None:
                self._sender.cancel()

    async def _send(self) -> None:
        try:
            while self._to_send:
                notices, self._to_send = list(self._to_send), {}
                with contextlib.suppress(StoreUnavailable):
                    await self._pool.run(partial(_notify, notices=notices))
                await asyncio.sleep(GATHER_SECONDS)
        finally:
            self._sender = None

    async def _listen(self) -> None:
        """Keep a connection that listens, whatever happens to it."""
        pause = FIRST_PAUSE
        while True:
            gone = asyncio.Event()
            with contextlib.suppress(StoreUnavailable):
                db = await self._address.connect()
                try:
                    db.add_termination_listener(lambda _, gone=gone: gone.set())
                    await db.add_listener(CHANNEL, self._heard)
                    pause = FIRST_PAUSE
                    self._tell(Heard(firing=True))  # whatever was said before, nobody heard here
                    await gone.wait()
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    pass
                finally:
                    db.terminate()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _heard(self, _: Any, pid: int, __: str, payload: object) -> None:
        if pid in self._pool.pids:
            return
        run_id, _, owner = str(payload).partition(" ")
        if run_id == FIRING:
            self._tell(Heard(firing=True))
        else:
            self._tell(Heard((run_id, owner or None) if run_id else None))

    def _tell(self, heard: Heard) -> None:
        if self._notice is not None:
            self._notice(heard)


async def _notify(db: asyncpg.Connection, notices: list[str]) -> None:
    # A notice that is lost with the server does no harm, so nobody waits for the disk.
    await db.fetch(
        """SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, n)
           FROM unnest($2::text[]) n""",
        CHANNEL,
        notices,
    )

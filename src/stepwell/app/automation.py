"""What starts runs by itself: triggers in time, for events, and for requests from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property

from stepwell.app.operations import Operations
from stepwell.app.premises import Premises
from stepwell.engine.housekeeping import Housekeeping, Service
from stepwell.engine.outbox import Outbox
from stepwell.engine.pruner import Pruner
from stepwell.engine.receiver import Received, Receiver
from stepwell.engine.reconciler import Reconciler
from stepwell.engine.ticker import Ticker
from stepwell.errors import InvalidInput, StepwellError
from stepwell.kernel.names import show
from stepwell.telemetry import Telemetry
from stepwell.trigger import Request


class Automation(Operations):
    """The triggers of a workspace, at work."""

    _premises: Premises
    _telemetry: Telemetry
    # How many are inside `housekeeping`.
    _keeping = 0

    async def receive(
        self, path: str, *, method: str = "POST",
        headers: Mapping[str, str] | Sequence[tuple[str | bytes, str | bytes]] = (),
        body: bytes = b"", query: str | bytes = b"",
    ) -> Received:  # fmt: skip
        """Take a request to the webhook with that path, from its raw bytes.

        `headers` are a mapping, or pairs, of which several may have one name. The run that it
        starts is durable when this returns, and not waited for. Raises what was wrong with the
        request; that is also listed with the refusals of the trigger.
        """
        self._writer.check_open()
        if not isinstance(body, bytes | bytearray | memoryview):
            raise InvalidInput(f"body is bytes, as they came, not {show(body)}.")
        if not isinstance(query, str | bytes):
            raise InvalidInput(f"query is what stands behind the ?, not {show(query)}.")
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        request = Request(method, pairs, bytes(body), query)
        return await self._receiver.receive(path.removeprefix("/"), request)

    async def turn_away(self, path: str, error: StepwellError) -> None:
        """Refuse a request to the webhook with that path, whose body was too large to be read.

        Raises the error, or what else speaks against it; lists that as `receive` does.
        """
        self._writer.check_open()
        await self._receiver.receive(path.removeprefix("/"), error)

    @asynccontextmanager
    async def housekeeping(self) -> AsyncIterator[None]:
        """Start what triggers start, and delete what is old, while inside; workers do so too."""
        self._writer.check_open()
        self.store.watch(self._premises.dispatcher.noticed)
        keeper = self._crew.housekeeping
        if keeper is None:
            firing = (self.store, self._workspace, self._firer, self._telemetry)
            reconciler = Reconciler(
                self.store, self._workspace, self._changed,
                lambda: bool(self._crew.workers),
            )  # fmt: skip
            services: list[Service] = [Ticker(*firing), Outbox(*firing), reconciler]
            # What is old is deleted in all workspaces at once, so one of them does it for the rest.
            if self._premises.dispatcher.crews[0] is self._crew:
                services.append(Pruner(self.store, self._ids.new(), self._telemetry))
            keeper = Housekeeping(self.store.clock, services)
            self._crew.housekeeping = keeper
            keeper.start()
        self._keeping += 1
        try:
            yield
        finally:
            self._keeping -= 1
            if self._keeping == 0:
                self._crew.housekeeping = None
                await keeper.stop()

    @cached_property
    def _receiver(self) -> Receiver:
        return Receiver(
            self.store, self._workspace, self._writer, self._starter, self._firer, self._vault,
            self._tally, self._settings.plan_of(self._workspace), self._crew.claim_soon,
        )  # fmt: skip

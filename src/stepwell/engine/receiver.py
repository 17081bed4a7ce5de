"""The receiver: requests to webhooks, from their raw bytes to a run that is durable."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from stepwell.engine.firing import Firer
from stepwell.engine.starting import Starter
from stepwell.engine.tally import Tally
from stepwell.engine.vault import Vault
from stepwell.engine.writer import Writer
from stepwell.errors import (
    RateLimited,
    SecretNotFound,
    StepwellError,
    StoreUnavailable,
    TriggerDisabled,
    TriggerNotFound,
)
from stepwell.kernel.clock import SECOND
from stepwell.kernel.plans import Plan
from stepwell.kernel.records import TriggerRecord
from stepwell.store import Store
from stepwell.trigger import Delivery, Rate, Request


class Received(msgspec.Struct, frozen=True):
    """What became of a request."""

    # The run it belongs to, and whether it was started by this request and no earlier one.
    run_id: str | None
    created: bool
    # How many events it has reported.
    events: int = 0


class Receiver:
    """Takes the requests of a workspace's webhooks."""

    def __init__(
        self, store: Store, workspace_id: str, writer: Writer, starter: Starter, firer: Firer,
        vault: Vault, tally: Tally, plan: Plan, claim_soon: Callable[[], None],
    ) -> None:  # fmt: skip
        self._triggers = store.triggers
        self._clock = store.clock
        self._workspace_id = workspace_id
        self._writer = writer
        self._starter = starter
        self._firer = firer
        self._vault = vault
        self._tally = tally
        self._plan = plan
        self._claim_soon = claim_soon
        # Buckets that were empty, and until when: nobody has to ask for them again.
        self._empty: dict[str, int] = {}

    async def receive(self, path: str, request: Request) -> Received:
        """Start the run of a request, or say why not; what was refused is also written down."""
        trigger = None
        if path.isprintable():  # no other can be stored
            trigger = await self._triggers.trigger_at(self._workspace_id, path)
        if trigger is None:
            raise TriggerNotFound("There is no webhook with this path.")
        try:
            return await self._receive(trigger, request)
        except StoreUnavailable:
            raise
        except StepwellError as error:
            self._tally.refused(trigger, self._firer.refusal(trigger, error, self._clock.now()))
            raise

    async def _receive(self, trigger: TriggerRecord, request: Request) -> Received:
        if not trigger.active:
            raise TriggerDisabled("This webhook is disabled.")
        kind, config = self._firer.read(trigger)
        secrets = await self._secrets(kind.secrets(config))
        delivery = kind.receive(config, request, secrets, self._clock.now())
        if (rate := kind.rate(config)) is not None:
            await self._take(f"webhook:{self._workspace_id}/{trigger.id}", rate, "This webhook")
        if (most := self._plan.webhooks_per_minute) is not None:
            bucket = f"webhooks:{self._workspace_id}/{trigger.definition}"
            await self._take(bucket, Rate(most, 60), f"The plan {self._plan.name!r}")
        return await self._start(trigger, delivery)

    async def _start(self, trigger: TriggerRecord, delivery: Delivery) -> Received:
        changes = []
        if delivery.starts:
            changes.append(
                await self._firer.prepare(
                    trigger, delivery.payload, delivery.key, delivery=delivery.key
                )
            )
        once = delivery.key is not None
        events = [self._starter.event(e.type, e.payload, e.key, once) for e in delivery.events]
        if not changes and not events:
            return Received(None, False)
        submitted = self._writer.submit(*changes, *events)
        self._claim_soon()
        outcomes = await submitted
        if not delivery.starts:
            return Received(None, any(outcomes), sum(outcomes))
        (run_id, created), *told = outcomes
        self._tally.fired(trigger, run_id)
        return Received(run_id, created, sum(told))

    async def _secrets(self, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        known = await self._vault.secrets()
        for name in names:
            if name not in known:
                raise SecretNotFound(
                    f"The secret {name!r} that requests are signed with is not there."
                )
        return [known[name] for name in names]

    async def _take(self, bucket: str, rate: Rate, who: str) -> None:
        now = self._clock.now()
        wait = max(self._empty.get(bucket, 0) - now, 0)
        if not wait:
            self._empty.pop(bucket, None)
            wait = await self._triggers.take(bucket, rate.limit, int(rate.seconds * SECOND), now)
        if wait:
            self._empty[bucket] = now + wait
            raise RateLimited(
                f"{who} allows {rate.limit:,} requests in {rate.seconds:g} s. Try again in "
                f"{math.ceil(wait / SECOND)} s.",
                limit=rate.limit, period=rate.seconds, retry_after=wait / SECOND,
            )  # fmt: skip

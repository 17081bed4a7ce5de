"""The receiver: requests to webhooks, from their raw bytes to a run that is durable."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stepwell.engine.firing import Firer, alone
from stepwell.engine.sharing import SharedReads
from stepwell.engine.starting import Starter
from stepwell.engine.tally import Tally
from stepwell.engine.vault import Vault
from stepwell.engine.writer import Writer
from stepwell.errors import (
    DefinitionDisabled,
    RateLimited,
    RequestUnfit,
    SecretKeyInvalid,
    SecretNotFound,
    SignatureInvalid,
    StepwellError,
    StoreUnavailable,
    TriggerDisabled,
    TriggerInvalid,
    TriggerNotFound,
    WebhookUnready,
)
from stepwell.kernel.clock import SECOND, TimeLimit
from stepwell.kernel.names import bounded
from stepwell.kernel.plans import Plan
from stepwell.kernel.records import TriggerRecord
from stepwell.kernel.tracing import TRACEPARENT
from stepwell.store import Store
from stepwell.trigger import Delivery, Rate, Request

# How long a sender waits for an answer.
BUDGET_SECONDS = 3.0
# Faults of the webhook itself: the sender is told that there is one, and no more.
_OWN = (SecretNotFound, SecretKeyInvalid, TriggerInvalid)
# Why a signature cannot be checked, whoever has signed: these are such faults too.
_UNCHECKED = ("no_secret", "bad_config")


class Received(msgspec.Struct, frozen=True):
    """What became of a request."""

    # The run it belongs to, and whether it was started by this request and no earlier one.
    run_id: str | None
    created: bool
    # How many events it has reported.
    events: int = 0
    # Why neither a run nor an event came of it.
    note: str | None = None
    # Nothing came of it, and the sender wants to hear just this: answer 200 with it.
    challenge: str | None = None


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
        self._at_path = SharedReads(self._read_trigger)
        # Buckets that were empty, and until when: nobody has to ask for them again.
        self._empty: dict[str, int] = {}

    async def receive(self, path: str, request: Request | StepwellError) -> Received:
        """Start the run of a request, or say why not; what was refused is also written down.

        One that was not even read is refused for the error given in its place.
        """
        try:
            async with TimeLimit(self._clock, BUDGET_SECONDS) as limit:
                return await self._answer(path, request)
        except TimeoutError:
            if not limit.passed:
                raise
            # What was submitted may still become durable; the same delivery will find it then.
            raise StoreUnavailable(
                f"The store has not answered within {BUDGET_SECONDS:g} s. Send the request again."
            ) from None

    async def _read_trigger(self, path: str) -> TriggerRecord | None:
        return await self._triggers.trigger_at(self._workspace_id, path)

    async def _answer(self, path: str, request: Request | StepwellError) -> Received:
        trigger = None
        if path.isprintable():  # no other can be stored
            trigger = await self._at_path.get(path)
        if trigger is None:
            raise TriggerNotFound("There is no webhook with this path.")
        try:
            return await self._receive(trigger, request)
        except StoreUnavailable:
            raise
        except StepwellError as error:
            refusal = self._firer.refusal(trigger, error, self._clock.now())
            is_strangers = error is request or _is_strangers(error)
            self._tally.refused(trigger, refusal, counts=not is_strangers)
            if isinstance(error, _OWN):
                raise WebhookUnready(
                    "This webhook is not set up rightly and can take nothing. Its refusals say why."
                ) from error
            if isinstance(error, DefinitionDisabled):
                raise DefinitionDisabled("This webhook is disabled.") from error
            raise

    async def _receive(self, trigger: TriggerRecord, request: Request | StepwellError) -> Received:
        if not trigger.active:
            raise TriggerDisabled("This webhook is disabled.")
        if isinstance(request, StepwellError):
            raise request
        with alone(trigger):
            kind, config = self._firer.read(trigger)
            names = kind.secrets(config)
        secrets = await self._secrets(names)
        with alone(trigger):
            delivery = kind.receive(config, request, secrets, self._clock.now())
            rate = kind.rate(config)
        if delivery.challenge is not None:
            return Received(None, False, challenge=delivery.challenge)
        if rate is not None:
            await self._take(f"webhook:{self._workspace_id}/{trigger.id}", rate, "This webhook")
        if (most := self._plan.webhooks_per_minute) is not None:
            if most < 1:
                raise self._plan.refusal("webhooks_per_minute", "webhook requests per minute")
            bucket = f"webhooks:{self._workspace_id}/{trigger.definition}"
            facts = self._plan.facts("webhooks_per_minute")
            await self._take(bucket, Rate(most, 60), f"The plan {self._plan.name!r}", **facts)
        return await self._start(trigger, delivery, _traceparent(request))

    async def _start(
        self, trigger: TriggerRecord, delivery: Delivery, traceparent: str | None
    ) -> Received:
        changes = []
        if delivery.starts:
            changes.append(
                await self._firer.prepare(
                    trigger,
                    delivery.payload,
                    delivery.key,
                    traceparent,
                    delivery=delivery.key,
                )
            )
        once = delivery.key is not None
        events = [
            self._starter.event(
                each.type, each.payload, bounded(f"{trigger.id}:{each.key}"), once,
                traceparent=traceparent,
            )
            for each in delivery.events
        ]  # fmt: skip
        if not changes and not events:
            return Received(None, False, note="The request was taken, and reports no event.")
        # Another than the submitted one: who waits no longer must not call off what becomes of it.
        told_us: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._writer.submit(*changes, *events).add_done_callback(
            lambda done: self._fired(trigger, delivery, done, told_us)
        )
        self._claim_soon()
        outcomes = await told_us
        if not delivery.starts:
            return Received(None, any(outcomes), sum(outcomes))
        (run_id, created), *told = outcomes
        return Received(run_id, created, sum(told))

    def _fired(
        self, trigger: TriggerRecord, delivery: Delivery, done: asyncio.Future[list[Any]],
        waiter: asyncio.Future[list[Any]],
    ) -> None:  # fmt: skip
        """Note that a trigger has fired, also if its sender did not wait for it."""
        error = done.exception()
        if not waiter.done():
            if error is None:
                waiter.set_result(done.result())
            else:
                waiter.set_exception(error)
        if error is None:
            self._tally.fired(trigger, done.result()[0][0] if delivery.starts else None)

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

    async def _take(self, bucket: str, rate: Rate, who: str, **facts: Any) -> None:
        now = self._clock.now()
        # Another rate is another bucket: it does not have to wait until the old one is full.
        bucket = f"{bucket}:{rate.limit}/{rate.seconds:g}"
        wait, period = self._empty.get(bucket, 0) - now, int(rate.seconds * SECOND)
        if not 0 < wait <= period:  # it is not empty for longer, unless the clock was set back
            self._empty.pop(bucket, None)
            wait = await self._triggers.take(bucket, rate.limit, period, now)
        if wait:
            self._empty[bucket] = now + wait
            raise RateLimited(
                f"{who} allows {rate.limit:,} requests in {rate.seconds:g} s. Try again in "
                f"{math.ceil(wait / SECOND)} s.",
                **({"limit": rate.limit, "period": rate.seconds} | facts),
                retry_after=wait / SECOND,
            )


def _is_strangers(error: StepwellError) -> bool:
    """Whether anybody who knows the path could have been refused so: no fault of the trigger."""
    if isinstance(error, SignatureInvalid):
        return error.details.get("reason") not in _UNCHECKED
    return isinstance(error, RequestUnfit)


def _traceparent(request: Request) -> str | None:
    """The trace that a request says it belongs to."""
    for name, value in request.headers:
        text = name if isinstance(name, str) else name.decode("latin-1")
        if text.lower() == TRACEPARENT:
            return value if isinstance(value, str) else value.decode("latin-1")
    return None

"""Paying: a service that fails now and then, and a charge that must not happen twice.

Run it: `python -m examples.payment`.
"""

from __future__ import annotations

import asyncio
import itertools

from stepwell import NonRetryable, Retry, Stepwell, workflow

_calls = itertools.count(1)


async def quote(currency):
    """Fails twice, then works, as services do."""
    if currency not in ("EUR", "USD"):
        raise NonRetryable(f"there is no rate for {currency}")
    if next(_calls) < 3:
        raise ConnectionError("the rate service did not answer")
    return 1.08


async def charge(order_id, amount):
    """Moves money. A second call with the same order would move it again."""
    return {"order": order_id, "charged": amount}


@workflow(name="pay-order")
async def pay(ctx, input):
    rate = await ctx.step(
        "quote", quote, input["currency"],
        retry=Retry(attempts=5, backoff="exponential", base="50ms", max="1s", jitter=0.2),
    )  # fmt: skip
    # The intent is written down before the call. If the worker dies in the middle, nobody
    # knows whether money moved, and the run waits for someone who does:
    #   stepwell runs signal RUN resolve:charge '{"action": "retry"}'
    return await ctx.step(
        "charge", charge, input["order"], round(input["amount"] * rate, 2),
        once=True, on_unknown="ask",
    )  # fmt: skip


async def main():
    async with Stepwell(workflows=[pay]) as sw, sw.worker():
        run = await sw.start("pay-order", {"order": 7, "amount": 100, "currency": "EUR"})
        print(await run.result(timeout=30))
        for step in await sw.steps(run.id):
            print(f"{step.key}: {step.status} after {step.attempts} attempt(s)")


if __name__ == "__main__":
    asyncio.run(main())

"""Many things at once: steps and child runs side by side, each recorded on its own.

Run it: `python -m examples.fan_out`.
"""

from __future__ import annotations

import asyncio

from stepwell import Stepwell, workflow


def measure(text):
    return len(text)


@workflow(name="measure-text")
async def measure_text(ctx, input):
    """The child: a run of its own, with its own journal, retries and status."""
    return await ctx.step("measure", measure, input["text"])


@workflow(name="measure-all")
async def measure_all(ctx, input):
    """After a crash only what had not been recorded is done again."""
    texts = input["texts"]
    by_steps = asyncio.gather(
        *(ctx.step(f"measure-{n}", measure, text) for n, text in enumerate(texts))
    )
    by_children = asyncio.gather(
        *(
            ctx.run_child(f"child-{n}", "measure-text", {"text": text})
            for n, text in enumerate(texts)
        )
    )
    return {"steps": sum(await by_steps), "children": sum(await by_children)}


async def main():
    async with Stepwell(workflows=[measure_all, measure_text]) as sw, sw.worker():
        run = await sw.start("measure-all", {"texts": ["one", "three", "five", "eleven"]})
        print(await run.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())

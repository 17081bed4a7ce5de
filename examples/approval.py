"""A person decides: the run waits, for days if need be, and holds no process meanwhile.

Run it: `python -m examples.approval`. With a worker somewhere, the decision can come from any
shell:

    stepwell runs signal RUN decision '{"approved": true, "by": "grace"}'
"""

from __future__ import annotations

import asyncio

from stepwell import Stepwell, workflow


def write_report(month):
    return f"report for {month}"


def publish(report, approved_by):
    return f"{report}, approved by {approved_by}"


@workflow(name="publish-report")
async def publish_report(ctx, input):
    report = await ctx.step("write", write_report, input["month"])
    decision = await ctx.wait_for_event("decision", timeout="3d")
    if decision is None:
        return {"published": False, "reason": "nobody decided in time"}
    if not decision["approved"]:
        return {"published": False, "reason": f"refused by {decision['by']}"}
    text = await ctx.step("publish", publish, report, decision["by"])
    return {"published": True, "text": text}


async def main():
    async with Stepwell(workflows=[publish_report]) as sw, sw.worker():
        run = await sw.start("publish-report", {"month": "May"})
        await sw.signal(run.id, "decision", {"approved": True, "by": "grace"})
        print(await run.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())

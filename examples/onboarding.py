"""Welcoming a user: a step, a pause of days or seconds, and a signal that may never come.

Run it on its own with `python -m examples.onboarding`, or leave the work to a worker:

    stepwell worker examples.onboarding:onboard
    stepwell runs start onboard-user '{"email": "ada@example.org", "delay": "10s"}'
    stepwell runs signal RUN verify '{"user_id": 42}'
"""

from __future__ import annotations

import asyncio

from stepwell import Retry, Stepwell, workflow


async def create_user(email):
    return {"id": 42, "email": email}


def send_mail(user, subject):
    """A plain function: it runs in a thread, so it may block."""
    return f"{subject} → {user['email']}"


@workflow(name="onboard-user", retention="30d")
async def onboard(ctx, input):
    user = await ctx.step("create-user", create_user, input["email"])
    # No process is held while the run sleeps; a restart in between changes nothing.
    await ctx.sleep("welcome-delay", input.get("delay", "5m"))
    patient = Retry(attempts=5, base="1s", max="60s")
    await ctx.step("welcome", send_mail, user, "Welcome!", retry=patient, timeout="30s")
    event = await ctx.wait_for_event("verify", match={"user_id": user["id"]}, timeout="7d")
    if event is None:
        await ctx.step("remind", send_mail, user, "Please verify your address", retry=patient)
    return {"id": user["id"], "verified": event is not None}


async def main():
    async with Stepwell(workflows=[onboard]) as sw, sw.worker():
        run = await sw.start("onboard-user", {"email": "ada@example.org", "delay": "500ms"})
        # The run does not wait for this yet; the signal is kept until it does.
        await sw.signal(run.id, "verify", {"user_id": 42})
        print(await run.result(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())

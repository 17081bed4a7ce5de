"""A listener in another process: however its run's process was stopped, it is told all, once."""

from __future__ import annotations

from collections import Counter

import pytest

from stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.kernel.feed import RunEvent
from stepwell.testing.clock import FakeClock
from tests.crash.process import doomed
from tests.crash.test_crash_at_every_commit import ALL, start
from tests.engine.listening import Listener, heard, lasting
from tests.engine.support import flowing


@pytest.mark.parametrize("name", ["waiting", "gathered"])
@pytest.mark.parametrize("lose", [False, True], ids=["before", "unacknowledged"])
async def test_a_crash_after_any_commit_is_only_told_as_such(
    store_url: str, clock: FakeClock, name: str, lose: bool
) -> None:
    after = 0
    crashed = True
    while crashed:
        after += 1
        async with Stepwell(workflows=ALL, store=store_for(store_url, clock)) as calm:
            run_id = await start(calm, name, f"{name}-{after}")
            listener = Listener(calm, run_id)
            other = Stepwell(workflows=ALL, store=store_for(store_url, clock))
            crashed = await doomed(other, clock, run_id, after, lose)
            async with calm.worker(lease="1h"), flowing(clock, "0.1s"):
                live = await listener.all()
            told, replayed = kept(live), kept(await heard(calm, run_id))
            assert max(told.values()) == 1, (after, told)
            assert told == replayed, after
            for number, event in list(enumerate(live, 1))[:: after % 5 + 3]:
                assert kept(await heard(calm, run_id, event.id)) == kept(live[number:]), event
    assert after > 3, "the program was never interrupted"


def kept(events: list[RunEvent]) -> Counter[str]:
    """What has to be told; that something began which was given up need not be."""
    given_up = {f"step.started {e.data['step']}" for e in events if e.type == "step.skipped"}
    return Counter(line for line in lasting(events) if line not in given_up)

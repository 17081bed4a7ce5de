"""Taking up a parked run again, because its program goes on by itself."""

from __future__ import annotations

import logging

from stepwell.engine.unwinding import Losses
from stepwell.engine.writer import Writer
from stepwell.errors import ChangeRefused, NotOpen, StoreUnavailable
from stepwell.kernel.changes import ClaimedRun, Held, ResumeRun

log = logging.getLogger("stepwell.execution")


async def resume(claimed: ClaimedRun, held: Held, writer: Writer, losses: Losses) -> int | None:
    """Its new fence, or None if somebody else has taken it up.

    It is not begun again for an odd error of the store, as other runs are: as long as it is
    parked nobody holds it, and what it waits for may be up to the very program that goes on.
    """
    while True:
        try:
            fence: int | None = (await writer.submit(ResumeRun(held)))[0]
            return fence
        except (StoreUnavailable, NotOpen):
            return None
        except Exception as error:
            if isinstance(error, ChangeRefused) or losses.stopped(claimed):
                raise
            log.error("Run %s is resumed once more: its store failed.", held.run_id, exc_info=error)

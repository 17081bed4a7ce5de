"""What the code at hand belongs to: which run, which step, and where in the program.

asyncio carries it on: whatever a task or a callback begins inherits the context variables of
whoever happened to be at work then. So all that is begun for nobody in particular, and every
program, is begun in surroundings of its own.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable

import msgspec

from stepwell.kernel.masking import Masking
from stepwell.telemetry import request_trace


class StepIdentity(msgspec.Struct, frozen=True, gc=False):
    """Which step, and which attempt of it, the code at hand belongs to."""

    run_id: str
    key: str
    attempt: int
    idempotency_key: str


current_step: contextvars.ContextVar[StepIdentity | None] = contextvars.ContextVar(
    "stepwell_step", default=None
)

# The run that the code at hand belongs to; empty if it is part of none.
current_run: contextvars.ContextVar[str] = contextvars.ContextVar("stepwell_run", default="")

# The last operation this branch of the program came back from; it names readings of the clock.
anchor: contextvars.ContextVar[str] = contextvars.ContextVar("stepwell_anchor", default="")

# What hands results to the program that the code at hand is part of.
answering: contextvars.ContextVar[object] = contextvars.ContextVar("stepwell_answering")

# Whether it is the thread itself that a plain workflow was begun in which calls an operation.
in_first_thread: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "stepwell_first_thread", default=False
)

# What a record of a log is told by that is about a step, but is not written inside of it.
LOGGED_STEP = "stepwell_step"

_NOTHING = Masking()
_masking: contextvars.ContextVar[Callable[[], Masking]] = contextvars.ContextVar(
    "stepwell_masking", default=lambda: _NOTHING
)


def hide(what: Callable[[], Masking]) -> None:
    """From here on, errors are described without this, whatever it has become by then."""
    _masking.set(what)


def masking() -> Masking:
    """What nobody may read in the description of an error."""
    return _masking.get()()


def nobodys() -> contextvars.Context:
    """The context variables that are set here, but as part of no step, program or request."""
    context = contextvars.copy_context()
    context.run(current_step.set, None)
    context.run(current_run.set, "")
    context.run(anchor.set, "")
    context.run(answering.set, None)
    context.run(request_trace.set, None)
    context.run(hide, lambda: _NOTHING)
    return context

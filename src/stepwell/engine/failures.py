"""What is recorded of an error, and the error a program sees in its place.

A program must see the same error when a step fails and whenever that failure is replayed.
So both times it gets one made from the record: a StepFailed that is also of the class the
step function raised, wherever that class can be found again by its name.

Secrets are masked here, in the text as it is written down: an error may hold them in its notes,
its causes, its attributes and the errors of its group, and is left as it is for those who decide
about retries.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from stepwell.engine.surroundings import masking
from stepwell.errors import RunDenied, StepFailed, StepwellError
from stepwell.kernel.changes import JournalRow
from stepwell.kernel.codec import describe, writable
from stepwell.kernel.outcomes import run_failure
from stepwell.kernel.run import ErrorInfo

MAX_MESSAGE = 20_000
_ENGINE = str(Path(__file__).parent)
_encode = msgspec.json.Encoder().encode


def describe_failure(error: BaseException, step: str | None) -> str:
    """The JSON that is recorded of an error; without a step, of the one that ended its run."""
    try:
        return _described(error, step)
    except Exception:  # an error that cannot even be looked at
        kind = writable(type(error).__name__)
        plain = {"type": kind, "message": masking().text(describe(error)), "step": step}
        return _encode(plain).decode()


def _described(error: BaseException, step: str | None) -> str:
    message = describe(error)
    if isinstance(error, BaseExceptionGroup):
        message += "".join(f"; {type(e).__name__}: {describe(e)}" for e in _leaves(error))
    message = masking().text(message)
    if len(message) > MAX_MESSAGE:
        message = message[:MAX_MESSAGE] + f"… ({len(message) - MAX_MESSAGE} more characters)"
    kind = error.code if isinstance(error, StepwellError) else writable(type(error).__name__)
    if isinstance(error, StepFailed) and error.error is not None:
        # A failed step that nobody caught: the run failed for that step's reason.
        kind = error.error.type
    elif isinstance(error, RunDenied):
        step = error.details.get("step")
    if step is None:
        step = _step_behind(error)
    path = writable(f"{type(error).__module__}:{type(error).__qualname__}")
    return _encode({"type": kind, "message": message, "step": step, "class": path}).decode()


def trace(error: BaseException) -> str:
    """Where the error comes from, for the log: from the user's first line on."""
    return masking().text(writable(_traced(error)))


def _traced(error: BaseException) -> str:
    if isinstance(error, StepwellError):  # says where, and all that there is to say
        return f"{error.code}: {describe(error)}"
    where = error.__traceback__
    while where is not None and where.tb_frame.f_code.co_filename.startswith(_ENGINE):
        where = where.tb_next
    try:
        lines = traceback.format_exception(type(error), error, where or error.__traceback__)
    except Exception:
        return f"{type(error).__name__}: {describe(error)}"
    return "".join(lines)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _step_behind(error: BaseException) -> str | None:
    """The first of the journal's failures that this error was made of, or raised because of."""
    found: list[tuple[int, int, str]] = []
    todo, seen = [error], set[int]()
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if (entry := _entry_behind(each)) is not None:
            found.append(entry)
        elif isinstance(each, BaseExceptionGroup):
            todo += each.exceptions
        else:
            todo += [e for e in (each.__cause__, each.__context__) if e is not None]
    return min(found)[2] if found else None


def _entry_behind(error: BaseException) -> tuple[int, int, str] | None:
    if isinstance(error, StepwellError) and error.journaled is not None:
        return error.journaled
    if isinstance(error, StepFailed) and error.step is not None:
        return sys.maxsize, 0, error.step  # an interpreter's, for one of its parts
    return None


def place_of(entry: JournalRow) -> tuple[int, int, str]:
    """Where an entry stands in the journal; after all others if it is not written yet."""
    return entry.position or sys.maxsize, entry.seq, entry.key


def recorded_failure(entry: JournalRow) -> Exception:
    """The error a program sees for what was recorded as failed."""
    assert entry.error is not None
    data = msgspec.json.decode(entry.error)
    info = ErrorInfo(data["type"], data["message"], data["step"])
    if status := data.get("run_status"):
        error = run_failure(status, data["run_id"], info)
        error.journaled = place_of(entry)
        return error
    return _made(_class_for(data.get("class", "")), info, entry)


def _made(kind: type[StepFailed], info: ErrorInfo, entry: JournalRow) -> StepFailed:
    try:
        error = kind.__new__(kind)
        StepFailed.__init__(error, info.message, error=info, step=info.step)
        error.journaled = place_of(entry)
    except Exception:  # a class that guards its attributes, say
        error = StepFailed(info.message, error=info, step=info.step)
        error.journaled = place_of(entry)
    return error


def describe_child_failure(status: str, run_id: str, error: str | None, step: str) -> str:
    """The JSON recorded for a wait whose child did not complete."""
    info: dict[str, Any] = msgspec.json.decode(error) if error else {}
    message = info.get("message") or f"The run was {status.replace('_', ' ')}."
    return _encode(
        {
            "type": info.get("type", f"run_{status}"),
            "message": message,
            "step": step,
            "run_status": status,
            "run_id": run_id,
        }
    ).decode()


@cache
def _class_for(path: str) -> type[StepFailed]:
    """StepFailed, mixed with the class of that name if there is one to be found."""
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if not issubclass(found, Exception) or issubclass(found, StepFailed):
            return StepFailed
        space = {"__module__": found.__module__}
        if issubclass(found, StepwellError):
            space["code"] = found.code
        mixed: type[StepFailed] = type(found.__name__, (StepFailed, found), space)
        mixed.__new__(mixed)
    except Exception:
        return StepFailed
    return mixed

"""What names, keys and other short texts may look like."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from stepwell.errors import InvalidInput, InvalidName, RunNotFound, StepNotFound

# The engine's own folder, below where it is used.
STATE_FOLDER = ".stepwell"
MAX_LENGTH = 200
# How many steps an error names when there is none of that key.
MAX_SHOWN = 10
_REPEATED = re.compile(r"#\d+$")


def show(value: Any) -> str:
    """A value for a message: short, and also when it cannot show itself."""
    try:
        text = repr(value)
    except Exception:  # an int of very many digits, say
        return f"a {type(value).__name__}"
    return cut(text, MAX_LENGTH)


def cut(text: str, longest: int) -> str:
    """The text, or its beginning if it is longer."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def with_article(noun: str) -> str:
    """The noun with its article: `An http`, `An hour`, `A shell`."""
    return f"An {noun}" if noun[:1] in "aeio" or noun.startswith(("http", "hour")) else f"A {noun}"


def check_text(value: Any, what: str, longest: int = MAX_LENGTH) -> str:
    """A short text without control characters."""
    if not isinstance(value, str) or not value.strip():
        name = getattr(value, "name", None)
        hint = f" Pass its name, {show(name)}." if isinstance(name, str) else ""
        raise InvalidName(f"{what} must be a text that is not empty, not {show(value)}.{hint}")
    if len(value) > longest:
        raise InvalidName(f"{what} has {len(value)} characters; at most {longest} are allowed.")
    if not value.isprintable():
        raise InvalidName(f"{what} {show(value)} has control characters.")
    return value


def check_step_name(value: Any) -> str:
    """A step's name; endings like `#2` are kept for repeated names."""
    return _step_name(value) if isinstance(value, str) else check_text(value, "A step's name")


def is_repeated(key: str) -> bool:
    """Whether this ends like the key of a repeated name."""
    return key[-1:].isdigit() and _REPEATED.search(key) is not None


@lru_cache(maxsize=4096)
def _step_name(value: str) -> str:
    name = check_text(value, "A step's name")
    if _REPEATED.search(name):
        raise InvalidName(f"The step name {name!r} ends like a repetition; leave out the '#'.")
    return name


def check_run_id(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"A run's id is a text, like run.id; not {show(value)}.")
    if not value.isprintable():
        raise no_such_run(value)
    return value


def check_time(value: Any, what: str) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidInput(f"{what} must be a datetime, not {show(value)}.")
    return value


def check_count(value: Any, what: str, least: int = 1) -> int:
    """A whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{what} must be a whole number of at least {least}, not {show(value)}.")
    if value > 2**31 - 1:
        raise InvalidInput(f"{what} must be at most {2**31 - 1}, not {show(value)}.")
    return value


def no_such_run(run_id: object) -> RunNotFound:
    """For a run that was never there, or has been pruned."""
    return RunNotFound(f"There is no run {run_id!r}.", run_id=run_id)


def no_such_step(run_id: str, key: str, keys: Sequence[str]) -> StepNotFound:
    """For a key that no step of a run has."""
    shown = some_of([repr(each) for each in keys]) or "none yet"
    return StepNotFound(f"Run {run_id} has no step {key!r}. Its steps are: {shown}.", run_id=run_id)


def some_of(names: Sequence[str]) -> str:
    """Names for a message: the first of them, and how many more there are."""
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


def bounded(key: str) -> str:
    """A key that is made of what others gave: itself, or its hash if no key can be so."""
    if len(key) <= MAX_LENGTH and key.isprintable():
        return key
    kind = key.partition(":")[0]
    return f"{kind[:50]}:{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()}"


def copy_key(how: str, run_id: str, key: str) -> str:
    """The key of the start of a run that is made from another one."""
    return bounded(f"{how}:{run_id}:{check_text(key, 'idempotency_key')}")


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """A sentence, with a space before it, that names what is closest; empty if nothing is."""
    closest = difflib.get_close_matches(wanted[:MAX_LENGTH], known, 1, 0.6)
    return f" Did you mean {closest[0]!r}?" if closest else ""

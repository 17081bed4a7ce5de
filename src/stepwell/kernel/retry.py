"""When a failed step is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepwell.errors import InvalidInput, NonRetryable
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.names import check_count

Backoff = Literal["fixed", "linear", "exponential"]
ErrorTypes = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: how many attempts, and how long to wait between them.

    `backoff` is fixed, linear or exponential, from `base` up to `max`; `jitter` is a share of it.
    With `retry_on` only these errors are tried again, with `give_up_on` all but these; raising
    NonRetryable always gives up.
    """

    attempts: int = 3
    backoff: Backoff = "exponential"
    base: Duration = "1s"
    max: Duration = "60s"
    jitter: float = 0.2
    retry_on: ErrorTypes = ()
    give_up_on: ErrorTypes = ()

    def __post_init__(self) -> None:
        check_count(self.attempts, "Retry.attempts")
        if self.backoff not in ("fixed", "linear", "exponential"):
            raise InvalidInput(
                f"Retry.backoff must be fixed, linear or exponential, not {self.backoff!r}."
            )
        seconds(self.base, "Retry.base")
        seconds(self.max, "Retry.max")
        if type(self.jitter) not in (int, float) or not 0 <= self.jitter <= 1:
            raise InvalidInput(f"Retry.jitter must lie between 0 and 1, not {self.jitter!r}.")
        for field in ("retry_on", "give_up_on"):
            kinds = getattr(self, field)
            if not isinstance(kinds, type | tuple | list | set | frozenset):
                raise InvalidInput(f"Retry.{field} takes exception classes, not {kinds!r}.")
            kinds = (kinds,) if isinstance(kinds, type) else tuple(kinds)
            object.__setattr__(self, field, kinds)
            for kind in kinds:
                if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                    raise InvalidInput(f"Retry.{field} takes exception classes, not {kind!r}.")

    def allows(self, error: Exception, failures: int) -> bool:
        """Whether to try again after this many failed attempts, the last with `error`."""
        if failures >= self.attempts or isinstance(error, NonRetryable):
            return False
        if self.give_up_on and isinstance(error, self.give_up_on):
            return False
        return not self.retry_on or isinstance(error, self.retry_on)

    def delay(self, failures: int, fraction: float) -> float:
        """Seconds to wait after that many failures; `fraction` in [0, 1) decides the jitter."""
        base, cap = seconds(self.base), seconds(self.max)
        if self.backoff == "linear":
            base *= failures
        elif self.backoff == "exponential":
            base *= 2.0 ** min(failures - 1, 64)
        jitter = 1 + self.jitter * (2 * fraction - 1)
        return min(base * jitter, cap)


DEFAULT_RETRY = Retry()

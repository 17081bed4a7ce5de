"""Exit codes, and how every error becomes one of them."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import click

from stepwell.cli.output import emit
from stepwell.errors import RunEndedBadly, StepwellError
from stepwell.kernel.codec import writable

log = logging.getLogger("stepwell.process")

OK, INPUT_ERROR, USAGE_ERROR, FAILURE, INTERRUPTED = 0, 10, 20, 40, 130

# What is no fault of the input; any other error of Stepwell's own is.
_FAILURES = frozenset(
    {
        "permission_denied",
        "provider_unavailable",
        "address_unavailable",
        "queue_full",
        "quota_exceeded",
        "run_cancelled",
        "run_failed",
        "run_timed_out",
        "rate_limited",
        "schema_too_new",
        "schema_too_old",
        "server_unavailable",
        "signal_not_delivered",
        "store_forbidden",
        "store_unavailable",
        "unauthenticated",
    }
)


class Failure(NamedTuple):
    """What is said of an error."""

    exit_code: int
    code: str
    message: str
    details: dict[str, Any]


class StoppedWaiting(Exception):
    """Nobody waits any more for a run, which itself goes on."""

    def __init__(self, run_id: str, why: TimeoutError | KeyboardInterrupt) -> None:
        super().__init__(str(why) or f"Interrupted; run {run_id} goes on by itself.")
        self.run_id = run_id
        self.timed_out = isinstance(why, TimeoutError)


class Commands(click.Group):
    """A group of commands whose errors end in the documented exit codes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args)
        # Found by hand, because a command line that cannot be parsed has no parsed options.
        as_json = "--json" in words
        for number, word in enumerate(words, 1):
            if writable(word) != word:
                message = f"Argument {number} is not text in UTF-8: {writable(word)!r}."
                _say(Failure(INPUT_ERROR, "invalid_input", message, {}), as_json)
        try:
            code = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        except click.UsageError as error:
            # A parameter that is missing is click's kind of bad one, but there is no value to mend.
            if isinstance(error, click.BadParameter) and not isinstance(
                error, click.MissingParameter
            ):
                _say(Failure(INPUT_ERROR, "invalid_input", error.format_message(), {}), as_json)
            if not as_json:
                error.show()
                sys.exit(USAGE_ERROR)
            _say(Failure(USAGE_ERROR, "usage_error", error.format_message(), {}), as_json)
        except (click.Abort, KeyboardInterrupt):
            _say(Failure(INTERRUPTED, "interrupted", "Interrupted.", {}), as_json)
        except Exception as error:
            _say(failure_of(error), as_json)
        sys.exit(code if isinstance(code, int) else OK)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if not _logs_json():
                raise
            raise click.Abort from None  # for which click ends no line that a terminal has begun


def failure_of(error: Exception) -> Failure:
    """What to say of an error, and how to exit."""
    if isinstance(error, RunEndedBadly):
        details = {"run_id": error.run_id, "error": error.error}
        return Failure(FAILURE, error.code, error.message, details)
    if isinstance(error, StepwellError):
        exit_code = FAILURE if error.code in _FAILURES else INPUT_ERROR
        # What is kept instead of the message tells whoever reads that nothing new.
        return Failure(exit_code, error.code, error.message, error.shown_details)
    if isinstance(error, StoppedWaiting):
        exit_code, code = (FAILURE, "timeout") if error.timed_out else (INTERRUPTED, "interrupted")
        return Failure(exit_code, code, str(error), {"run_id": error.run_id})
    if isinstance(error, TimeoutError):
        return Failure(FAILURE, "timeout", str(error), {})
    if isinstance(error, OSError):
        return Failure(FAILURE, "os_error", str(error), {})
    if _logs_json():
        log.error("What follows was not expected.", exc_info=error)
    else:
        traceback.print_exception(error)
    return Failure(FAILURE, "internal_error", f"{type(error).__name__}: {error}", {})


def _say(failure: Failure, as_json: bool) -> NoReturn:
    if as_json:
        said = {"code": failure.code, "message": failure.message}
        with contextlib.suppress(OSError):  # else it cannot be written there
            emit({"error": {**said, "details": failure.details} if failure.details else said})
            sys.exit(failure.exit_code)
    line = f"Error ({failure.code}): {failure.message}"
    if _logs_json():
        log.error("%s", line)
    else:
        click.echo(line, err=True)
    sys.exit(failure.exit_code)


def _logs_json() -> bool:
    """Whether the command logs a JSON object a line, among which no other line belongs."""
    return any(getattr(each.formatter, "is_json", False) for each in logging.getLogger().handlers)

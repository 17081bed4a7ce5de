"""Logs of commands that run for long: lines for people, or a JSON object a line for machines."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any

import msgspec

from stepwell.engine.surroundings import LOGGED_STEP, current_run, current_step, masking
from stepwell.settings import LogFormat

log = logging.getLogger("stepwell.process")

_encode = msgspec.json.Encoder().encode


def configure_logs(form: LogFormat, stream: IO[str]) -> None:
    """Write all that is logged from now on to this stream, secrets masked."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if form == "json":  # then no line may be anything else, whoever would write it
        logging.captureWarnings(True)
        threading.excepthook = _thread_failed
        sys.unraisablehook = _ignored


def _thread_failed(about: threading.ExceptHookArgs) -> None:
    if issubclass(about.exc_type, SystemExit):  # it was to end; Python is silent, too
        return
    name = "one" if about.thread is None else about.thread.name
    log.error("A thread has failed: %s.", name, exc_info=about.exc_value)


def _ignored(about: sys.UnraisableHookArgs) -> None:
    said = about.err_msg or "Exception ignored in"
    log.error("%s: %r", said, about.object, exc_info=about.exc_value)


@contextmanager
def quiet_below(level: int) -> Iterator[None]:
    """Let Stepwell log nothing below this level meanwhile."""
    ours = logging.getLogger("stepwell")
    before = ours.level
    ours.setLevel(level)
    try:
        yield
    finally:
        ours.setLevel(before)


class Lines(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return masking().text(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object a line, with the run and the step that the code at hand belongs to."""

    # For those who have something to say and may not import this.
    is_json = True

    def format(self, record: logging.LogRecord) -> str:
        hidden, step = masking(), current_step.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hidden.text(record.getMessage()),
        }
        if run_id := current_run.get() if step is None else step.run_id:
            line["run_id"] = run_id
        inside = None if step is None else (step.key, step.attempt)
        if about := getattr(record, LOGGED_STEP, inside):
            line["step"], line["attempt"] = about
        if record.exc_info:
            line["exception"] = hidden.text(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = hidden.text(self.formatStack(record.stack_info))
        return _encode(_writable(line)).decode()


def _writable(line: dict[str, Any]) -> dict[str, Any]:
    """The same without halves of characters, which JSON cannot hold."""
    return {
        key: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for key, value in line.items()
    }

"""Tasks: what advancing one says, and what a run makes of it."""

from __future__ import annotations

from typing import Any

from stepwell.errors import TaskFailed


def advance_name(key: str) -> str:
    """The signal that advances a task."""
    return f"advance:{key}"


def report_of(summary: str, output: Any, *, failed: bool = False) -> dict[str, Any]:
    """What is sent along with it."""
    return {"summary": summary, "output": output, "failed": failed}


def read_report(key: str, report: Any) -> dict[str, Any]:
    """The output of a task; whoever sends the signal by hand may send anything."""
    if not isinstance(report, dict):
        return {"summary": "" if report is None else str(report), "output": report}
    if report.get("failed"):
        raise TaskFailed(f"{key!r} failed: {report.get('summary') or 'no reason was given'}.")
    return {"summary": report.get("summary", ""), "output": report.get("output")}

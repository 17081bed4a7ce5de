"""Child processes of the benchmark: none outlives its parent; their memory and processor time."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(command: list[str], **popen: Any) -> subprocess.Popen[bytes]:
    """Start a process that is killed when this one ends, however it ends."""
    return subprocess.Popen(command, preexec_fn=_die_with_parent, **popen)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL; what the process had spawned dies with it."""
    process.kill()
    process.wait()


def rss_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

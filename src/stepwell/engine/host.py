"""Which host and process this is, and whether another process of this host still lives."""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from pathlib import Path


@cache
def host_name() -> str:
    """The host, its boot, and the process namespace: within it, process ids can be compared."""
    # Where the kernel does not tell, the machine: two hosts may well have the same name.
    boot = _read("/proc/sys/kernel/random/boot_id") or f"{uuid.getnode():x}"
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return "/".join(part for part in (socket.gethostname(), boot, namespace) if part)


def process_started(pid: int) -> str:
    """When that process started, as the kernel counts; empty if it is gone or not to be known."""
    stat = _read(f"/proc/{pid}/stat")
    # The name in parentheses may hold anything; the start time is the 20th field after it.
    fields = stat.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else ""


def process_gone(pid: int, started: str) -> bool:
    """Whether the process that had this id and start is certainly gone."""
    now = process_started(pid)
    if now and started:
        return now != started
    if os.name == "nt":  # where asking is the same as interrupting
        return False
    # Not to be read: gone, a zombie, or hidden from this user. Only the kernel knows which.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["Z"]


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace").strip()
    except OSError:
        return ""

"""Finding the processes that a step has started, and killing all of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

# How long killed processes may take to be gone.
GONE_SECONDS = 5.0


async def kill_tree(session: int, marker: str) -> None:
    """Kill again until nobody is left: processes may start others while they are looked for."""
    deadline = asyncio.get_running_loop().time() + GONE_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)  # most of them at once
    while members := await asyncio.to_thread(_members, session, marker.encode()):
        for pid in members:
            _kill(pid)
        if asyncio.get_running_loop().time() > deadline:
            return  # in a system call that does not end, or of another user
        await asyncio.sleep(0.005)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _members(session: int, marker: bytes) -> set[int]:
    """All that are in the session, have the marker, or descend from such a process."""
    processes = living()
    found = {
        pid
        for pid, process in processes.items()
        if process.session == session or marker in _environ(pid)
    }
    return found | descendants(found, processes)


@dataclass(frozen=True)
class Process:
    """Where a process belongs."""

    parent: int
    session: int


def living() -> dict[int, Process]:
    """The processes of this machine that can do something; nothing where there is no /proc."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it is gone
            # The name stands in parentheses, and may hold some itself.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                found[int(folder.name)] = Process(int(fields[1]), int(fields[3]))
    return found


def descendants(pids: set[int], processes: Mapping[int, Process]) -> set[int]:
    """All below some processes."""
    found: set[int] = set()
    while more := {pid for pid, each in processes.items() if each.parent in pids | found} - found:
        found |= more
    return found


def _environ(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError):  # it is gone, or somebody else's
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


async def kill_holders(pipes: Collection[str]) -> None:
    """Kill who has a pipe open, other than this process: it left all behind but its output."""
    for pid in await asyncio.to_thread(_holders, pipes):
        _kill(pid)


def _holders(pipes: Collection[str]) -> set[int]:
    found = set()
    for pid in living().keys() - {os.getpid()}:
        with contextlib.suppress(OSError):  # it is gone, or somebody else's
            if any(str(each.readlink()) in pipes for each in Path(f"/proc/{pid}/fd").iterdir()):
                found.add(pid)
    return found

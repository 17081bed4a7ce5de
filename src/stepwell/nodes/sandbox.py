"""Where scripts are executed: a place made by bubblewrap, with little in it and limits around it.

A script sees the system's programs, read-only; the repository, read-only and without the engine's
state; an empty /tmp; its own processes; and no network unless it asks. A worker that is root gives
each script a user of its own, because the kernel does not limit the number of root's processes,
and because root may read what is closed to others. Other workers use a user namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwell.errors import SandboxUnavailable
from stepwell.kernel.masking import beginning
from stepwell.kernel.names import STATE_FOLDER
from stepwell.nodes import seccomp
from stepwell.nodes.process_tree import descendants, living
from stepwell.nodes.processes import Guard

ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "TMPDIR": "/tmp",
}
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("alternatives", "ld.so.cache", "localtime", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs")
_ETC_NETWORK = ("hosts", "nsswitch.conf", "resolv.conf")
_MAX_PROCESSES = 128
_MAX_FILES = 256
_MEGABYTE = 1024 * 1024
_LOOK_EVERY_SECONDS = 0.1
# Users that no machine gives to anybody.
_FIRST_USER, _USERS = 2_000_000_000, 100_000_000
_WHOLE_MACHINE = re.compile(r"\s*0\s+0\s+4294967295\s*")
# The last step before the script. If the machine runs out of memory, the script goes first; and
# only here it gets its variables: LD_PRELOAD must not reach what is executed before.
_BEGIN = 'echo 1000 > /proc/self/oom_score_adj; . /variables; exec "$@"'


@dataclass(frozen=True)
class Sandbox:
    """What a script may use."""

    repository: str | None
    network: bool
    memory_mb: int
    cpu_seconds: int
    # What must not be seen of the repository.
    hidden: Sequence[str] = ()

    @contextlib.contextmanager
    def entered(
        self, script: str, interpreter: str, variables: Mapping[str, str]
    ) -> Iterator[tuple[list[str], list[int]]]:
        """The command that executes a script in here, and the files it needs to be handed."""
        tools = {name: _tool(name) for name in ("bwrap", "prlimit", "setpriv")}
        exports = "".join(f"export {name}={shlex.quote(variables[name])}\n" for name in variables)
        with _handed(script) as text, _handed(exports) as values, _handed(_rules()) as rules:
            command = [
                tools["bwrap"],
                *self._namespaces(),
                *self._files(),
                *("--perms", "0444", "--ro-bind-data", str(text), "/script"),
                *("--perms", "0444", "--ro-bind-data", str(values), "/variables"),
                # Last, as they close what the mounts before had to write to.
                *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"),
                *("--seccomp", str(rules), "--"),
                *_own_user(tools["setpriv"]),
                *self._limits(tools["prlimit"]),
                *("/bin/sh", "-c", _BEGIN, "sh", interpreter, "/script"),
            ]
            yield command, [text, values, rules]

    def _namespaces(self) -> list[str]:
        separate = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        if not self.network:
            separate.append("--unshare-net")
        if _is_root():
            separate += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            separate += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        return [*separate, "--hostname", "script", "--die-with-parent", "--new-session"]

    def _files(self) -> list[str]:
        size = str(self.memory_mb * _MEGABYTE)
        etc = _ETC + (_ETC_NETWORK if self.network else ())
        return [
            *("--ro-bind", "/usr", "/usr"),
            *(word for folder in _SYSTEM for word in _system(folder)),
            # Made here, as folders that bubblewrap makes on its way are closed to others.
            *("--dir", "/etc", "--dir", "/etc/ssl", "--dir", "/etc/pki", "--dir", "/etc/pki/tls"),
            *(word for name in etc for word in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--perms", "1777", "--size", str(_MEGABYTE), "--tmpfs", "/dev/shm"),
            *("--perms", "1777", "--size", size, "--tmpfs", "/tmp"),
            *([] if self.repository is None else self._repository(self.repository)),
        ]

    def _repository(self, repository: str) -> list[str]:
        folder = Path(repository).resolve()
        own = {each.resolve() for each in (folder / STATE_FOLDER, *map(Path, self.hidden))}
        # What lies inside of another is hidden with it, and nothing can be put there any more.
        outermost = sorted(each for each in own if own.isdisjoint(each.parents))
        masks = [word for each in outermost for word in _masked(each, folder)]
        return ["--ro-bind", str(folder), "/repo", *masks]

    def _limits(self, prlimit: str) -> list[str]:
        memory = self.memory_mb * _MEGABYTE
        return [
            prlimit, f"--data={memory}", f"--fsize={memory}", f"--cpu={self.cpu_seconds}",
            f"--nproc={_MAX_PROCESSES}", f"--nofile={_MAX_FILES}", "--core=0", "--memlock=0",
            "--msgqueue=0",
        ]  # fmt: skip

    def guard(self) -> Guard:
        """Watches the memory of all processes together; the kernel limits only each by itself."""

        async def overused(pid: int) -> str:
            while True:
                await asyncio.sleep(_LOOK_EVERY_SECONDS)
                if await asyncio.to_thread(_used, pid) > self.memory_mb * _MEGABYTE:
                    return f"was stopped, as it used more than {self.memory_mb} MB of memory"

        return overused


def refused(exit_code: int, stderr: str) -> None:
    """Tell a sandbox that could not be made from a script that failed."""
    if exit_code == 1 and stderr.startswith("bwrap: "):
        said = beginning(stderr.strip(), 300)
        raise SandboxUnavailable(
            f"bubblewrap cannot isolate scripts on this machine ({said}). It has "
            "to be 0.7 or newer, and needs either a worker that is root with CAP_SYS_ADMIN, or "
            "user namespaces for everybody (sysctl user.max_user_namespaces=10000, and on Ubuntu "
            "kernel.apparmor_restrict_unprivileged_userns=0)."
        )


def find(name: str) -> str | None:
    """Where a program of the system is."""
    return shutil.which(name, path=ENVIRONMENT["PATH"])


def _tool(name: str) -> str:
    if found := find(name):
        return found
    raise SandboxUnavailable(
        f"Scripts are isolated by bubblewrap, and this machine has no {name!r}: install the "
        "packages bubblewrap and util-linux (apt-get install bubblewrap util-linux)."
    )


def _rules() -> bytes:
    if found := seccomp.program():
        return found
    raise SandboxUnavailable(
        f"Scripts cannot be isolated on {os.uname().machine}: which system calls to refuse is "
        "known for x86_64 and aarch64. Use the shell node if the script is trusted."
    )


def _is_root() -> bool:
    """Whether this is root of the whole machine, not of some user namespace in it."""
    if os.geteuid() != 0:
        return False
    return _WHOLE_MACHINE.fullmatch(Path("/proc/self/uid_map").read_text()) is not None


def _own_user(setpriv: str) -> list[str]:
    if not _is_root():
        return []
    user = str(_FIRST_USER + secrets.randbelow(_USERS))
    return [setpriv, "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all"]


def _system(folder: str) -> Sequence[str]:
    """A folder of programs or libraries; on most systems a link into /usr."""
    place = Path(folder)
    if place.is_symlink():
        return ("--symlink", str(place.readlink()), folder)
    return ("--ro-bind", folder, folder) if place.is_dir() else ()


def _masked(own: Path, folder: Path) -> list[str]:
    """An empty folder, or for a file an empty one, in its place."""
    if not own.is_relative_to(folder) or own == folder or not own.exists():
        return []
    hidden = f"/repo/{own.relative_to(folder)}"
    if own.is_dir():
        return ["--tmpfs", hidden, "--remount-ro", hidden]
    return ["--ro-bind", "/dev/null", hidden]


@contextlib.contextmanager
def _handed(content: str | bytes) -> Iterator[int]:
    """A file without a name, for bubblewrap to read."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    descriptor = os.memfd_create("stepwell")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _used(pid: int) -> int:
    """The memory of a process and all below it, in bytes; what they share counts once."""
    return sum(_share(each) for each in {pid} | descendants({pid}, living()))


def _share(pid: int) -> int:
    with contextlib.suppress(OSError):  # it is gone
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        return int(found[1]) * 1024 if found else 0
    return 0

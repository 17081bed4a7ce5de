"""The system calls that scripts cannot make, as a filter of the kernel (classic BPF).

Namespaces and limits leave gaps: memory that belongs to no process (memfd, System V), new
namespaces in which a script may mount memory without bounds, sockets that know no network
namespace (vsock). The filter answers these calls with "not permitted".
"""

from __future__ import annotations

import errno
import os
import struct

# Per machine: how audit calls it, then the numbers of the calls, in the order of _NAMES.
_NAMES = (
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "memfd_create", "shmget",
    "msgget", "mq_open", "add_key", "request_key", "keyctl", "bpf", "perf_event_open",
    "userfaultfd", "ptrace", "process_vm_readv", "process_vm_writev", "open_by_handle_at",
    "kexec_load", "init_module", "finit_module", "clone", "socket",
)  # fmt: skip
_MACHINES = {
    "x86_64": (0xC000003E, (
        272, 308, 165, 166, 155, 161, 319, 29, 68, 240, 248, 249, 250, 321, 298, 323, 101, 310,
        311, 304, 246, 175, 313, 56, 41,
    )),
    "aarch64": (0xC00000B7, (
        97, 268, 40, 39, 41, 51, 279, 194, 186, 180, 217, 218, 219, 280, 241, 282, 117, 270, 271,
        265, 104, 105, 273, 220, 198,
    )),
}  # fmt: skip
# The same everywhere: io_uring (3), open_tree … fspick (6), mount_setattr, memfd_secret.
_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 447)
_CLONE3 = 435
_X32 = 0x40000000  # the second set of numbers of x86_64
_NAMESPACES = 0x7E020080  # every CLONE_NEW… flag
_FAMILIES = (1, 2, 10, 16)  # local, IPv4, IPv6, netlink

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_REFUSE = _ERROR | errno.EPERM


def program() -> bytes | None:
    """The filter for this machine; none if its numbers are not known here."""
    known = _MACHINES.get(os.uname().machine)
    if known is None:
        return None
    machine, numbers = known
    calls = dict(zip(_NAMES, numbers, strict=True))
    clone, socket = calls.pop("clone"), calls.pop("socket")
    steps = [_step(_LOAD, _MACHINE), *_unless(_EQUAL, machine, _REFUSE), _step(_LOAD, _NUMBER)]
    steps += _if(_AT_LEAST, _X32, _REFUSE)
    for number in (*calls.values(), *_EVERYWHERE):
        steps += _if(_EQUAL, number, _REFUSE)
    # Its flags lie in memory, where no filter can look; C libraries fall back to clone.
    steps += _if(_EQUAL, _CLONE3, _ERROR | errno.ENOSYS)
    steps += _only(clone, [*_if(_ANY_BIT, _NAMESPACES, _REFUSE)])
    allowed = [step for family in _FAMILIES for step in _if(_EQUAL, family, _ALLOW)]
    steps += _only(socket, [*allowed, _step(_RETURN, _REFUSE)])
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _only(number: int, checks: list[bytes]) -> list[bytes]:
    """Checks of the first argument of one call."""
    return [
        _step(_EQUAL, number, 0, len(checks) + 1),
        _step(_LOAD, _FIRST_ARGUMENT),
        *checks,
    ]


def _if(test: int, value: int, answer: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, answer)]


def _unless(test: int, value: int, answer: int) -> list[bytes]:
    return [_step(test, value, 1, 0), _step(_RETURN, answer)]


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)

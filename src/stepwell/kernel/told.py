"""What a listener has been told of a run; written into the ids of events, so nobody has to keep it.

Of what has ended, that is a place in the journal: all before it was told. Of what is still open, it
is how much was told of each: that it began, how many attempts failed, whether a gate was decided.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec

from stepwell.errors import InvalidCursor
from stepwell.kernel.names import show
from stepwell.kernel.progress import ENDING, MOST_OPEN, Place

# Bytes of the hashes that stand for keys and for the run.
_MARK, _RUN = 5, 3
_LONGEST_ID = 64 * MOST_OPEN


def mark_of(kind: str, key: str) -> bytes:
    """A short name for something open."""
    return hashlib.sha256(f"{kind}:{key}".encode()).digest()[:_MARK]


class Told(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """How much of a run was told."""

    run: bytes
    number: int = 0
    position: int = -1
    key: str | None = None
    attempt: int = 1
    # If the last word was that the run waits: the fence it had then.
    waiting: int | None = None
    open: dict[bytes, int] = {}
    # The keys of nodes that were told to have begun when a step of theirs did, and are not over:
    # if the run ends before them, nothing else says that they were there.
    nodes: list[str] = []

    def place(self, run_id: str) -> Place:
        """Behind which entry to go on."""
        return Place(run_id, self.position, self.key)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be told."""
        return self.position > ENDING

    def finish(self) -> None:
        self.position, self.key, self.open, self.nodes = ENDING + 1, None, {}, []


def nothing_told(run_id: str) -> Told:
    return Told(_digest(run_id))


def write_id(told: Told) -> str:
    """The id of the event after which so much is told: its number, then what only we read."""
    packed = base64.urlsafe_b64encode(_encoder.encode(told)).decode().rstrip("=")
    return f"{told.number}-{packed}"


def read_id(event_id: str, run_id: str) -> Told:
    """What was told of the run up to the event with this id."""
    number, _, packed = event_id.partition("-")
    try:
        if len(event_id) > _LONGEST_ID:
            raise _invalid(event_id, run_id)
        told = _decoder.decode(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise _invalid(event_id, run_id) from error
    is_place = -1 <= told.position <= ENDING + 1
    is_key = all(key.isprintable() for key in (told.key or "", *told.nodes))
    if told.run != _digest(run_id) or str(told.number) != number or not (is_place and is_key):
        raise _invalid(event_id, run_id)
    return told


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Told)


def _digest(run_id: str) -> bytes:
    return hashlib.sha256(run_id.encode()).digest()[:_RUN]


def _invalid(event_id: str, run_id: str) -> InvalidCursor:
    return InvalidCursor(f"{show(event_id)} is not the id of an event of run {run_id}.")

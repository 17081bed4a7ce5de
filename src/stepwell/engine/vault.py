"""Secrets of a workspace as its runs use them: opened here, masked wherever they might show."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepwell.engine.asking import answer_of
from stepwell.errors import SecretKeyInvalid
from stepwell.kernel.clock import SECOND, Clock
from stepwell.kernel.codec import decode, encode_result
from stepwell.kernel.masking import Masking
from stepwell.kernel.records import SecretRecord
from stepwell.kernel.sealing import Keyring
from stepwell.record import Records

# How long what was read stands before the store is asked again.
FRESH_SECONDS = 5
_NO_KEY = (
    "The secret {!r} is there, but this process has no key to open it with. Give it the one that "
    "secrets are sealed with, as STEPWELL_SECRET_KEY."
)


class Opened(dict[str, str]):
    """Secrets by name; one that cannot be opened fails whoever asks for it, and nobody else."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: dict[str, str] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.closed or super().__contains__(name)

    def __missing__(self, name: str) -> str:
        raise SecretKeyInvalid(self.closed[name])


class Vault:
    """Opens the secrets of one workspace."""

    def __init__(
        self, records: Records, workspace_id: str, keyring: Callable[[], Keyring | None],
        clock: Clock,
    ) -> None:  # fmt: skip
        self._records = records
        self._workspace_id = workspace_id
        self._keyring = keyring
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at: int | None = None
        # Made by this process; what was read before one of them says nothing of it.
        self._changes = 0
        self._secrets = Opened()
        # Values that were replaced since may still be on their way through a run.
        self._seen: set[str] = set()
        self.masking = Masking()

    async def secrets(self) -> Mapping[str, str]:
        """All secrets by name, as of a moment ago."""
        if self._is_stale():
            # One reads for all who ask; if it is cancelled or fails, the next one tries.
            async with self._reading:
                if self._is_stale():
                    await self._read()
        return self._secrets

    def forget(self) -> None:
        """Secrets were changed here: whoever asks next is told of it."""
        self._changes += 1
        self._read_at = None

    def _is_stale(self) -> bool:
        read_at = self._read_at
        return read_at is None or self._clock.now() - read_at >= FRESH_SECONDS * SECOND

    async def _read(self) -> None:
        now, changes = self._clock.now(), self._changes
        sealed = await answer_of(self._clock, lambda: self._records.secrets(self._workspace_id))
        self._secrets = self._opened(sealed)
        self._read_at = now if changes == self._changes else None
        if not self._seen.issuperset(self._secrets.values()):
            self._seen.update(self._secrets.values())
            self.masking = Masking(self._seen)

    def _opened(self, sealed: Sequence[SecretRecord]) -> Opened:
        found = Opened()
        try:
            keyring = self._keyring() if sealed else None
        except SecretKeyInvalid as error:
            found.closed = dict.fromkeys((each.name for each in sealed), error.message)
            return found
        if keyring is None:
            found.closed = {each.name: _NO_KEY.format(each.name) for each in sealed}
            return found
        for each in sealed:
            place = f"{self._workspace_id}/{each.name}"
            try:
                found[each.name] = keyring.open(each.sealed, each.key_id, place)
            except SecretKeyInvalid as error:
                found.closed[each.name] = error.message
        return found

    def masked(self, output: Any) -> Any:
        """An output without secrets, as plain JSON: other objects could hold them unseen."""
        if not self.masking:
            return output
        return self.masking.value(decode(encode_result(output, sys.maxsize)))

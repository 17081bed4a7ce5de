"""Secrets: set, listed by name, deleted, and sealed anew when the key changes; never shown."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from stepwell.errors import InvalidInput, InvalidName, SecretKeyInvalid, SecretNotFound
from stepwell.kernel.clock import moment
from stepwell.kernel.masking import SHORTEST
from stepwell.kernel.presenting import HIDDEN
from stepwell.kernel.records import SecretRecord
from stepwell.kernel.sealing import Keyring
from stepwell.operation import Noun, Workspace, operation

MAX_CHARACTERS = 64 * 1024
# What can stand in a reference: {{secrets.NAME}}.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True)
class SecretInfo:
    """What anybody may know of a secret."""

    name: str
    key_id: str
    created_at: datetime
    updated_at: datetime


class Secrets(Noun):
    """The secrets of a workspace: nobody can read them, only nodes are given them."""

    noun = "secrets"

    def __init__(
        self, workspace: Workspace, keys: Callable[[], Keyring], changed: Callable[[], None]
    ) -> None:
        self._workspace = workspace
        self._records = workspace.store.records
        # Brings the operator's keys, made if there are none.
        self._keys = keys
        # Told when secrets are other than they were.
        self._changed = changed

    @operation("GET /secrets", needs="build")
    async def list(self) -> builtins.list[SecretInfo]:
        """Names, and when they were set."""
        return [
            SecretInfo(each.name, each.key_id, moment(each.created_at), moment(each.updated_at))
            for each in await self._records.secrets(self._workspace.id)
        ]

    @operation(
        "PUT /secrets/{name}", needs="build", raises=(SecretKeyInvalid,),
        example={"name": "hook-secret", "value": "correct horse battery"},
    )  # fmt: skip
    async def set(self, name: str, value: Annotated[str, HIDDEN]) -> None:
        """Set a secret, or replace it; runs see the new value within seconds."""
        if not _NAME.fullmatch(name):
            raise InvalidName(
                f"A secret cannot be called {name!r:.100}: names have letters, digits, '_' and '-'."
            )
        if not SHORTEST <= len(value) <= MAX_CHARACTERS:
            raise InvalidInput(
                f"A secret has {SHORTEST} to {MAX_CHARACTERS:,} characters: a shorter one could "
                "not be told from other text where it has to be masked."
            )
        sealed = self._seal(self._keys(), name, value)
        await self._records.put_secret(self._workspace.id, sealed)
        self._changed()

    @operation("DELETE /secrets/{name}", needs="build", destructive=True, raises=(SecretNotFound,))
    async def delete(self, name: str) -> None:
        """Forget a secret."""
        if not await self._records.delete_secret(self._workspace.id, name):
            raise SecretNotFound(f"There is no secret {name!r}.", name=name)
        self._changed()

    @operation("POST /secrets/rotate", needs="own", result="sealed", raises=(SecretKeyInvalid,))
    async def rotate(self) -> int:
        """Seal with the first key what was sealed with older ones; how many there were."""
        keyring = self._keys()
        count = 0
        # What was set in the meantime stands, but may have been sealed with an old key again.
        while old := await self._sealed_otherwise(keyring):
            for each in old:
                value = keyring.open(each.sealed, each.key_id, self._place(each.name))
                anew = self._seal(keyring, each.name, value)
                count += await self._records.replace_secret(self._workspace.id, anew, each.sealed)
        return count

    async def _sealed_otherwise(self, keyring: Keyring) -> Sequence[SecretRecord]:
        """Secrets that were sealed with other keys than the first."""
        found = await self._records.secrets(self._workspace.id)
        return [each for each in found if each.key_id != keyring.key_id]

    def _seal(self, keyring: Keyring, name: str, value: str) -> SecretRecord:
        now = self._workspace.clock.now()
        return SecretRecord(name, keyring.key_id, keyring.seal(value, self._place(name)), now, now)

    def _place(self, name: str) -> str:
        """Where a secret belongs; sealed along, so that it cannot be moved elsewhere."""
        return f"{self._workspace.id}/{name}"

"""Gates and definitions of a server, by the names that they have in Python."""

from __future__ import annotations

import builtins
from typing import Any, Literal

from stepwell.kernel.records import DefinitionRecord, DraftRecord, GateRecord, RevisionRecord
from stepwell.record import HistoryRow, PublishResult, Validation
from stepwell.sdk.calling import Calling

Ref = str | int | None


class Gates(Calling):
    """What waits for a decision."""

    async def list(self, run_id: str | None = None) -> builtins.list[GateRecord]:
        """Gates that wait for a decision: all, or those of a run and of those below it."""
        return await self._records(GateRecord, "GET /gates", run_id=run_id)

    async def get(self, gate_id: str) -> GateRecord:
        """The gate as it is now."""
        return await self._record(GateRecord, "GET /gates/{gate_id}", gate_id=gate_id)

    async def decide(
        self, gate_id: str, decision: Literal["approve", "deny"], *, note: str = "",
        token: str | None = None, seen_hash: str | None = None,
    ) -> GateRecord:  # fmt: skip
        """Approve or deny, as who the client's token belongs to."""
        return await self._record(
            GateRecord,
            "POST /gates/{gate_id}/decide",
            gate_id=gate_id,
            decision=decision,
            note=note,
            token=token,
            seen_hash=seen_hash,
        )


class Definitions(Calling):
    """Definitions that are data, and their drafts."""

    async def list(self) -> builtins.list[DefinitionRecord]:
        """All definitions by name."""
        return await self._records(DefinitionRecord, "GET /definitions")

    async def get(self, name: str) -> DefinitionRecord:
        """The definition as it is now."""
        return await self._record(DefinitionRecord, "GET /definitions/{name}", name=name)

    async def document(self, name: str, ref: Ref = None) -> Any:
        """A document as plain data: of the current revision, another one, or the "draft"."""
        found = await self._call("GET /definitions/{name}/document", name=name, ref=ref)
        return found["document"]

    async def revision(self, name: str, ref: Ref) -> RevisionRecord:
        """A revision by its hash, version or number."""
        return await self._record(
            RevisionRecord, "GET /definitions/{name}/revisions/{ref}", name=name, ref=ref
        )

    async def history(self, name: str) -> builtins.list[HistoryRow]:
        """All revisions that a definition has had, the one that became current last first."""
        return await self._records(HistoryRow, "GET /definitions/{name}/history", name=name)

    async def diff(self, name: str, a: Ref, b: Ref = None) -> dict[str, Any]:
        """What differs between two documents; without `b`, from `a` to the current one."""
        found = await self._call("GET /definitions/{name}/diff", name=name, a=a, b=b)
        return dict(found["diff"])

    async def validate(self, document: Any) -> Validation:
        """Everything that is wrong with a document."""
        return await self._record(Validation, "POST /definitions/validate", document=document)

    async def create(
        self, name: str, document: Any = None, *, enabled: bool = False
    ) -> DefinitionRecord:
        """Make a definition that has nothing but a draft."""
        return await self._record(
            DefinitionRecord, "POST /definitions", name=name, document=document, enabled=enabled
        )

    async def publish(
        self, document: Any, *, if_match: str | None = None, version: str | None = None,
        enabled: bool | None = None, note: str = "",
    ) -> PublishResult:  # fmt: skip
        """Make a document the current one of the definition it names, which may be new."""
        return await self._record(
            PublishResult,
            "POST /definitions/publish",
            document=document,
            if_match=if_match,
            version=version,
            enabled=enabled,
            note=note,
        )

    async def rollback(
        self, name: str, ref: str | int, *, if_match: str | None = None, note: str = ""
    ) -> PublishResult:
        """Make an earlier revision current again."""
        return await self._record(
            PublishResult,
            "POST /definitions/{name}/rollback",
            name=name,
            ref=ref,
            if_match=if_match,
            note=note,
        )

    async def set_enabled(self, name: str, enabled: bool) -> DefinitionRecord:
        """Allow runs of the definition to be started, or forbid it."""
        return await self._record(
            DefinitionRecord, "PUT /definitions/{name}/enabled", name=name, enabled=enabled
        )

    async def delete(self, name: str, *, if_match: str | None = None) -> None:
        """Delete a definition with its draft, history and proposals; its runs go on."""
        await self._call("DELETE /definitions/{name}", name=name, if_match=if_match)

    # -- drafts --------------------------------------------------------------------------

    async def get_draft(self, name: str) -> DraftRecord:
        """The draft of a definition; raises DraftNotFound."""
        return await self._record(DraftRecord, "GET /definitions/{name}/draft", name=name)

    async def save_draft(
        self, name: str, document: Any, *, if_match: str | None = None,
        base_hash: str | None = None,
    ) -> DraftRecord:  # fmt: skip
        """Keep an edit of a definition that there is, whatever is wrong with it."""
        return await self._record(
            DraftRecord,
            "PUT /definitions/{name}/draft",
            name=name,
            document=document,
            if_match=if_match,
            base_hash=base_hash,
        )

    async def publish_draft(
        self, name: str, *, if_match: str | None = None, version: str | None = None,
        enabled: bool | None = None, note: str = "",
    ) -> PublishResult:  # fmt: skip
        """Make the draft the current revision, if nothing is wrong with it."""
        return await self._record(
            PublishResult,
            "POST /definitions/{name}/publish",
            name=name,
            if_match=if_match,
            version=version,
            enabled=enabled,
            note=note,
        )

    async def discard_draft(self, name: str, *, if_match: str | None = None) -> bool:
        """Forget the draft; whether there was one."""
        found = await self._call("DELETE /definitions/{name}/draft", name=name, if_match=if_match)
        return found is None or bool(found["discarded"])

"""Syncing: definitions brought to what a set of documents says, such as the files of a folder."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Literal

import msgspec

from stepwell.errors import (
    Conflict,
    DefinitionExists,
    InvalidDefinition,
    QuotaExceeded,
    UnknownDefinition,
)
from stepwell.graph.diff import describe, diff
from stepwell.graph.documents import Checked
from stepwell.graph.problems import Problem
from stepwell.kernel.records import DefinitionRecord, revision_in
from stepwell.operation import TIDY_UP, DefinitionRef, operation
from stepwell.operations.publishing import Publishing, Seen
from stepwell.operations.revising import Publication
from stepwell.record import Amendment, PublishResult

SyncAction = Literal["create", "update", "unchanged", "delete", "invalid"]
SyncOutcome = Literal["done", "conflict", "not_done"]


class SyncStep(msgspec.Struct, frozen=True):
    """What syncing does with one definition."""

    name: str
    action: SyncAction
    # Of the revision that is current before, and of the one after.
    hash_before: str | None = None
    hash: str | None = None
    changes: list[str] = []
    problems: list[Problem] = []
    outcome: SyncOutcome = "not_done"
    # Of a conflict: what somebody else has done since it was planned.
    message: str = ""


class SyncPlan(msgspec.Struct, frozen=True):
    """What syncing does, in order; and what of it was done."""

    steps: list[SyncStep]
    # Whether all of it was.
    applied: bool = False

    @property
    def subject(self) -> str:
        """The definitions that are to be changed, for the audit log."""
        return ", ".join(step.name for step in self.steps if step.action != "unchanged")

    @property
    def ok(self) -> bool:
        """Whether nothing is in the way: neither what a document says, nor somebody else."""
        return all(step.action != "invalid" and step.outcome != "conflict" for step in self.steps)


class Syncing(Publishing):
    """Brings definitions up to date."""

    @operation(
        "POST /definitions/sync", needs="build", caller={"author": "name"}, destructive=True,
        raises=(Conflict, InvalidDefinition, DefinitionExists, QuotaExceeded),
        example={"document": TIDY_UP},
    )  # fmt: skip
    async def sync(self, document: Any, *, note: str = "", author: str = "") -> PublishResult:
        """Create or update the definition of a document, unless it is current already."""
        how = Publication("sync", author, note)
        return await self._publish(await self._revising.check(document), how, None)

    @operation(
        "POST /definitions/sync-all", needs="build", caller={"author": "name"}, destructive=True,
        raises=(QuotaExceeded,), example={"documents": [TIDY_UP]},
    )  # fmt: skip
    async def sync_all(
        self,
        documents: Sequence[Any],
        *,
        delete_missing: bool = False,
        apply: bool = False,
        author: str = "",
    ) -> SyncPlan:
        """What has to be done so that these are the definitions there are; with `apply`, do it.

        `delete_missing` deletes what was published and is in none of the documents. If any
        document is invalid, nothing is applied. What somebody else has changed since it was
        planned stays as it is, and then nothing is deleted: what seems to be missing may have
        been renamed to that.
        """
        how = Publication("sync", author)
        heads = {
            head.name: head
            for head in await self._workspace.store.records.definitions(self._workspace.id)
        }
        found = [await self._revising.check(document) for document in documents]
        steps: list[SyncStep] = []
        for each in found:
            steps.append(await self._step(each, heads, {step.name for step in steps}))
        if delete_missing:
            kept = {step.name for step in steps}
            steps += [
                SyncStep(head.name, "delete", hash_before=head.hash)
                for head in heads.values()
                if head.hash is not None and head.name not in kept
            ]
        plan = SyncPlan(steps)
        if not apply or not plan.ok:
            return plan
        tried = [
            await self._tried(
                step, self._publish(checked, how, Seen(step.hash_before, step.action != "create"))
            )
            for checked, step in zip(found, steps, strict=False)
        ]
        missing = steps[len(found) :]
        if all(step.outcome == "done" for step in tried):
            missing = [
                await self._tried(step, self.delete(step.name, if_match=step.hash_before))
                for step in missing
            ]
        steps = [*tried, *missing]
        return SyncPlan(steps, applied=all(step.outcome == "done" for step in steps))

    async def _tried(self, step: SyncStep, doing: Awaitable[Any]) -> SyncStep:
        """The step with what became of it."""
        try:
            await doing
        except UnknownDefinition:
            pass  # it was to be deleted, and somebody else has
        except (Conflict, DefinitionExists) as error:
            return msgspec.structs.replace(step, outcome="conflict", message=error.message)
        return msgspec.structs.replace(step, outcome="done")

    async def _step(
        self, found: Checked, heads: dict[str, DefinitionRecord], seen: set[str]
    ) -> SyncStep:
        name = "" if found.definition is None else found.definition.name
        problems = [*found.problems]
        if name and name in seen:
            said = f"Two documents are called {name!r}."
            problems.append(Problem("name", "duplicate_name", said, "Names are unique."))
        try:
            await self._revising.refuse_code(name)
        except DefinitionExists as error:
            problems.append(Problem("name", "name_taken", error.message))
        if any(problem.severity == "error" for problem in problems) or not found.ok:
            return SyncStep(name, "invalid", problems=problems)
        head = heads.get(name)
        before = None if head is None else head.hash
        if before == found.hash:
            return SyncStep(name, "unchanged", before, before, problems=problems)
        old = None if before is None else await self._revising.document(before)
        return SyncStep(
            name, "create" if head is None else "update", before, found.hash,
            describe(diff(old, found.document)), problems,
        )  # fmt: skip

    @operation(
        "DELETE /definitions/{name}", needs="build", destructive=True,
        raises=(UnknownDefinition, Conflict),
    )  # fmt: skip
    async def delete(self, name: DefinitionRef, *, if_match: str | None = None) -> None:
        """Delete a definition with its draft, history and proposals; its runs go on.

        `if_match` is the hash of its current revision, or an etag: Conflict if another one is
        current.
        """

        async def attempt() -> None:
            head = await self._revising.find(name)
            if if_match is not None and (seen := revision_in(if_match)) != head.hash:
                raise await self._revising.superseded(name, head, seen, None)
            await self._revising.amend(Amendment(self._revising.changed(head), deleted=True))

        await self._revising.persist(attempt)

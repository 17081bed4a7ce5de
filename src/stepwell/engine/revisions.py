"""Documents that runs are pinned to, read and compiled once for each process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from stepwell.errors import InvalidDefinition, RevisionNotFound
from stepwell.graph.check import check
from stepwell.graph.control import CONTROL
from stepwell.graph.definition import Definition
from stepwell.graph.inputs import Inputs
from stepwell.graph.parse import parse
from stepwell.graph.plan import Plan
from stepwell.graph.problems import Problems
from stepwell.record import Records

if TYPE_CHECKING:
    from stepwell.node import NodeType, NodeTypes

# How many are kept; one that is not is read again.
KEPT = 500


class Revision:
    """One document, made ready."""

    def __init__(self, hash: str, document: str, types: NodeTypes) -> None:
        self.hash = hash
        self._types = types
        problems = Problems()
        data = msgspec.json.decode(document)
        definition = parse(data, types.aliases, problems)
        if definition is None or not problems.ok:
            raise _unusable(hash, problems)
        self.definition: Definition = definition

    @cached_property
    def plan(self) -> Plan:
        problems = Problems()
        plan = check(self.definition, self._types.by_name, problems)
        if plan is None:
            raise _unusable(self.hash, problems)
        return plan

    @cached_property
    def types(self) -> frozenset[str]:
        """The types of the nodes in it."""
        return frozenset(node.type for node in self.definition.graph.all_nodes())

    @property
    def unknown_types(self) -> frozenset[str]:
        """Those that this process has not."""
        return self.types - CONTROL.keys() - self.kinds.keys()

    @property
    def plugged_in(self) -> frozenset[str]:
        """Those that not every process has."""
        return self.unknown_types | (self.types & self._types.plugged_in)

    @cached_property
    def inputs(self) -> Inputs:
        return Inputs(self.definition.inputs)

    @property
    def kinds(self) -> Mapping[str, NodeType]:
        return self._types.by_name


class Revisions:
    """The documents of a workspace by their hash."""

    def __init__(self, records: Records, workspace_id: str, types: Callable[[], NodeTypes]) -> None:
        self._records = records
        self._workspace_id = workspace_id
        self._types = types
        self._kept: dict[str, Revision] = {}

    async def get(self, hash: str) -> Revision:
        found = self._kept.get(hash)
        if found is None:
            document = await self._records.document(self._workspace_id, hash)
            if document is None:
                raise RevisionNotFound(f"The store has no document {hash}.", hash=hash)
            found = Revision(hash, document, self._types())
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[hash] = found
        return found

    async def known(self, name: str, hash: str) -> list[Revision]:
        """A revision by its hash, and all others of the definition that this process can read."""
        listed = await self._records.revisions(self._workspace_id, name)
        found = [await self.get(hash)]
        for each in listed:
            if each.hash != hash:
                with suppress(InvalidDefinition, RevisionNotFound):
                    found.append(await self.get(each.hash))
        return found


def _unusable(hash: str, problems: Problems) -> InvalidDefinition:
    """A document that was checked once, by a process that knew more node types, say."""
    first = next(each for each in problems.found if each.severity == "error")
    details: Any = msgspec.to_builtins(problems.found)
    return InvalidDefinition(
        f"This worker cannot execute the document {hash[:12]}: {first.path}: {first.message}",
        problems=details,
    )

"""Whether a trigger fits the definition that it starts runs of."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.errors import InvalidInput, UnknownDefinition
from stepwell.graph.inputs import Inputs
from stepwell.graph.problems import Problem, Problems
from stepwell.graph.triggers import check_map, doubt_map, warn_of_secrets
from stepwell.kernel.names import did_you_mean, show
from stepwell.kernel.records import TriggerRecord
from stepwell.operation import Workspace
from stepwell.operations.arming import type_named
from stepwell.record import VersionRow


async def version_of(workspace: Workspace, definition: str) -> VersionRow:
    """The current version of a definition; raises if there is none."""
    row = await workspace.store.version(workspace.id, definition, None)
    if row is None:
        names = await workspace.store.definition_names(workspace.id)
        raise UnknownDefinition(
            f"No definition {show(definition)} has been published."
            f"{did_you_mean(definition, names)} Publish it first, or start a worker that brings "
            "it.",
            definition=definition,
        )
    return row


async def document_of(workspace: Workspace, definition: str) -> dict[str, Any] | None:
    """The current document of a definition; None if it is code, which has none."""
    row = await version_of(workspace, definition)
    if row.revision is None:
        return None
    text = await workspace.store.records.document(workspace.id, row.revision)
    found: dict[str, Any] = {} if text is None else msgspec.json.decode(text)
    return found


async def zone_of(workspace: Workspace, definition: str, given: str | None) -> str:
    """The time zone of a definition's triggers; `given` is for one that is code."""
    document = await document_of(workspace, definition)
    if document is None:
        return given or "UTC"
    if given is not None:
        raise InvalidInput(
            f"{definition!r} is data: its document says the time zone, for all its triggers."
        )
    return str(document.get("timezone") or "UTC")


async def refuse_unknown_inputs(workspace: Workspace, trigger: TriggerRecord) -> None:
    """Raise if the map of a trigger has names that no input of its definition has."""
    document = await document_of(workspace, trigger.definition) or {}
    problems = Problems()
    check_map(trigger.config.get("map"), document.get("inputs"), "", problems)
    type_named(workspace.types().triggers, trigger.type).refuse(problems)


async def doubts_of(workspace: Workspace, trigger: TriggerRecord) -> list[Problem]:
    """What is allowed about a trigger, and yet hardly meant."""
    problems = Problems()
    kind = type_named(workspace.types().triggers, trigger.type)
    document = await document_of(workspace, trigger.definition) or {}
    inputs, map = document.get("inputs"), trigger.config.get("map")
    # It was right when it was written: the inputs may have changed since.
    check_map(map, inputs, "", problems)
    if problems.ok:
        doubt_map(map, kind, Inputs(inputs), "", problems)
    if wanted := kind.secrets_of(trigger.config):
        secrets = await workspace.store.records.secrets(workspace.id)
        warn_of_secrets(wanted, {each.name for each in secrets}, "", problems)
    return problems.found

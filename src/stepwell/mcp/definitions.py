"""Tools that come and go: one for each definition that is enabled and published."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types as types

from stepwell.errors import InvalidInput, StepwellError
from stepwell.kernel.records import DefinitionRecord
from stepwell.kernel.run import Run
from stepwell.mcp.answers import answer
from stepwell.mcp.asking import (
    Answered,
    Asked,
    Context,
    Shown,
    ask_now,
    asked_before,
    decidable,
    decide_asked,
    require,
    shown,
)
from stepwell.mcp.following import follow, report
from stepwell.mcp.seat import Manner, Seat

PREFIX = "run_"
# What clients take at most.
MAX_NAME = 64
_DIGEST = 8
# How many are listed at a time.
PAGE = 100
# What the input is called of a definition that takes no object.
INPUT = "input"


def tool_name(definition: str) -> str:
    """What the tool of a definition is called; no other's is called the same."""
    name = PREFIX + definition.replace("-", "_")
    if len(name) < MAX_NAME:
        return name
    digest = hashlib.sha256(definition.encode()).hexdigest()[:_DIGEST]
    return f"{name[: MAX_NAME - _DIGEST - 1]}_{digest}"


async def offered(seat: Seat) -> list[DefinitionRecord]:
    """The definitions that have a tool, by name."""
    if not seat.may("run"):
        return []
    found: Sequence[DefinitionRecord] = await seat.call("definitions.list")
    return sorted((e for e in found if e.enabled and e.hash is not None), key=lambda e: e.name)


async def find(seat: Seat, tool: str) -> DefinitionRecord | None:
    """The definition whose tool is called so."""
    if not tool.startswith(PREFIX):
        return None
    return next((each for each in await offered(seat) if tool_name(each.name) == tool), None)


async def listed(seat: Seat, after: str | None) -> tuple[list[types.Tool], str | None]:
    """Tools of definitions behind the one with that name, and where to go on."""
    found = [each for each in await offered(seat) if after is None or each.name > after]
    page, more = found[:PAGE], found[PAGE:]
    tools = [tool for each in page if (tool := await _tool(seat, each)) is not None]
    return tools, page[-1].name if more else None


async def _tool(seat: Seat, record: DefinitionRecord) -> types.Tool | None:
    try:
        document = await seat.call("definitions.document", name=record.name)
    except StepwellError:  # deleted meanwhile
        return None
    about = document.get("description") or record.title or record.name
    return types.Tool(
        name=tool_name(record.name),
        title=record.title or record.name,
        description=f"{about}\n\nRuns {record.name} {record.version}. Answers with its output, or "
        "with the id of the run and what to do next if it takes long or waits for somebody.",
        input_schema=input_schema(document.get("inputs")),
        annotations=types.ToolAnnotations(
            read_only_hint=False, destructive_hint=False, idempotent_hint=False,
            open_world_hint=True,
        ),
    )  # fmt: skip


def takes_object(inputs: Mapping[str, Any]) -> bool:
    """Whether an input can be an object, as arguments of tools always are."""
    kind = inputs.get("type", "object")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def input_schema(inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The schema of a tool's arguments, from that of a definition's input."""
    if inputs is None:
        return {"type": "object"}
    if takes_object(inputs):
        return {**inputs, "type": "object"}
    inner = {key: value for key, value in inputs.items() if key != "$defs"}
    outer = {"$defs": inputs["$defs"]} if "$defs" in inputs else {}
    return {"type": "object", "properties": {INPUT: inner}, "required": [INPUT], **outer}


async def call(
    context: Context, seat: Seat, record: DefinitionRecord, params: types.CallToolRequestParams,
    manner: Manner,
) -> Answered:  # fmt: skip
    """Start a run, or go on with the one that the caller was asked about; and follow it."""
    asked = asked_before(params)
    if asked is None:
        run_id = await _start(seat, record, params.arguments or {})
    else:
        run_id = await _again(seat, record, asked)
    try:
        settled = await decide_asked(seat, asked, params.input_responses or {}) if asked else set()
        return await _follow(context, seat, run_id, settled, manner)
    except StepwellError as error:
        error.details.setdefault("run_id", run_id)
        raise


async def _follow(
    context: Context, seat: Seat, run_id: str, settled: set[Shown], manner: Manner
) -> Answered:
    """What becomes of a run, or a question about it; nothing is asked twice."""
    while True:
        found = await follow(seat, run_id, manner.wait_seconds)
        gates = [each for each in decidable(found.gates, seat) if shown(each) not in settled]
        if gates and (required := require(context, run_id, gates)) is not None:
            return required
        if not gates or not await ask_now(context, seat, gates[0]):
            return answer(await report(seat, found, manner))
        settled.add(shown(gates[0]))


async def _start(seat: Seat, record: DefinitionRecord, given: dict[str, Any]) -> str:
    inputs = (await seat.call("definitions.document", name=record.name)).get("inputs")
    input: Any = given
    if inputs is not None and not takes_object(inputs):
        if given.keys() != {INPUT}:
            raise InvalidInput(f"{record.name} takes one argument, {INPUT!r}.")
        input = given[INPUT]
    started = await seat.call("runs.start", ref=record.name, input=input)
    run_id: str = started.id
    return run_id


async def _again(seat: Seat, record: DefinitionRecord, asked: Asked) -> str:
    run: Run = await seat.call("runs.get", run_id=asked.run_id)
    if run.definition != record.name:
        raise InvalidInput(f"Run {run.id} is one of {run.definition}, not of {record.name}.")
    return run.id

"""An instruction that waits until somebody has followed it: a person, or an agent."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from stepwell.errors import TaskFailed
from stepwell.kernel.tasks import advance_name, read_report
from stepwell.node import Call, NodeConfig, Words, WrittenDuration, node


class Config(NodeConfig):
    """What is to be done."""

    title: Words = Field(description="In a few words.")
    instructions: Words = Field("", description="In as many words as it takes.")
    acceptance: Words = Field("", description="How to tell that it is done.")
    assignee: str | None = Field(None, description="Who is to do it.")
    timeout: WrittenDuration | None = Field(None, description="How long to wait until it fails.")


@node("task", title="Task", group="people", config=Config, durable=True, aliases=("dispatch_task",))
async def task(config: Config, call: Call) -> dict[str, Any]:
    """Wait until the task is advanced; the output is its summary and whatever came with it."""
    name = f"{call.key}.task"
    if call.unattended and not call.durably.waits_for(name):
        report = {"summary": "", "output": None}
        await call.durably.answer(name, "task", report)
        return report
    about = config.model_dump(exclude={"timeout"}, exclude_none=True) | {"step": call.key}
    answered, report = await call.durably.ask(
        name, "task", advance_name(call.key), about, config.timeout
    )
    if not answered:
        raise TaskFailed(f"Nobody advanced {call.key!r} in time.", step=call.key)
    return read_report(call.key, report)

"""`stepwell events`: what happened in the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.catalog import trigger_types
from stepwell.cli.arguments import common, read_json
from stepwell.cli.health import warn_without_worker
from stepwell.cli.output import brief, emit, moment, table
from stepwell.cli.server_files import needs_store
from stepwell.cli.session import connected
from stepwell.errors import StepwellError
from stepwell.graph.problems import Problems
from stepwell.kernel.clock import to_datetime
from stepwell.kernel.records import EventRecord

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.operations.trigger_views import TriggerView


@click.group()
def events() -> None:
    """Events of the workspace: they end waits, and start the runs of triggers.

    \b
    Example:
      stepwell events emit user.signup '{"id": 42}'
    """


@events.command("emit")
@click.argument("type_", metavar="TYPE")
@click.argument("payload", required=False, metavar="[PAYLOAD]")
@click.option("--key", metavar="TEXT", help="What it is about.")
@click.option("--once", is_flag=True, help="Only if there is none of this type and key yet.")
@common
def emit_(
    type_: str, payload: str | None, key: str | None, once: bool, store: str | None, as_json: bool
) -> None:
    """Emit an event; the payload is JSON, - reads it from standard input.

    \b
    Examples:
      stepwell events emit user.signup '{"id": 42}'
      stepwell events emit release --key v1.2 --once
    """
    given = None if payload is None else read_json(payload, "The payload")

    async def work(stepwell: Stepwell) -> tuple[bool, list[TriggerView]]:
        created = await stepwell.emit(type_, given, key=key, once=once)
        found = [each for each in await stepwell.triggers.views() if each.event is not None]
        if created:
            await warn_without_worker(stepwell)
        return created, found

    created, found = connected(store, work)
    listening = [each for each in found if each.event == type_ and each.status == "enabled"]
    wanting = sum(_may_want(each, EventRecord("", type_, key, given, 0)) for each in listening)
    if as_json:
        counts = {"triggers": len(listening), "wanting": wanting}
        emit({"type": type_, "key": key, "emitted": created, **counts})
    elif created:
        filtered = f"; {_of_them(wanting)} this payload" if wanting < len(listening) else ""
        click.echo(f"Emitted {type_}. Triggers that listen for it: {len(listening)}{filtered}.")
    else:
        click.echo(f"There was an event {type_} with this key already; nothing was emitted.")
    if created and not listening:
        click.echo(_unheard(type_, found), err=True)


def _may_want(trigger: TriggerView, event: EventRecord) -> bool:
    """Whether its filter lets an event pass, as far as that is known here."""
    kind, text = trigger_types().get(trigger.type), trigger.config.get("filter")
    if kind is None or (isinstance(text, str) and "event" in text):
        return True  # the id and the time of the event are known where it was stored
    try:
        return kind.wants(kind.valid(trigger.config, trigger.timezone), event)
    except StepwellError:  # whoever fires it says so at the trigger
        return True


def _of_them(wanting: int) -> str:
    return {0: "none of them wants", 1: "1 of them wants"}.get(wanting, f"{wanting} of them want")


def _unheard(type_: str, found: list[TriggerView]) -> str:
    """That nothing is started by an event, and what may have been meant."""
    for each in found:
        if each.event == type_:
            name = f"{each.definition}/{each.name}"
            return f"Warning: No trigger fires for it: {name} is off, see stepwell triggers show."
    known = {each.event for each in found if each.event is not None}
    hint = Problems().did_you_mean(type_, sorted(known))
    return (
        f"Warning: No trigger fires for {type_!r}; only runs that wait for it go on. {hint}".strip()
    )


@events.command("list")
@click.option("--type", "type_", metavar="TYPE", help="Only events of this type.")
@click.option("--limit", default=20, show_default=True, help="How many at most.")
@click.option("--cursor", metavar="CURSOR", help="Go on after an earlier list.")
@click.option("--cloudevents", is_flag=True, help="As a batch of CloudEvents, in JSON.")
@common
def list_(
    type_: str | None, limit: int, cursor: str | None, cloudevents: bool, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List events of the last 7 days, the newest first.

    \b
    Example:
      stepwell events list --type user.signup
    """

    async def work(stepwell: Stepwell) -> tuple[Any, list[dict[str, Any]]]:
        if cloudevents and hasattr(stepwell, "server_url"):
            raise needs_store("--cloudevents")
        page = await stepwell.events.list(type_, limit=limit, cursor=cursor)
        return page, stepwell.events.cloudevents(page.items) if cloudevents else []

    page, batch = connected(store, work)
    if cloudevents:
        emit(batch)
        return
    if as_json:
        items = [
            {
                "id": each.id, "type": each.type, "key": each.key, "payload": each.payload,
                "created_at": to_datetime(each.created_at), "traceparent": each.traceparent,
            }
            for each in page.items
        ]  # fmt: skip
        emit({"items": items, "next_cursor": page.next_cursor})
        return
    rows = [
        (moment(to_datetime(each.created_at)), each.type, each.key or "–", brief(each.payload))
        for each in page.items
    ]
    click.echo("\n".join(table(("at", "type", "key", "payload"), rows)) if rows else "No events.")
    if page.next_cursor:
        click.echo(f"More: --cursor {page.next_cursor}")

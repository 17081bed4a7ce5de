"""`stepwell triggers`: what starts runs by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from stepwell.cli.arguments import common, read_json
from stepwell.cli.documents import say_problems
from stepwell.cli.health import Health, health_of, warn_without_worker
from stepwell.cli.oneself import own_name
from stepwell.cli.output import emit, fire_lines
from stepwell.cli.session import connected
from stepwell.cli.triggertext import list_lines, show_lines
from stepwell.errors import RunNotFound
from stepwell.graph.inputs import closed_fields
from stepwell.graph.problems import Problems
from stepwell.kernel.clock import to_datetime
from stepwell.kernel.zones import zone_named

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.operations.trigger_views import TriggerView
    from stepwell.operations.triggers import Triggers

MOST_LEFT_OUT = 20
# What a config looks like.
_CONFIG = '{"cron": "0 3 * * *"}'
_trigger = click.argument("trigger", metavar="TRIGGER")


@click.group()
def triggers() -> None:
    """Triggers: schedules, webhooks, events, and what people fire by hand.

    TRIGGER is an id, or DEFINITION/NAME. Triggers that stand in the document of a definition
    come and go with it; others are made by hand and stay.

    \b
    Example:
      stepwell triggers list
      stepwell triggers show nightly-checks/nightly
    """


@triggers.command("list")
@click.argument("definition", required=False, metavar="[DEFINITION]")
@common
def list_(definition: str | None, store: str | None, as_json: bool) -> None:
    """List triggers, of one definition or of all, led by the health of the workers.

    \b
    Example:
      stepwell triggers list nightly-checks
    """

    async def work(stepwell: Stepwell) -> tuple[Health, list[dict[str, Any]]]:
        found = await stepwell.triggers.views(definition)
        return await health_of(stepwell), [asdict(each) for each in found]

    health, found = connected(store, work)
    if as_json:
        emit({"health": health, "items": found})
    else:
        click.echo("\n".join([*health.lines(), *list_lines(found)]))


@triggers.command()
@_trigger
@common
def show(trigger: str, store: str | None, as_json: bool) -> None:
    """Show a trigger: its config, when it fires next, what became of it, what it refused.

    \b
    Example:
      stepwell triggers show nightly-checks/nightly
    """

    async def work(stepwell: Stepwell) -> tuple[Health, dict[str, Any]]:
        found = await stepwell.triggers.view(trigger)
        refusals = await stepwell.triggers.refusals(found.id, 20)
        shown = asdict(found) | {
            "last_run_status": await _status(stepwell, found.last_run_id),
            "refusals": [
                {
                    "code": each.code, "message": each.message, "count": each.count,
                    "refused_at": to_datetime(each.refused_at),
                }
                for each in refusals
            ],
        }  # fmt: skip
        server = getattr(stepwell, "server_url", None)
        if server is not None and found.webhook_url is not None:
            shown["webhook_url"] = server + found.webhook_url
        return await health_of(stepwell), shown

    health, found = connected(store, work)
    if not as_json:
        click.echo("".join(f"{line}\n" for line in health.warned("no_worker")), nl=False)
    _say(found, as_json)


@triggers.command()
@click.argument("definition", metavar="DEFINITION")
@click.argument("type_", metavar="TYPE")
@click.argument("config", default="{}", metavar="[CONFIG]")
@click.option("--name", metavar="NAME", help="What it is called; else like its type.")
@click.option("--tz", metavar="ZONE", help="The time zone, for definitions in Python.")
@click.option("--disabled", is_flag=True, help="Make it, but let it not fire yet.")
@common
def create(
    definition: str, type_: str, config: str, name: str | None, tz: str | None, disabled: bool,
    store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make a trigger by hand; its config is JSON, - reads it from standard input.

    TYPE is schedule, event, webhook or manual. What a config may have is in docs/triggers.md,
    and what is wrong with one is said, field by field.

    \b
    Examples:
      stepwell triggers create tidy-up schedule '{"cron": "0 3 * * *"}' --tz Europe/Berlin
      stepwell triggers create deploy event '{"event": "release", "filter": {"env": "prod"}}'
    """
    given = read_json(config, "The config", _CONFIG)

    _change(
        store,
        as_json,
        lambda triggers: triggers.make(
            definition, type_, given, name=name, timezone=tz, enabled=not disabled
        ),
    )


@triggers.command()
@_trigger
@click.argument("config", metavar="CONFIG")
@common
def update(trigger: str, config: str, store: str | None, as_json: bool) -> None:
    """Give a trigger that was made by hand another config; - reads it from standard input.

    \b
    Example:
      stepwell triggers update tidy-up/schedule '{"cron": "0 4 * * *"}'
    """
    given = read_json(config, "The config", _CONFIG)
    _change(store, as_json, lambda triggers: triggers.change(trigger, given))


@triggers.command()
@_trigger
@common
def enable(trigger: str, store: str | None, as_json: bool) -> None:
    """Let a trigger fire, from now on; also one that was paused because it failed.

    \b
    Example:
      stepwell triggers enable nightly-checks/nightly
    """
    _change(store, as_json, lambda triggers: triggers.switch_on(trigger))


@triggers.command()
@_trigger
@common
def disable(trigger: str, store: str | None, as_json: bool) -> None:
    """Let a trigger fire no more.

    \b
    Example:
      stepwell triggers disable nightly-checks/nightly
    """
    _change(store, as_json, lambda triggers: triggers.switch_off(trigger), doubts=False)


@triggers.command()
@_trigger
@common
def delete(trigger: str, store: str | None, as_json: bool) -> None:
    """Delete a trigger that was made by hand.

    \b
    Example:
      stepwell triggers delete tidy-up/schedule
    """

    async def work(stepwell: Stepwell) -> TriggerView:
        found = await stepwell.triggers.view(trigger)
        await stepwell.triggers.delete(found.id)
        return found

    gone = connected(store, work)
    if as_json:
        emit({"id": gone.id, "deleted": True})
    else:
        click.echo(f"Deleted {gone.definition}/{gone.name}.")


@triggers.command()
@_trigger
@click.argument("payload", default="{}", metavar="[PAYLOAD]")
@click.option("--key", metavar="TEXT", help="Firing again with this key starts nothing new.")
@common
def fire(trigger: str, payload: str, key: str | None, store: str | None, as_json: bool) -> None:
    """Start a run as the trigger would, with this payload.

    Filter, signature and rate are not applied. Without a map, fields of the payload that are no
    inputs of the definition are left out; a manual trigger refuses them. - reads the payload from
    standard input.

    \b
    Example:
      stepwell triggers fire deploy/pushed '{"ref": "main"}'
    """
    given = read_json(payload, "The payload")

    async def work(stepwell: Stepwell) -> tuple[str, bool, list[str]]:
        fired = await stepwell.triggers.fire(trigger, given, key=key, user=own_name())
        await warn_without_worker(stepwell)
        left_out = fired.created and await _left_out(stepwell, trigger, fired.run_id, given)
        return fired.run_id, fired.created, left_out or []

    run_id, created, left_out = connected(store, work)
    if as_json:
        emit({"run_id": run_id, "created": created})
    else:
        click.echo(f"Run {run_id} {'started' if created else 'was started before'}.")
    if left_out:
        click.echo(
            f"Left out, since the definition has no such input: {', '.join(left_out)}", err=True
        )


async def _left_out(stepwell: Stepwell, trigger: str, run_id: str, payload: Any) -> list[str]:
    """Fields of a payload that did not get into the run's input, each with what may be meant."""
    found = await stepwell.triggers.view(trigger)
    input = (await stepwell.get_run(run_id)).input
    if found.config.get("map") is not None or not (
        isinstance(payload, dict) and isinstance(input, dict)
    ):
        return []
    left_out = [name for name in payload if name not in input]
    if not left_out:
        return []
    document = await stepwell.definitions.document(found.definition)
    fields = closed_fields(document.get("inputs") or {}) or []
    hints = [Problems().did_you_mean(name, fields) for name in left_out[:MOST_LEFT_OUT]]
    return [
        f"{name} ({hint[0].lower()}{hint[1:]})" if hint else name
        for name, hint in zip(left_out, hints, strict=False)
    ]


@triggers.command()
@_trigger
@click.option("--count", default=5, show_default=True, help="How many times to show.")
@common
def preview(trigger: str, count: int, store: str | None, as_json: bool) -> None:
    """Say when a trigger fires next.

    \b
    Example:
      stepwell triggers preview nightly-checks/nightly --count 10
    """

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.triggers.preview(trigger, count)

    found = connected(store, work)
    if as_json:
        emit(found)
        return
    fires = [datetime.fromisoformat(at) for at in found.next]
    zone = zone_named(found.timezone)
    local = [at.astimezone(zone) for at in fires]
    lines = fire_lines(local, local[0]) if local else []
    click.echo("\n".join([found.description, *lines]))


def _change(
    store: str | None, as_json: bool, change: Callable[[Triggers], Awaitable[TriggerView]],
    *, doubts: bool = True,
) -> None:  # fmt: skip
    """Make or change a trigger, and show it as it is then; also what is doubtful about it."""

    async def work(stepwell: Stepwell) -> dict[str, Any]:
        changed = await change(stepwell.triggers)
        if doubts:
            say_problems(await stepwell.triggers.doubts_of(changed.id))
        return asdict(changed)

    _say(connected(store, work), as_json)


async def _status(stepwell: Stepwell, run_id: str | None) -> str | None:
    """How a run is, if it is still kept."""
    try:
        return None if run_id is None else (await stepwell.get_run(run_id)).status
    except RunNotFound:
        return None


def _say(trigger: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(trigger)
    else:
        click.echo("\n".join(show_lines(trigger)))

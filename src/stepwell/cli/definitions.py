"""`stepwell definitions`: what the store knows to run as data, and its history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stepwell.cli.arguments import common
from stepwell.cli.documents import as_yaml, load, say_problems, say_published
from stepwell.cli.drafts import draft
from stepwell.cli.oneself import own_name
from stepwell.cli.output import emit, moment, table
from stepwell.cli.session import connected
from stepwell.cli.syncing import sync
from stepwell.graph.diff import describe
from stepwell.graph.documents import valid
from stepwell.kernel.clock import to_datetime
from stepwell.kernel.presenting import present

if TYPE_CHECKING:
    from stepwell.app import Stepwell

_name = click.argument("name", metavar="NAME")
_note = click.option("--note", default="", metavar="TEXT", help="Why.")
_if_match = click.option(
    "--if-match", metavar="HASH", help="Only if this revision is the current one."
)


@click.group()
def definitions() -> None:
    """Definitions that are data: publish, compare, roll back.

    \b
    Examples:
      stepwell definitions publish nightly.yaml
      stepwell definitions history nightly-checks
      stepwell definitions rollback nightly-checks 1.2.0
    """


definitions.add_command(draft)
definitions.add_command(sync)


@definitions.command("list")
@common
def list_(store: str | None, as_json: bool) -> None:
    """List definitions by name.

    \b
    Example:
      stepwell definitions list
    """

    async def work(stepwell: Stepwell) -> list[Any]:
        return list(await stepwell.definitions.list())

    found = connected(store, work)
    if as_json:
        emit({"items": present(found)})
        return
    rows = [
        (
            each.name, each.version or "draft", "yes" if each.enabled else "no",
            (each.hash or "–")[:12], moment(to_datetime(each.updated_at)), ", ".join(each.tags),
        )
        for each in found
    ]  # fmt: skip
    heads = ("name", "version", "enabled", "hash", "changed", "tags")
    click.echo("\n".join(table(heads, rows)) if rows else "No definitions.")


@definitions.command()
@_name
@click.option("--ref", metavar="REF", help="A revision: its version, number or hash; or `draft`.")
@common
def show(name: str, ref: str | None, store: str | None, as_json: bool) -> None:
    """Show a definition: its state, and its document.

    \b
    Example:
      stepwell definitions show nightly-checks --ref 1.2.0
    """

    async def work(stepwell: Stepwell) -> tuple[Any, Any]:
        head = await stepwell.definitions.get(name)
        wanted = ref if ref is not None or head.hash is not None else "draft"
        return head, await stepwell.definitions.document(name, wanted)

    head, document = connected(store, work)
    if as_json:
        emit({"definition": present(head), "document": document})
        return
    state = "enabled" if head.enabled else "disabled"
    click.echo(f"# {head.name} {head.version or '(never published)'}, {state}, {head.hash or ''}")
    click.echo(as_yaml(document), nl=False)


@definitions.command()
@_name
@click.option("--ref", metavar="REF", help="A revision: its version, number or hash; or `draft`.")
@click.option("--output", "-o", metavar="FILE", help="Write there instead.")
@common
def export(
    name: str, ref: str | None, output: str | None, store: str | None, as_json: bool
) -> None:
    """Write a definition's document as YAML, or as JSON with --json.

    \b
    Example:
      stepwell definitions export nightly-checks -o nightly.yaml
    """

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.definitions.document(name, ref)

    document = connected(store, work)
    text = msgspec.json.encode(document).decode() + "\n" if as_json else as_yaml(document)
    if output is None:
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, "utf-8")


@definitions.command()
@click.argument("file", metavar="FILE")
@click.option("--version", metavar="SEMVER", help="Instead of the one that comes next.")
@_if_match
@click.option("--disabled", is_flag=True, help="Do not let anything start runs of it.")
@_note
@common
def publish(
    file: str, version: str | None, if_match: str | None, disabled: bool, note: str,
    store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Check a file and make it the current revision of the definition that it names.

    Runs in flight keep the revision that they have.

    \b
    Example:
      stepwell definitions publish nightly.yaml --note "checks run longer"
    """
    document = load(file)
    say_problems(document.problems)
    valid(document)

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.definitions.publish(
            document.document, if_match=if_match, version=version, note=note,
            enabled=False if disabled else None, author=own_name(),
        )  # fmt: skip

    result = connected(store, work)
    said = {(each.path, each.code) for each in document.problems}
    # What only the store knows: whether there are the secrets that it names.
    say_problems([each for each in result.problems if (each.path, each.code) not in said])
    say_published(result, as_json)


@definitions.command()
@_name
@common
def history(name: str, store: str | None, as_json: bool) -> None:
    """Show the revisions that a definition has had, one for each hash, the newest first.

    \b
    Example:
      stepwell definitions history nightly-checks
    """

    async def work(stepwell: Stepwell) -> list[Any]:
        return list(await stepwell.definitions.history(name))

    found = connected(store, work)
    if as_json:
        emit({"items": present(found)})
        return
    rows = [
        (
            each.number, each.version, each.hash[:12], each.source, each.author or "–",
            moment(to_datetime(each.published_at)), "current" if each.current else "", each.note,
        )
        for each in found
    ]  # fmt: skip
    heads = ("number", "version", "hash", "source", "author", "published", "", "note")
    click.echo("\n".join(table(heads, rows)) if rows else f"{name} was never published.")


@definitions.command()
@_name
@click.argument("ref", metavar="REF")
@_if_match
@_note
@common
def rollback(
    name: str, ref: str, if_match: str | None, note: str, store: str | None, as_json: bool
) -> None:
    """Make an earlier revision current again; REF is its version, number or hash.

    \b
    Example:
      stepwell definitions rollback nightly-checks 1.2.0
    """

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.definitions.rollback(
            name, ref, if_match=if_match, note=note, author=own_name()
        )

    say_published(connected(store, work), as_json)


@definitions.command()
@_name
@click.argument("a", metavar="REF")
@click.argument("b", metavar="[REF]", required=False)
@common
def diff(name: str, a: str, b: str | None, store: str | None, as_json: bool) -> None:
    """Show what differs between two revisions; without the second, from the first to the current.

    REF is a version, a number, a hash, or `draft`.

    \b
    Example:
      stepwell definitions diff nightly-checks 1.1.0 1.2.0
    """

    async def work(stepwell: Stepwell) -> dict[str, Any]:
        return await stepwell.definitions.diff(name, a, b)

    found = connected(store, work)
    if as_json:
        emit({"diff": found})
    else:
        click.echo("\n".join(describe(found)) or "Nothing differs.")


def _switch(word: str, enabled: bool) -> None:
    example = f"\n\n\b\nExample:\n  stepwell definitions {word} nightly-checks"

    @definitions.command(word, help=f"{word.capitalize()} a definition.{example}")
    @_name
    @common
    def command(name: str, store: str | None, as_json: bool) -> None:
        async def work(stepwell: Stepwell) -> Any:
            return await stepwell.definitions.set_enabled(name, enabled)

        head = connected(store, work)
        if as_json:
            emit(present(head))
        else:
            click.echo(f"{name} is {'enabled' if head.enabled else 'disabled'}.")


_switch("enable", True)
_switch("disable", False)


@definitions.command()
@_name
@common
def delete(name: str, store: str | None, as_json: bool) -> None:
    """Delete a definition with its history; runs in flight go on.

    \b
    Example:
      stepwell definitions delete nightly-checks
    """

    async def work(stepwell: Stepwell) -> None:
        await stepwell.definitions.delete(name)

    connected(store, work)
    if as_json:
        emit({"name": name, "deleted": True})
    else:
        click.echo(f"Deleted {name}.")

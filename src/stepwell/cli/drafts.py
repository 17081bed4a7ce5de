"""`stepwell definitions draft`: edits that are kept, right or wrong, until they are published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.arguments import common
from stepwell.cli.documents import problem_lines, say_problems, say_published, text_of
from stepwell.cli.oneself import own_name
from stepwell.cli.output import emit, moment
from stepwell.cli.session import connected
from stepwell.graph.documents import plain
from stepwell.kernel.clock import to_datetime
from stepwell.kernel.presenting import present

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.graph.problems import Problem

_name = click.argument("name", metavar="NAME")
_if_match = click.option("--if-match", metavar="ETAG", help="Only if this is the draft there is.")


@click.group()
def draft() -> None:
    """Edits of a definition that are kept, right or wrong, until they are published.

    \b
    Examples:
      stepwell definitions draft save nightly-checks nightly.yaml
      stepwell definitions diff nightly-checks 1.2.0 draft
      stepwell definitions draft publish nightly-checks
    """


@draft.command()
@_name
@click.argument("file", metavar="FILE")
@click.option(
    "--if-match", metavar="ETAG",
    help="Only if this is the draft there is; without one, the hash of the current revision.",
)  # fmt: skip
@click.option(
    "--base", "base_hash", metavar="HASH", help="The current revision, which the edit is made from."
)
@common
def save(
    name: str, file: str, if_match: str | None, base_hash: str | None, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Keep a file as the draft of a definition, whatever is wrong with it.

    A definition that is not there yet is made; nothing runs before it is published.

    \b
    Example:
      stepwell definitions draft save nightly-checks nightly.yaml
    """
    text = text_of(file)

    async def work(stepwell: Stepwell) -> tuple[Any, list[Problem]]:
        definitions = stepwell.definitions
        if name not in [each.name for each in await definitions.list()]:
            await definitions.create(name, text, author=own_name(), enabled=True)
        saved = await definitions.save_draft(
            name, text, if_match=if_match, base_hash=base_hash, author=own_name()
        )
        return saved, (await definitions.validation(text)).problems

    saved, problems = connected(store, work)
    say_problems(problems)
    if as_json:
        emit({**present(saved), "problems": plain(problems)})
    else:
        click.echo(f"The draft of {name} is saved ({saved.etag[:12]}).")


@draft.command()
@_name
@common
def show(name: str, store: str | None, as_json: bool) -> None:
    """Show the draft of a definition as it was saved, and what is wrong with it.

    \b
    Example:
      stepwell definitions draft show nightly-checks
    """

    async def work(stepwell: Stepwell) -> tuple[Any, list[Problem]]:
        found = await stepwell.definitions.get_draft(name)
        return found, (await stepwell.definitions.validation(found.document)).problems

    found, problems = connected(store, work)
    if as_json:
        emit({**present(found), "problems": plain(problems)})
        return
    saved = moment(to_datetime(found.saved_at))
    click.echo(f"# draft of {name}, saved {saved} by {found.author or '–'}, {found.etag}")
    for line in problem_lines(problems):
        click.echo(f"# {line}")
    click.echo(found.document.rstrip("\n"))


@draft.command()
@_name
@click.option("--version", metavar="SEMVER", help="Instead of the one that comes next.")
@_if_match
@click.option("--note", default="", metavar="TEXT", help="Why.")
@common
def publish(
    name: str, version: str | None, if_match: str | None, note: str, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Make the draft the current revision, if nothing is wrong with it.

    \b
    Example:
      stepwell definitions draft publish nightly-checks --note "checks run longer"
    """

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.definitions.publish_draft(
            name, if_match=if_match, version=version, note=note, author=own_name()
        )

    result = connected(store, work)
    say_problems(result.problems)
    say_published(result, as_json)


@draft.command()
@_name
@_if_match
@common
def discard(name: str, if_match: str | None, store: str | None, as_json: bool) -> None:
    """Forget the draft; what is published stays as it is.

    \b
    Example:
      stepwell definitions draft discard nightly-checks
    """

    async def work(stepwell: Stepwell) -> bool:
        return await stepwell.definitions.discard_draft(name, if_match=if_match)

    discarded = connected(store, work)
    if as_json:
        emit({"name": name, "discarded": discarded})
    else:
        click.echo(f"Discarded the draft of {name}." if discarded else f"{name} has no draft.")

"""`stepwell propose` suggests a change of a definition; `stepwell proposals` reviews it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from stepwell.cli.arguments import common, read_json
from stepwell.cli.oneself import own_name
from stepwell.cli.output import emit, moment, table
from stepwell.cli.session import connected
from stepwell.errors import InvalidInput
from stepwell.graph.diff import describe
from stepwell.kernel.clock import to_datetime
from stepwell.kernel.presenting import present

if TYPE_CHECKING:
    from stepwell.app import Stepwell
    from stepwell.kernel.records import ProposalStatus

_id = click.argument("proposal_id", metavar="PROPOSAL")
_note = click.option("--note", default="", metavar="TEXT", help="Why.")
_by = click.option("--by", metavar="NAME", help="Who; else whoever is logged in here.")


@click.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--operations",
    "given",
    default="-",
    metavar="JSON",
    help="A list of operations; - (the default) reads standard input.",
)
@click.option("--base", metavar="HASH", help="The revision it was made for; else the current one.")
@_note
@_by
@common
def propose(
    name: str, given: str, base: str | None, note: str, by: str | None, store: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Suggest a change of a definition, if its policy allows that.

    Operations are objects with `op`: add_node (node, into), update_node (id, set, unset),
    remove_node (id), add_edge (edge), update_edge (source, target, set, unset), remove_edge
    (source, target), set_meta (set, unset).

    \b
    Example:
      stepwell propose nightly-checks --operations \\
        '[{"op": "update_node", "id": "checks", "set": {"timeout": "20m"}}]'
    """
    operations = read_json(given, "--operations")
    if not isinstance(operations, list):
        raise InvalidInput("Operations are a list.")

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.proposals.propose(
            name, operations, base_hash=base, note=note, author=by or own_name()
        )

    _say(connected(store, work), as_json)


@click.group()
def proposals() -> None:
    """Changes that somebody has suggested: look at them, review and apply them.

    \b
    Example:
      stepwell proposals list nightly-checks
    """


@proposals.command("list")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--status", metavar="STATUS", help="Only those: pending, approved, applied …")
@common
def list_(name: str | None, status: str | None, store: str | None, as_json: bool) -> None:
    """List the proposals for a definition, or for all of them, the newest first.

    \b
    Examples:
      stepwell proposals list --status pending
      stepwell proposals list nightly-checks
    """

    async def work(stepwell: Stepwell) -> list[Any]:
        return list(await stepwell.proposals.list(name, cast("ProposalStatus | None", status)))

    found = connected(store, work)
    if as_json:
        emit({"items": present(found)})
        return
    rows = [
        (
            each.id, each.definition, each.status, each.author,
            moment(to_datetime(each.expires_at)), each.note,
        )
        for each in found
    ]  # fmt: skip
    heads = ("proposal", "definition", "status", "author", "expires", "note")
    click.echo("\n".join(table(heads, rows)) if rows else "No proposals.")


@proposals.command()
@_id
@common
def show(proposal_id: str, store: str | None, as_json: bool) -> None:
    """Show a proposal: what it would change, and what is wrong with that.

    \b
    Example:
      stepwell proposals show PROPOSAL
    """

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.proposals.get(proposal_id)

    _say(connected(store, work), as_json)


@proposals.command()
@_id
@click.option("--decision", type=click.Choice(["approve", "reject"]), required=True)
@_note
@_by
@common
def review(
    proposal_id: str, decision: str, note: str, by: str | None, store: str | None, as_json: bool
) -> None:
    """Approve or reject a proposal.

    \b
    Example:
      stepwell proposals review PROPOSAL --decision approve
    """

    async def work(stepwell: Stepwell) -> Any:
        return await stepwell.proposals.review(
            proposal_id, decision == "approve", reviewer=by or own_name(), note=note
        )

    _say(connected(store, work), as_json)


@proposals.command()
@_id
@_by
@common
def apply(proposal_id: str, by: str | None, store: str | None, as_json: bool) -> None:
    """Publish what an approved proposal suggests.

    \b
    Example:
      stepwell proposals apply PROPOSAL
    """

    async def work(stepwell: Stepwell) -> Any:
        await stepwell.proposals.apply(proposal_id, author=by or own_name())
        return await stepwell.proposals.get(proposal_id)

    _say(connected(store, work), as_json)


def _say(proposal: Any, as_json: bool) -> None:
    if as_json:
        emit(present(proposal))
        return
    click.echo(f"Proposal {proposal.id} for {proposal.definition}: {proposal.status}")
    if proposal.note:
        click.echo(f"  {proposal.note}")
    for line in describe(proposal.diff):
        click.echo(f"  {line}")
    for problem in proposal.problems:
        click.echo(f"  {problem['severity']}: {problem['path']}: {problem['message']}")
    if (review := proposal.review) is not None:
        said = f": {review.note}" if review.note else ""
        click.echo(f"  {'approved' if review.approve else 'rejected'} by {review.reviewer}{said}")
    if proposal.error is not None:
        click.echo(f"  not applied: {proposal.error}")

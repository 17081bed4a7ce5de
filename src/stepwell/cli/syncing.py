"""`stepwell definitions sync`: the definitions of a store brought to what a folder says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stepwell.cli.arguments import common
from stepwell.cli.documents import ENDINGS, load, problem_lines
from stepwell.cli.exits import INPUT_ERROR, OK
from stepwell.cli.oneself import own_name
from stepwell.cli.output import emit
from stepwell.cli.session import connected
from stepwell.errors import InvalidInput
from stepwell.graph.documents import Checked
from stepwell.graph.problems import Problem
from stepwell.operations.syncing import SyncPlan, SyncStep

if TYPE_CHECKING:
    from stepwell.app import Stepwell


@click.command()
@click.argument("folder", metavar="FOLDER")
@click.option("--apply", is_flag=True, help="Do it; without, the plan is shown only.")
@click.option("--delete-missing", is_flag=True, help="Delete definitions that have no file.")
@common
def sync(folder: str, apply: bool, delete_missing: bool, store: str | None, as_json: bool) -> int:
    """Bring the definitions to what the files of a folder say; without --apply, show how.

    \b
    Example:
      stepwell definitions sync flows --apply
    """
    if not Path(folder).is_dir():
        raise InvalidInput(f"{folder} is no folder.")
    files = sorted(each for each in Path(folder).iterdir() if each.suffix in ENDINGS)
    loaded = [load(str(each)) for each in files]

    async def work(stepwell: Stepwell) -> SyncPlan:
        return await stepwell.definitions.sync_all(
            [found.document for found in loaded], delete_missing=delete_missing,
            apply=apply, author=own_name(),
        )  # fmt: skip

    plan = connected(store, work)
    steps = [
        msgspec.structs.replace(step, problems=_problems(index, plan.steps, files, loaded))
        for index, step in enumerate(plan.steps)
    ]
    # Those of files come first, one for each; the rest is deleted.
    named = [str(each) for each in files] + [None] * (len(steps) - len(files))
    if as_json:
        listed = [
            msgspec.to_builtins(step) | {"file": file}
            for step, file in zip(steps, named, strict=True)
        ]
        emit({"applied": plan.applied, "ok": plan.ok, "steps": listed})
    else:
        for step, file in zip(steps, named, strict=True):
            click.echo("\n".join(_lines(step, file, apply)))
        click.echo(_closing(plan, apply))
    return OK if plan.ok else INPUT_ERROR


def _problems(
    index: int, steps: Sequence[SyncStep], files: Sequence[Path], loaded: Sequence[Checked]
) -> list[Problem]:
    """What is wrong with a file, with its lines, and what only the store or the others know."""
    step = steps[index]
    if index >= len(files):
        return step.problems
    if loaded[index].document is None:
        return loaded[index].problems  # and nothing else could be looked at
    known = {(each.path, each.code) for each in loaded[index].problems}
    found = [*loaded[index].problems]
    for each in step.problems:
        if each.code == "duplicate_name":
            other = next(
                file for file, at in zip(files, steps, strict=False) if at.name == step.name
            )
            said = f"{other} is called {step.name!r} as well."
            found.append(msgspec.structs.replace(each, message=said))
        elif (each.path, each.code) not in known:
            found.append(each)
    return found


def _lines(step: SyncStep, file: str | None, apply: bool) -> list[str]:
    undone = " (not done)" if apply and step.outcome != "done" else ""
    where = f"  {file}" if file is not None and step.problems else ""
    said = [*step.changes, *problem_lines(step.problems), step.message]
    return [
        f"{step.action:<10} {step.name or '?'}{undone}{where}",
        *(f"    {line}" for line in filter(None, said)),
    ]


def _closing(plan: SyncPlan, apply: bool) -> str:
    if plan.applied:
        changed = sum(step.action != "unchanged" for step in plan.steps)
        return f"Done: {changed} of {len(plan.steps)} changed." if changed else "All is up to date."
    if not apply and plan.ok:
        return "Nothing was changed; --apply does it."
    some = any(step.outcome == "done" for step in plan.steps)
    return "Not all of it was done." if some else "Nothing was done."

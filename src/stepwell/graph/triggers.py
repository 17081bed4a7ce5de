"""Triggers as they are written in a document: whether they have the form that they must have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from stepwell.errors import InvalidPath, StepwellError
from stepwell.graph.definition import Definition
from stepwell.graph.fields import Fields
from stepwell.graph.inputs import Inputs, closed_fields
from stepwell.graph.problems import Problems, below
from stepwell.kernel.mapping import mapped, read_map

# What a trigger has beside what its type says.
COMMON = ("id", "type", "title", "enabled")
MAX_TITLE = 500


class TriggerKind(Protocol):
    """A type of trigger that can say what is wrong with a config."""

    def check(
        self, config: Mapping[str, Any], zone: str, path: str, problems: Problems
    ) -> None: ...

    def secrets_of(self, config: Mapping[str, Any]) -> Iterable[str]: ...

    def told(self) -> Any: ...

    def is_over(self, config: Mapping[str, Any], zone: str, now: int) -> bool: ...


def check_triggers(
    definition: Definition, kinds: Mapping[str, TriggerKind], problems: Problems,
    secrets: Collection[str] | None = None, now: int | None = None,
) -> None:  # fmt: skip
    """Note what is wrong with the triggers of a definition.

    `secrets` are the names of those there are, and `now` is the time, as far as that is known.
    """
    for index, trigger in enumerate(definition.triggers):
        path = below("triggers", index)
        kind = trigger.get("type")
        Fields(problems).text(trigger, "title", path, MAX_TITLE)
        Fields(problems).flag(trigger, "enabled", path)
        if not isinstance(kind, str):
            problems.error(below(path, "type"), "missing_field", "A trigger has a type.")
        elif kind not in kinds:
            problems.error(
                below(path, "type"), "unknown_type", f"There is no trigger type {kind!r}.",
                problems.did_you_mean(kind, kinds) or f"There are {', '.join(sorted(kinds))}.",
            )  # fmt: skip
        else:
            config = _config_of(trigger)
            kinds[kind].check(config, definition.timezone, path, problems)
            check_map(config.get("map"), definition.inputs, path, problems)
            if secrets is not None:
                warn_of_secrets(kinds[kind].secrets_of(config), secrets, path, problems)
    _check_paths(definition, problems)
    if problems.ok:  # else nothing of it can be tried out
        _doubt(definition, kinds, problems, now)


def _doubt(
    definition: Definition, kinds: Mapping[str, TriggerKind], problems: Problems, now: int | None
) -> None:
    """Warn of triggers that are right as such, and can never start a run."""
    inputs = Inputs(definition.inputs)
    for index, trigger in enumerate(definition.triggers):
        path, kind = below("triggers", index), kinds[trigger["type"]]
        if now is not None and kind.is_over(_config_of(trigger), definition.timezone, now):
            problems.warning(below(path, "at"), "in_the_past", "This has passed: it never fires.")
        doubt_map(trigger.get("map"), kind, inputs, path, problems)


def doubt_map(map: Any, kind: TriggerKind, inputs: Inputs, path: str, problems: Problems) -> None:
    """Warn of a trigger that is told always the same, and can start no run with it."""
    if (told := kind.told()) is None:
        return
    try:
        inputs.prepared(inputs.known(told) if map is None else mapped(map, told))
    except StepwellError as error:
        problems.warning(
            path, "input_invalid", f"It can start no run. {error.message}",
            "Give what is required by a map, or a default in the inputs.",
        )  # fmt: skip


def _config_of(trigger: Mapping[str, Any]) -> dict[str, Any]:
    return {key: trigger[key] for key in trigger if key not in COMMON}


def check_map(map: Any, inputs: dict[str, Any] | None, path: str, problems: Problems) -> None:
    """Note slips, and names that no input of the definition has: no run could be started so."""
    place = below(path, "map")
    if isinstance(map, dict) and not any(each.path.startswith(place) for each in problems.found):
        try:
            read_map(map)
        except InvalidPath as error:
            problems.error(place, "bad_field", error.message)
    fields = None if inputs is None else closed_fields(inputs)
    if fields is None or not isinstance(map, dict):
        return
    for name in map:
        if name not in fields:
            problems.error(
                below(place, name), "unknown_input",
                f"The definition has no input {name!r}.",
                problems.did_you_mean(name, fields) or f"It has {', '.join(fields)}.",
            )  # fmt: skip


def warn_of_secrets(
    names: Iterable[str], secrets: Collection[str], path: str, problems: Problems
) -> None:
    """Warn of secrets by which requests are checked, and which are not there."""
    for name in names:
        if name not in secrets:
            problems.warning(
                below(path, "secret"), "unknown_secret",
                f"There is no secret {name!r} yet; until there is, all is refused.",
                problems.did_you_mean(name, secrets) or f"Store it: `stepwell secrets set {name}`.",
            )  # fmt: skip


def _check_paths(definition: Definition, problems: Problems) -> None:
    seen: dict[str, int] = {}
    for index, trigger in enumerate(definition.triggers):
        path = trigger.get("path")
        if isinstance(path, str) and path and seen.setdefault(path, index) != index:
            problems.error(
                below(below("triggers", index), "path"), "duplicate_path",
                f"The trigger {definition.triggers[seen[path]].get('id')!r} has the path "
                f"{path!r} already.",
            )  # fmt: skip

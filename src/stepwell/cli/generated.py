"""Commands made from operations that nobody has written one for: `stepwell NOUN VERB`.

What stands in the path of an operation is an argument, everything else an option; the help is the
operation's own. A command that deserves more is written by hand, and then this one is not made.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import click
import msgspec

from stepwell.cli.arguments import common, read_json
from stepwell.cli.oneself import own_name
from stepwell.cli.output import compact, emit
from stepwell.cli.rendering import lines_of
from stepwell.cli.session import connected
from stepwell.errors import InvalidInput
from stepwell.kernel.presenting import is_hidden
from stepwell.operation import Caller, Operation, Parameter

if TYPE_CHECKING:
    from stepwell.app import Stepwell

# Operations whose commands go by other names, or are part of one that does more.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "definitions.document": ("definitions", "export"),
    "definitions.get": ("definitions", "show"),
    "definitions.set_enabled": ("definitions", "enable"),
    # What `definitions sync` brings up to date is a folder.
    "definitions.sync": ("definitions", "sync-one"),
    "definitions.sync_all": ("definitions", "sync"),
    "definitions.validate": ("validate",),
    "drafts.discard": ("definitions", "draft", "discard"),
    "drafts.get": ("definitions", "draft", "show"),
    "drafts.publish": ("definitions", "draft", "publish"),
    "drafts.save": ("definitions", "draft", "save"),
    "proposals.get": ("proposals", "show"),
    "proposals.propose": ("propose",),
    "runs.get": ("runs", "show"),
    "runs.start_document": ("run",),
    "steps.tasks": ("steps", "current"),
    "triggers.get": ("triggers", "show"),
    "workers.health": ("workers",),
    "workers.list": ("workers",),
}
# What stands for a secret, which never stands in the list of processes itself.
ASKED = "-"


def path_of(operation: Operation) -> tuple[str, ...]:
    """The words of the command that does it."""
    noun, _, verb = operation.name.partition(".")
    return ELSEWHERE.get(operation.name, (noun, verb.replace("_", "-")))


def add_generated(main: click.Group, operations: Mapping[str, Operation]) -> list[str]:
    """Add what is missing; the names of the operations that were given a command."""
    made = []
    for each in operations.values():
        if command_at(main, path_of(each)) is None:
            noun, verb = path_of(each)
            group = main.commands.get(noun)
            if group is None:
                group = click.Group(noun, help=_about(noun, operations))
                main.add_command(group)
            assert isinstance(group, click.Group), f"{each.name} has no place: add it to ELSEWHERE"
            group.add_command(_command(each, verb))
            made.append(each.name)
    return made


def command_at(main: click.Group, path: tuple[str, ...]) -> click.Command | None:
    """The command with these words, if there is one."""
    found: click.Command | None = main
    for word in path:
        found = found.commands.get(word) if isinstance(found, click.Group) else None
    return found


def _about(noun: str, operations: Mapping[str, Operation]) -> str:
    own = [each for each in operations.values() if path_of(each)[0] == noun]
    verbs = ", ".join(path_of(each)[-1] for each in own)
    example = " ".join(path_of(own[0]))
    return f"{noun.capitalize()}: {verbs}.\n\n\b\nExample:\n  stepwell {example}"


def _command(operation: Operation, verb: str) -> click.Command:
    parameters = operation.parameters.values()

    @common
    def run(store: str | None, as_json: bool, **given: Any) -> None:
        arguments = _read(operation, given)

        async def work(stepwell: Stepwell) -> Any:
            try:
                stepwell.noun(operation.noun)
            except KeyError:
                raise InvalidInput(
                    f"{operation.name} is for servers alone: name one with STEPWELL_URL."
                ) from None
            caller = Caller(own_name(), "own", "owner")
            return await operation.call(stepwell, caller, arguments)

        shown = operation.shown(connected(store, work))
        if as_json:
            emit({"done": True} if shown is None else shown)
        else:
            click.echo("\n".join(["Done."] if shown is None else lines_of(shown)))

    # Those of the operation come first in the help.
    own = [_parameter(each) for each in parameters]
    help = f"{operation.description}\n\n\b\nExample:\n  {_example(operation)}"
    command = click.command(verb, help=help)(run)
    command.params = [*own, *command.params]
    return command


def _parameter(parameter: Parameter) -> click.Parameter:
    if parameter.where == "path":
        return click.Argument([parameter.name], metavar=parameter.name.upper())
    options: dict[str, Any] = {"required": parameter.required, "help": _help(parameter)}
    flag = "--" + parameter.name.replace("_", "-")
    kind = _kind(parameter.type)
    if is_hidden(parameter.type):
        options |= {
            "required": False,
            "metavar": ASKED,
            "help": "Is asked for, or read as a line.",
        }
    elif kind is bool and parameter.default is False:
        return click.Option(
            [flag, parameter.name], is_flag=True, default=None, help=options["help"]
        )
    elif kind is bool:
        flag = f"{flag}/--no-{flag[2:]}"
        options["default"] = None
    elif get_origin(kind) is Literal:
        options["type"] = click.Choice(get_args(kind))
    elif kind in (int, float):
        options["type"] = kind
    elif get_origin(kind) is list and get_args(kind) == (str,):
        options |= {"multiple": True, "metavar": "TEXT"}
    else:
        options["metavar"] = "JSON" if _is_json(kind) else "TEXT"
    return click.Option([flag, parameter.name], **options)


def _read(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as the operation takes it."""
    found = {}
    for name, parameter in operation.parameters.items():
        value = given[name]
        if is_hidden(parameter.type) and (parameter.required or value is not None):
            value = asked(name, value or ASKED)
        if value is None or value == ():
            continue
        if _is_json(_kind(parameter.type)):
            value = read_json(value, f"--{name.replace('_', '-')}")
        try:
            found[name] = msgspec.convert(value, parameter.type, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"{name} is not what is asked for: {error}.") from None
    return found


def asked(name: str, given: str) -> str:
    """A secret, from whoever types it or the next line of standard input."""
    flag = "--" + name.replace("_", "-")
    if given != ASKED:
        raise InvalidInput(
            f"Others could see a secret among the words of a command. Write {flag} {ASKED}, and "
            "type it when asked for, or give it as a line of standard input."
        )
    if sys.stdin.isatty():
        return str(click.prompt(name.capitalize(), hide_input=True, err=True))
    line = sys.stdin.readline()
    if not line:
        raise InvalidInput(f"{flag} is read as a line of standard input, and there is none left.")
    return line.removesuffix("\n")


def _kind(hint: Any) -> Any:
    """The type itself: without None, and without what is said about it."""
    if get_origin(hint) is Annotated:
        return _kind(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        kinds = [each for each in map(_kind, get_args(hint)) if each is not NoneType]
        return kinds[0] if len(kinds) == 1 or str in kinds else hint
    return hint


def _is_json(kind: Any) -> bool:
    """Whether values are more than a text, and so are given as JSON."""
    origin = get_origin(kind)
    return kind is Any or (origin is not None and origin not in (Literal, Union, UnionType))


def _help(parameter: Parameter) -> str:
    for hint in (parameter.type, *get_args(parameter.type)):
        for each in getattr(hint, "__metadata__", ()):
            if isinstance(each, msgspec.Meta) and each.description:
                return each.description
    default = parameter.default
    shown = isinstance(default, int | float | str) and default not in ("", False, True)
    return f"Default: {default}." if shown else ""


def _example(operation: Operation) -> str:
    """How it is typed, with the values that the operation is shown with."""
    words = ["stepwell", *path_of(operation)]
    for each in operation.parameters.values():
        value = operation.example.get(each.name)
        if each.where == "path":
            words.append(str(value or each.name.upper()))
        elif value is not None and not (is_hidden(each.type) and each.required):
            value = ASKED if is_hidden(each.type) else value
            text = shlex.quote(value if isinstance(value, str) else compact(value))
            flag = "--" + each.name.replace("_", "-")
            words.append(flag if value is True else f"{flag} {text}")
    return " ".join(words)

"""How every operation is asked for on the command line, and what of the answer is its result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stepwell.cli import GENERATED
from stepwell.cli.generated import path_of
from stepwell.kernel.presenting import is_hidden
from stepwell.operation import Operation

Arguments = Mapping[str, Any]


class Typed(NamedTuple):
    """What somebody types: the words of a command, and what it reads."""

    words: list[str]
    stdin: str | None = None


class Typist:
    """Types operations as commands; documents are written to files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0

    def typed(self, operation: Operation, given: Arguments) -> Typed:
        """The command that does it. One that is written by hand has a row in `BY_HAND`."""
        if operation.name in GENERATED:
            return _generated(operation, given)
        return BY_HAND[operation.name](self, dict(given))

    def file(self, document: Any) -> str:
        self._written += 1
        path = self._folder / f"document-{self._written}.json"
        path.write_text(json.dumps(document), "utf-8")
        return str(path)

    def folder(self, documents: list[Any]) -> str:
        self._written += 1
        path = self._folder / f"folder-{self._written}"
        path.mkdir()
        for number, document in enumerate(documents):
            (path / f"{number}.json").write_text(json.dumps(document), "utf-8")
        return str(path)


def _generated(operation: Operation, given: Arguments) -> Typed:
    arguments, options, unseen = [], [], []
    for name, parameter in operation.parameters.items():
        if name not in given:
            continue
        if parameter.where == "path":
            arguments.append(str(given[name]))
        elif is_hidden(parameter.type):  # read from standard input, a line each
            options += _option(name, "-")
            unseen.append(str(given[name]))
        else:
            options += _option(name, given[name])
    stdin = "".join(f"{line}\n" for line in unseen) if unseen else None
    return Typed([*path_of(operation), *arguments, *options], stdin)


def _option(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    return [flag, value if isinstance(value, str) else json.dumps(value)]


def _words(*words: str, then: tuple[str, ...] = ()) -> Callable[[Typist, dict[str, Any]], Typed]:
    """A command that takes these of the operation's arguments in this order, others as options."""

    def typed(_: Typist, given: dict[str, Any]) -> Typed:
        first = [given.pop(name) for name in then if name in given]
        texts = [each if isinstance(each, str) else json.dumps(each) for each in first]
        options = [word for name, value in given.items() for word in _option(name, value)]
        return Typed([*words, *texts, *options])

    return typed


def _of_file(*words: str, then: tuple[str, ...] = ()) -> Callable[[Typist, dict[str, Any]], Typed]:
    """A command that reads the document from a file, which comes after these arguments."""

    def typed(typist: Typist, given: dict[str, Any]) -> Typed:
        file = typist.file(given.pop("document"))
        return _words(*words, then=(*then, "file"))(typist, {**given, "file": file})

    return typed


def _start(typist: Typist, given: dict[str, Any]) -> Typed:
    wait = given.pop("wait", None)
    waiting = [] if wait is None else ["--wait", "--timeout", str(wait)]
    words = _words("runs", "start", then=("ref", "input"))(typist, given).words
    return Typed([*words, *waiting])


def _list_runs(_: Typist, given: dict[str, Any]) -> Typed:
    statuses = [word for each in given.pop("status", ()) for word in ("--status", each)]
    options = [word for name, value in given.items() for word in _option(name, value)]
    return Typed(["runs", "list", *statuses, *options])


def _sync_all(typist: Typist, given: dict[str, Any]) -> Typed:
    apply = ["--apply"] if given["apply"] else []
    return Typed(["definitions", "sync", typist.folder(given["documents"]), *apply])


def _publish_draft(typist: Typist, given: dict[str, Any]) -> Typed:
    assert given.pop("enabled"), "a draft that is published stays as enabled as it was"
    return _words("definitions", "draft", "publish", then=("name",))(typist, given)


def _set_enabled(_: Typist, given: dict[str, Any]) -> Typed:
    return Typed(["definitions", "enable" if given["enabled"] else "disable", given["name"]])


def _review(typist: Typist, given: dict[str, Any]) -> Typed:
    decision = "approve" if given.pop("approve") else "reject"
    words = _words("proposals", "review", then=("proposal_id",))(typist, given).words
    return Typed([*words, "--decision", decision])


def _set_secret(_: Typist, given: dict[str, Any]) -> Typed:
    return Typed(["secrets", "set", given["name"]], stdin=given["value"])


BY_HAND: Mapping[str, Callable[[Typist, dict[str, Any]], Typed]] = {
    "definitions.delete": _words("definitions", "delete", then=("name",)),
    "definitions.diff": _words("definitions", "diff", then=("name", "a", "b")),
    "definitions.document": _words("definitions", "export", then=("name",)),
    "definitions.get": _words("definitions", "show", then=("name",)),
    "definitions.history": _words("definitions", "history", then=("name",)),
    "definitions.list": _words("definitions", "list"),
    "definitions.publish": _of_file("definitions", "publish"),
    "definitions.rollback": _words("definitions", "rollback", then=("name", "ref")),
    "definitions.set_enabled": _set_enabled,
    "definitions.sync_all": _sync_all,
    "definitions.validate": _of_file("validate"),
    "drafts.discard": _words("definitions", "draft", "discard", then=("name",)),
    "drafts.get": _words("definitions", "draft", "show", then=("name",)),
    "drafts.publish": _publish_draft,
    "drafts.save": _of_file("definitions", "draft", "save", then=("name",)),
    "events.emit": _words("events", "emit", then=("type", "payload")),
    "events.list": _words("events", "list"),
    "proposals.apply": _words("proposals", "apply", then=("proposal_id",)),
    "proposals.get": _words("proposals", "show", then=("proposal_id",)),
    "proposals.list": _words("proposals", "list", then=("name",)),
    "proposals.propose": _words("propose", then=("name",)),
    "proposals.review": _review,
    "runs.cancel": _words("runs", "cancel", then=("run_id",)),
    "runs.explain": _words("runs", "explain", then=("run_id",)),
    "runs.fork": _words("runs", "fork", then=("run_id",)),
    "runs.get": _words("runs", "show", then=("run_id",)),
    "runs.list": _list_runs,
    "runs.retry": _words("runs", "retry", then=("run_id",)),
    "runs.signal": _words("runs", "signal", then=("run_id", "event", "payload")),
    "runs.start": _start,
    "runs.start_document": _of_file("run"),
    "secrets.delete": _words("secrets", "delete", then=("name",)),
    "secrets.list": _words("secrets", "list"),
    "secrets.rotate": _words("secrets", "rotate"),
    "secrets.set": _set_secret,
    "steps.advance": _words("steps", "advance", then=("run_id", "step")),
    "steps.tasks": _words("steps", "current", then=("run_id",)),
    "triggers.create": _words("triggers", "create", then=("definition", "type", "config")),
    "triggers.delete": _words("triggers", "delete", then=("trigger",)),
    "triggers.disable": _words("triggers", "disable", then=("trigger",)),
    "triggers.enable": _words("triggers", "enable", then=("trigger",)),
    "triggers.fire": _words("triggers", "fire", then=("trigger", "payload")),
    "triggers.get": _words("triggers", "show", then=("trigger",)),
    "triggers.list": _words("triggers", "list", then=("definition",)),
    "triggers.preview": _words("triggers", "preview", then=("trigger",)),
    "triggers.update": _words("triggers", "update", then=("trigger", "config")),
    "users.create": _words("users", "create"),
    "users.link": _words("users", "link", then=("user_id",)),
    "workers.health": _words("workers"),
    "workers.list": _words("workers"),
}


# What a command shows besides the result of its operation.
MORE: Mapping[str, set[str]] = {
    "drafts.discard": {"name"},
    "drafts.get": {"problems"},
    "drafts.save": {"problems"},
    "events.emit": {"type", "key", "triggers", "wanting"},
    "runs.cancel": {"id"},
    "runs.list": {"health"},
    "runs.signal": {"id"},
    "steps.tasks": {"run_id", "status"},
    "triggers.get": {"last_run_status", "refusals"},
    "triggers.list": {"health"},
    "users.create": {"url"},
    "users.link": {"url"},
    "workers.list": {"health"},
}


def result_in(operation: str, document: Any, result: Any) -> tuple[Any, Any]:
    """The part of a command's document that has to be the operation's result, and that result."""
    if result is None:  # there is nothing to compare, and a command says that it was done
        return None, None
    if operation in OTHERWISE:
        return OTHERWISE[operation](document, result)
    assert document.keys() >= MORE.get(operation, set()), operation
    return {
        name: value for name, value in document.items() if name not in MORE.get(operation, ())
    }, result


def _named(name: str) -> Callable[[Any, Any], tuple[Any, Any]]:
    return lambda document, result: (document[name], result)


def _only(*names: str) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A command that shows no more of the result than these."""

    def found(document: Any, result: Any) -> tuple[Any, Any]:
        return {name: document[name] for name in names}, {name: result[name] for name in names}

    return found


def _exported(document: Any, result: Any) -> tuple[Any, Any]:
    return document, result["document"]


def _synced(document: Any, result: Any) -> tuple[Any, Any]:
    steps = [
        {name: value for name, value in each.items() if name != "file"}
        for each in document["steps"]
    ]
    return {"steps": steps, "applied": document["applied"]}, result


def _run_id(document: Any, result: Any) -> tuple[Any, Any]:
    return document["run_id"], result["id"]


def _health(document: Any, result: Any) -> tuple[Any, Any]:
    return _only("alive", "unclaimed", "oldest_unclaimed")(document["health"], result)


def _proposal(document: Any, result: Any) -> tuple[Any, Any]:
    return (document["status"], document["hash"]), ("applied", result["revision"]["hash"])


# Commands whose document has another shape than the result, and why that is so.
OTHERWISE: Mapping[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    # A file that can be given back: the document, and nothing around it.
    "definitions.document": _exported,
    # All that there is to see of one thing, from several operations.
    "definitions.get": _named("definition"),
    "runs.get": _named("run"),
    # Each step says which file it is about.
    "definitions.sync_all": _synced,
    # Works without a store, on a file that may be wrong in every way: with lines, without a hash.
    "definitions.validate": _only("ok"),
    # People are shown what became of the proposal.
    "proposals.apply": _proposal,
    # A handle; with --wait, the exit code says how it ended.
    "runs.fork": _only("id", "created"),
    "runs.retry": _only("id", "created"),
    "runs.start": _only("id", "created"),
    # Follows the run to its end, or to where people have to do something.
    "runs.start_document": _run_id,
    # How long ago instead of when, and what to think of it.
    "workers.health": _health,
}

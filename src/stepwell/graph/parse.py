"""Plain data to a definition: the form of every field, every problem noted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from stepwell.graph.definition import (
    MAX_EDGES,
    MAX_NESTING,
    MAX_NODES,
    RESERVED,
    SLUG,
    Definition,
    Edge,
    ForEach,
    Graph,
    Node,
    OnFailure,
    OnItemError,
    OnSkip,
    Policy,
    RetryPolicy,
    slug_of,
)
from stepwell.graph.fields import Fields
from stepwell.graph.pacing import Pacing
from stepwell.graph.problems import Problems, below
from stepwell.kernel.zones import is_zone, zone_hint

VERSION = "stepwell.dev/v1"

DEFINITION_FIELDS = (
    "apiVersion", "name", "title", "description", "tags", "timezone", "inputs", "triggers",
    "policy", "nodes", "edges", "output", "refs",
)  # fmt: skip
NODE_FIELDS = (
    "id", "type", "title", "config", "when", "for_each", "join", "retry", "timeout", "body",
    "branches",
)  # fmt: skip
EDGE_FIELDS = ("id", "source", "target", "condition", "on_failure", "on_skip")
_BY_EDGES = "What comes after what is said by edges: edges: [{source: …, target: …}]."
# How other languages call what is written otherwise here.
_NODE_SLIPS = {
    **dict.fromkeys(("depends_on", "dependsOn", "depends", "needs", "after", "next"), _BY_EDGES),
    "if": "Did you mean 'when'?", "condition": "Did you mean 'when'?",
    "name": "Did you mean 'id', or 'title' for people?",
}  # fmt: skip
_IN_CONFIG = "What configures its type stands in config: {{{}: …}}. "
_GRAPH = ("nodes", "edges", "output")
_FOR_EACH = ("items", "concurrency", "on_item_error", "max_items", "as")
_RETRY = tuple(RetryPolicy.__struct_fields__)
_POLICY = tuple(Policy.__struct_fields__)
_BACKOFFS = ("fixed", "linear", "exponential")
_BRANCHES = {"true": True, "false": False, True: True, False: False}
MAX_TAGS = 50
MAX_TITLE = 500
MAX_DESCRIPTION = 20_000
MAX_STEPS = 100_000
MAX_CONCURRENCY = 1000
MAX_ITEMS = 100_000

# Names that node types have in other places, and what they are called here.
Aliases = Mapping[str, str]


def parse(data: Any, aliases: Aliases, problems: Problems) -> Definition | None:
    """Read a document; None if it has not even the form of one."""
    return _Parser(aliases, problems).definition(data)


class _Parser:
    """Reads fields one by one, so that one wrong field does not hide the next."""

    def __init__(self, aliases: Aliases, problems: Problems) -> None:
        self._aliases = aliases
        self._problems = problems
        self._fields = Fields(problems)
        self._nodes = 0
        self._edges = 0

    # -- the whole -----------------------------------------------------------------------

    def definition(self, data: Any) -> Definition | None:
        if not isinstance(data, dict):
            self._problems.error(
                "", "not_a_definition", "A definition is a mapping with a name and nodes.",
                "Other forms are read by `stepwell import`.",
            )  # fmt: skip
            return None
        self._fields.known(data, DEFINITION_FIELDS, "")
        version = data.get("apiVersion", VERSION)
        if version != VERSION:
            self._problems.error(
                "apiVersion", "unknown_version", f"{version!r} is not known.", f"Write {VERSION}."
            )
        policy = data.get("policy")
        return Definition(
            name=self._name(data),
            graph=self._graph(data, "", 0),
            title=self._fields.text(data, "title", "", MAX_TITLE),
            description=self._fields.text(data, "description", "", MAX_DESCRIPTION),
            tags=self._tags(data),
            timezone=self._timezone(data),
            inputs=self._fields.mapping(data, "inputs", ""),
            triggers=self._triggers(data),
            policy=Policy() if policy is None else self._policy(policy),
            lenient=self._fields.choice(data, "refs", "", ("strict", "lenient"), "strict")
            == "lenient",
        )

    def _name(self, data: Mapping[str, Any]) -> str:
        name = data.get("name")
        if not isinstance(name, str) or not SLUG.fullmatch(name):
            shown = "is missing" if name is None else f"cannot be {name!r:.100}"
            hint = slug_of(name) if isinstance(name, str) else ""
            self._problems.error(
                "name", "bad_name",
                f"The name {shown}: it has small letters, digits and hyphens, at most 100.",
                f"Write {hint!r}, and what people read as the title." if hint else "",
            )  # fmt: skip
            return ""
        return name

    def _tags(self, data: Mapping[str, Any]) -> list[str]:
        tags = self._fields.list(data, "tags", "")
        good = [tag for tag in tags if isinstance(tag, str) and 0 < len(tag) <= 100]
        if len(good) < len(tags) or len(tags) > MAX_TAGS:
            self._problems.error(
                "tags", "bad_field", f"tags are at most {MAX_TAGS} short texts.",
            )  # fmt: skip
        return good

    def _timezone(self, data: Mapping[str, Any]) -> str:
        zone = self._fields.text(data, "timezone", "", 100) or "UTC"
        if not is_zone(zone):
            self._problems.error(
                "timezone", "unknown_timezone", f"There is no time zone {zone!r}.", zone_hint(zone)
            )
        return zone

    def _triggers(self, data: Mapping[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        seen: set[str] = set()
        for index, trigger in enumerate(self._fields.list(data, "triggers", "")):
            path = below("triggers", index)
            if not isinstance(trigger, dict):
                self._problems.error(path, "bad_field", "A trigger is a mapping with a type.")
                continue
            self._fields.id(trigger, path, seen, "trigger")
            kind = trigger.get("type")
            known = self._aliases.get(kind) if isinstance(kind, str) else None
            found.append(trigger | ({} if known is None else {"type": known}))
        return found

    def _policy(self, data: Any) -> Policy:
        if not isinstance(data, dict):
            self._problems.error("policy", "bad_field", "policy is a mapping.")
            return Policy()
        self._fields.known(data, _POLICY, "policy")
        return Policy(
            max_steps=self._fields.count(data, "max_steps", "policy", 1000, MAX_STEPS) or 1000,
            retention=self._fields.duration(data, "retention", "policy"),
            retry=self._retry(data, "policy"),
            proposals=self._fields.flag(data, "proposals", "policy"),
            self_review=self._fields.flag(data, "self_review", "policy"),
            ephemeral=self._fields.flag(data, "ephemeral", "policy"),
            **Pacing(self._fields, self._problems).read(data, "policy"),
        )

    # -- nodes and edges -----------------------------------------------------------------

    def _graph(self, data: Mapping[str, Any], path: str, depth: int) -> Graph:
        listed = self._fields.list(data, "nodes", path)
        if not data.get("nodes"):
            self._problems.error(below(path, "nodes"), "no_nodes", "There must be a node.")
        nodes = [
            node
            for index, each in enumerate(listed)
            if (node := self._node(each, below(below(path, "nodes"), index), depth)) is not None
        ]
        edges = [
            edge
            for index, each in enumerate(self._fields.list(data, "edges", path))
            if (edge := self._edge(each, below(below(path, "edges"), index))) is not None
        ]
        return Graph(nodes, edges, data.get("output", msgspec.UNSET), path)

    def _inner_graph(self, data: Any, path: str, depth: int, extra: tuple[str, ...] = ()) -> Graph:
        if depth > MAX_NESTING:
            self._problems.error(
                path, "too_deep", f"Bodies are nested more than {MAX_NESTING} levels deep."
            )
            return Graph([], [])
        if isinstance(data, list):  # nothing but nodes
            data = {"nodes": data}
        if not isinstance(data, dict):
            self._problems.error(path, "bad_field", "This is a mapping with nodes and edges.")
            return Graph([], [])
        self._fields.known(data, (*_GRAPH, *extra), path)
        return self._graph(data, path, depth)

    def _node(self, data: Any, path: str, depth: int) -> Node | None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            if self._nodes == MAX_NODES + 1:
                self._problems.error(
                    path, "too_many_nodes", f"A definition has at most {MAX_NODES:,} nodes."
                )
            return None
        if not isinstance(data, dict):
            self._problems.error(path, "bad_field", "A node is a mapping with an id and a type.")
            return None
        self._fields.known(data, NODE_FIELDS, path, _NODE_SLIPS, _IN_CONFIG)
        kind = data.get("type")
        if not isinstance(kind, str) or not kind:
            self._problems.error(below(path, "type"), "missing_field", "A node has a type.")
            kind = ""
        return Node(
            id=self._fields.id(data, path, None, "node"),
            type=self._aliases.get(kind, kind),
            config=self._fields.mapping(data, "config", path) or {},
            when=data.get("when"),
            for_each=self._for_each(data, path),
            any_join=self._fields.choice(data, "join", path, ("all", "any"), "all") == "any",
            retry=self._retry(data, path),
            timeout=self._fields.duration(data, "timeout", path),
            body=self._inner_graph(data["body"], below(path, "body"), depth + 1)
            if data.get("body") is not None
            else None,
            branches=self._node_branches(data, path, depth),
            title=self._fields.text(data, "title", path, MAX_TITLE),
            path=path,
        )

    def _node_branches(
        self, data: Mapping[str, Any], path: str, depth: int
    ) -> dict[str, Graph] | None:
        if data.get("branches") is None:
            return None
        seen: set[str] = set()
        found: dict[str, Graph] = {}
        for index, branch in enumerate(self._fields.list(data, "branches", path)):
            at = below(below(path, "branches"), index)
            if not isinstance(branch, dict):
                self._problems.error(at, "bad_field", "A branch is a mapping with id and nodes.")
                continue
            branch_id = self._fields.id(branch, at, seen, "branch")
            found[branch_id] = self._inner_graph(branch, at, depth + 1, ("id",))
        return found

    def _edge(self, data: Any, path: str) -> Edge | None:
        self._edges += 1
        if self._edges > MAX_EDGES:
            if self._edges == MAX_EDGES + 1:
                self._problems.error(
                    path, "too_many_edges", f"A definition has at most {MAX_EDGES:,} edges."
                )
            return None
        if not isinstance(data, dict):
            self._problems.error(path, "bad_field", "An edge is a mapping: {source, target}.")
            return None
        if "source" not in data and "target" not in data and {"from", "to"} <= data.keys():
            self._problems.error(
                path, "unknown_field", "An edge has a source and a target, not from and to.",
                f"Write {{source: {data['from']!s:.100}, target: {data['to']!s:.100}}}.",
            )  # fmt: skip
            return None
        self._fields.known(data, EDGE_FIELDS, path)
        source, target = data.get("source"), data.get("target")
        for end, node_id in (("source", source), ("target", target)):
            if not isinstance(node_id, str):
                self._problems.error(below(path, end), "missing_field", f"An edge has a {end}.")
        if not isinstance(source, str) or not isinstance(target, str):
            return None
        condition = data.get("condition")
        return Edge(
            source,
            target,
            condition=_BRANCHES.get(condition, condition)
            if isinstance(condition, str | bool)
            else condition,
            on_failure=self._fields.choice(data, "on_failure", path, get_args(OnFailure), "skip"),
            on_skip=self._fields.choice(data, "on_skip", path, get_args(OnSkip), "skip"),
            path=path,
        )

    def _for_each(self, data: Mapping[str, Any], path: str) -> ForEach | None:
        found = data.get("for_each")
        if found is None:
            return None
        at = below(path, "for_each")
        if not isinstance(found, dict):
            found = {"items": found}  # only what to go through
        self._fields.known(found, _FOR_EACH, at)
        if "items" not in found:
            self._problems.error(below(at, "items"), "missing_field", "for_each has items.")
        name = found.get("as", "item")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w{0,99}", name, re.ASCII):
            self._problems.error(below(at, "as"), "bad_name", f"An item cannot be called {name!r}.")
            name = "item"
        elif name != "item" and name in RESERVED:
            self._problems.error(
                below(at, "as"), "reserved_name", f"{name!r} is a word of the language."
            )
        return ForEach(
            items=found.get("items"),
            concurrency=self._fields.count(found, "concurrency", at, 1, MAX_CONCURRENCY) or 1,
            on_item_error=self._fields.choice(
                found, "on_item_error", at, get_args(OnItemError), "fail"
            ),
            max_items=self._fields.count(found, "max_items", at, 1000, MAX_ITEMS) or 1000,
            name=name,
        )

    def _retry(self, data: Mapping[str, Any], path: str) -> RetryPolicy | None:
        found = data.get("retry")
        if found is None:
            return None
        at = below(path, "retry")
        if isinstance(found, int) and not isinstance(found, bool):
            found = {"attempts": found}
        if not isinstance(found, dict):
            self._problems.error(at, "bad_field", "retry is a mapping: {attempts, backoff, …}.")
            return None
        self._fields.known(found, _RETRY, at)
        jitter = found.get("jitter", 0.2)
        if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
            self._problems.error(
                below(at, "jitter"), "bad_field", f"jitter lies between 0 and 1, not {jitter!r}."
            )
            jitter = 0.2
        longest = found.get("max")
        if isinstance(longest, int) and "attempts" not in found:
            self._problems.warning(
                below(at, "max"), "doubtful_retry",
                f"max is the longest pause between attempts, here {longest} s, not their count.",
                f"Write attempts: {longest}, or max: {longest}s.",
            )  # fmt: skip
        default = RetryPolicy()
        return RetryPolicy(
            attempts=self._fields.count(found, "attempts", at, 3, 1000) or 3,
            backoff=self._fields.choice(found, "backoff", at, _BACKOFFS, "exponential"),
            base=self._fields.duration(found, "base", at) or default.base,
            max=self._fields.duration(found, "max", at) or default.max,
            jitter=jitter,
        )

"""A definition as it was written, once its form has been checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from stepwell.kernel.retry import Retry

OnFailure = Literal["skip", "continue", "fail_run"]
OnSkip = Literal["skip", "continue"]
OnItemError = Literal["fail", "collect"]

# Ids of nodes, branches and triggers: they stand in references, keys and file names.
ID = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?")
# Names of definitions.
SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,98}[a-z0-9])?")
# Words of the language, which nobody can be called.
RESERVED = frozenset(
    {"input", "trigger", "step", "steps", "run", "secrets", "item", "index", "previous"}
)

MAX_NODES = 5000
MAX_EDGES = 50_000
# How deep bodies and branches may be nested.
MAX_NESTING = 20


class Edge(msgspec.Struct, frozen=True):
    """A drawn edge."""

    source: str
    target: str
    # `True` or `False` behind a condition node, else CEL text or a comparison.
    condition: Any = None
    on_failure: OnFailure = "skip"
    on_skip: OnSkip = "skip"
    path: str = ""


class ForEach(msgspec.Struct, frozen=True):
    """A node is executed once for each item of a list."""

    items: Any
    concurrency: int = 1
    on_item_error: OnItemError = "fail"
    max_items: int = 1000
    # What an item is called.
    name: str = "item"


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often a node is tried again, and when; fields as in `stepwell.Retry`."""

    attempts: int = 3
    backoff: str = "exponential"
    base: str | int | float = "1s"
    max: str | int | float = "60s"
    jitter: float = 0.2

    def policy(self) -> Retry:
        """The policy that this describes."""
        return Retry(**msgspec.structs.asdict(self))


class Node(msgspec.Struct, frozen=True):
    """A node."""

    id: str
    type: str
    config: dict[str, Any]
    when: Any = None
    for_each: ForEach | None = None
    any_join: bool = False
    retry: RetryPolicy | None = None
    timeout: str | int | float | None = None
    body: Graph | None = None
    branches: dict[str, Graph] | None = None
    title: str = ""
    path: str = ""

    @property
    def inside(self) -> list[Graph]:
        """The levels right inside of it."""
        return [*([self.body] if self.body else []), *(self.branches or {}).values()]


class Graph(msgspec.Struct, frozen=True):
    """Nodes and edges on one level of nesting, and what they yield."""

    nodes: list[Node]
    edges: list[Edge]
    output: Any = msgspec.UNSET
    path: str = ""

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of this level, and those inside of them."""
        for node in self.nodes:
            yield node
            for inner in node.inside:
                yield from inner.all_nodes()


class Concurrency(msgspec.Struct, frozen=True):
    """At most so many runs at once for each value of the key."""

    # A template over the input.
    key: Any
    limit: int = 1


class ThrottlePolicy(msgspec.Struct, frozen=True):
    """At most so many runs begin in any stretch of that length, for each value of the key."""

    limit: int
    per: str | int | float
    key: Any = None


class DebouncePolicy(msgspec.Struct, frozen=True):
    """One run for many starts: once it was quiet for a while, or `max` after the first."""

    wait: str | int | float
    max: str | int | float
    key: Any = None


class Policy(msgspec.Struct, frozen=True):
    """What holds for every run of the definition."""

    max_concurrent_runs: int | None = None
    # How many may queue when no slot is free; more are refused.
    max_queued_runs: int | None = None
    timeout: str | int | float | None = None
    max_steps: int = 1000
    retention: str | int | float | None = None
    retry: RetryPolicy | None = None
    # Whether runs and agents may propose changes of the definition.
    proposals: bool = False
    # Whether who proposed a change may also approve it.
    self_review: bool = False
    ephemeral: bool = False
    concurrency: Concurrency | None = None
    throttle: ThrottlePolicy | None = None
    debounce: DebouncePolicy | None = None
    # Higher first.
    priority: int = 0
    # How long a run may stay pending once it may begin.
    ttl: str | int | float | None = None


class Definition(msgspec.Struct, frozen=True):
    """A whole definition."""

    name: str
    graph: Graph
    title: str = ""
    description: str = ""
    tags: list[str] = []
    timezone: str = "UTC"
    inputs: dict[str, Any] | None = None
    triggers: list[dict[str, Any]] = []
    policy: Policy = Policy()
    # Whether references to missing paths yield null instead of failing their step.
    lenient: bool = False


def slug_of(text: str) -> str:
    """A name for a definition that is close to this text; empty if nothing is."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:100]


def id_of(text: str) -> str:
    """An id that is close to this text; empty if nothing is."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_-")[:90]

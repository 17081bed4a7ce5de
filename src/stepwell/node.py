"""The contract of a node type: one file with a config, a function, and what people see of them.

    class Config(NodeConfig):
        url: str = Field(description="Where to.")

    @node("http", title="HTTP request", group="action", config=Config, timeout="30s")
    async def http(config: Config, call: Call) -> dict[str, Any]:
        '''Send a request; the output is what came back.'''

An *effect* is a coroutine function that the engine executes as one step: with retries, a
timeout, an idempotency key. It is cancelled when its time is up or its run is, and has to clean
up after itself then. Secrets are masked in what it returns and raises; where it cuts a text, it
puts a "…", so that what is left there of a secret is masked as well. A *durable* node
(`durable=True`) is handed the context of its run instead, and steps, sleeps and waits by itself;
secrets are not for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

import pydantic
from pydantic import BeforeValidator

from stepwell.config import Config, note, said
from stepwell.config import WrittenDuration as WrittenDuration
from stepwell.errors import ConfigInvalid
from stepwell.graph.parse import NODE_FIELDS
from stepwell.graph.problems import Problems
from stepwell.graph.refs import Inserted as Inserted
from stepwell.graph.refs import as_text, may_refer
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.records import GateRecord, OnTimeout
from stepwell.trigger import TriggerType


def _words(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else as_text(value)


# A field with text: a reference keeps the type of what it refers to, which becomes what it would
# be inside a text.
Words = Annotated[str, BeforeValidator(_words)]


class NodeConfig(Config):
    """What is written under `config`."""


class Host(Protocol):
    """What nodes may use of the process that executes them."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Python functions that were registered, by name."""
        ...

    @property
    def allow_private(self) -> bool:
        """Whether requests may go to private addresses."""
        ...

    @property
    def folder(self) -> str:
        """Where commands are executed, and what scripts can read."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """What commands may see of the environment."""
        ...

    @property
    def hidden(self) -> Sequence[str]:
        """Files of the engine's own, which scripts must not see."""
        ...

    @property
    def gates(self) -> Gates: ...


class Gates(Protocol):
    """Opens and closes the gates of runs."""

    async def open(self, run_id: str, key: str, definition: str, **fields: Any) -> GateRecord: ...
    async def expire(self, gate_id: str, default: OnTimeout) -> dict[str, Any]: ...


class Started(Protocol):
    """A child that was started and goes on by itself."""

    @property
    def id(self) -> str: ...


class Durably(Protocol):
    """The part of a run's context that nodes use."""

    async def step(self, name: str, function: Callable[..., Any], /, *args: Any) -> Any: ...
    async def sleep(self, name: str, duration: Duration) -> None: ...
    async def sleep_until(self, name: str, at: datetime) -> None: ...
    async def wait_for_event(
        self, name: str, event: str | None = None, *, match: Mapping[str, Any] | None = None,
        timeout: Duration | None = None, lookback: Duration | None = None,
        raise_on_timeout: bool = False,
    ) -> Any: ...  # fmt: skip
    async def emit_as(
        self, name: str, type: str, payload: Any = None, *, key: str | None = None,
        once: bool = False,
    ) -> None: ...  # fmt: skip
    async def run_child(
        self, name: str, definition: str, input: Any = None, **options: Any
    ) -> Any: ...
    async def start_child(
        self, name: str, definition: str, input: Any = None, **options: Any
    ) -> Started: ...

    async def ask(
        self, name: str, kind: Literal["gate", "task"], event: str, about: Any,
        timeout: Duration | None = None,
    ) -> tuple[bool, Any]:  # fmt: skip
        """Wait for somebody's answer by a signal: whether it came in time, and what it is."""
        ...

    async def answer(self, name: str, kind: Literal["gate", "task"], value: Any) -> None:
        """Record an answer that nobody is asked for."""
        ...

    def waits_for(self, key: str) -> bool: ...

    def has_recorded(self, key: str) -> bool:
        """Whether the journal has an end for this already."""
        ...

    def at_work(self) -> AbstractContextManager[None]:
        """While inside, the run is not given back for only waiting."""
        ...


class Call(Protocol):
    """One execution of a node."""

    @property
    def key(self) -> str:
        """The step's key: the node's id, with the iterations it stands in."""
        ...

    @property
    def run_id(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this step, and in no other step."""
        ...

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context of this step, for requests to others; None if it has none."""
        ...

    @property
    def host(self) -> Host: ...

    @property
    def definition(self) -> str:
        """The definition that the run is of."""
        ...

    @property
    def revision(self) -> str:
        """The hash of the document that the run executes."""
        ...

    @property
    def unattended(self) -> bool:
        """Whether nobody is there to do tasks: they count as done."""
        ...

    @property
    def durably(self) -> Durably:
        """The context of the run; for durable nodes only."""
        ...

    def config(self) -> dict[str, Any]:
        """The config with its references resolved."""
        ...

    async def in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a plain function in a thread that nobody waits for in the end."""
        ...

    def parts(self, field: str) -> list[str]:
        """The text of a field in parts; what references have put in is `Inserted`."""
        ...


class NodeType:
    """A type of node."""

    def __init__(
        self, name: str, run: Callable[[Any, Any], Awaitable[Any]], config: type[NodeConfig], *,
        title: str, group: str, durable: bool, aliases: Iterable[str], verbatim: Iterable[str],
        timeout: Duration | None, max_timeout: Duration | None,
    ) -> None:  # fmt: skip
        self.name = name
        self.config = config
        self.title = title
        self.group = group
        self.acts = not durable
        self.aliases = tuple(aliases)
        self.verbatim = frozenset(verbatim)
        self.timeout = None if timeout is None else seconds(timeout, "timeout")
        self.max_timeout = None if max_timeout is None else seconds(max_timeout, "max_timeout")
        self.help = inspect.getdoc(run) or ""
        self._run = run

    async def act(self, call: Call) -> Any:
        """Execute the node."""
        return await self._run(self._configured(call), call)

    def _configured(self, call: Call) -> NodeConfig:
        try:
            return self.config.model_validate(call.config())
        except pydantic.ValidationError as error:
            found = "; ".join(
                f"{'.'.join(map(str, each['loc'])) or 'config'}: {said(each)}"
                for each in error.errors(include_url=False, include_input=False)[:10]
            )
            raise ConfigInvalid(f"The config of {call.key!r} does not fit: {found}.") from None

    def check(self, config: dict[str, Any], path: str, problems: Problems) -> None:
        """Note everything wrong with a config; where references stand, time will tell."""
        try:
            self.config.model_validate(config)
        except pydantic.ValidationError as error:
            for each in error.errors(include_url=False, include_input=False):
                loc = each["loc"]
                if loc[:1] in [(field,) for field in self.verbatim] or not _refers(config, loc):
                    note(each, self.name, self.config, path, problems, NODE_FIELDS)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the config."""
        return self.config.model_json_schema()


class NodeTypes:
    """All types that a process knows, of nodes and of triggers."""

    def __init__(
        self, types: Iterable[NodeType], aliases: Mapping[str, str],
        plugged_in: Iterable[NodeType] = (), triggers: Iterable[TriggerType] = (),
    ) -> None:  # fmt: skip
        # Those that other packages bring, which not every process has.
        self.plugged_in = {each.name for each in plugged_in}
        self.by_name = {each.name: each for each in (*types, *plugged_in)}
        self.triggers = {each.name: each for each in triggers}
        # Names that types have elsewhere, and what they are called here.
        known: list[NodeType | TriggerType] = [*self.by_name.values(), *self.triggers.values()]
        self.aliases = dict(aliases) | {
            alias: each.name for each in known for alias in each.aliases
        }


def _refers(config: Any, loc: tuple[int | str, ...]) -> bool:
    """Whether what stands there, or around it, is made of references."""
    value = config
    for key in loc:
        try:
            value = value[key]
        except (TypeError, LookupError):  # pydantic also names the kinds that it tried
            return isinstance(value, str) and may_refer(value)
    # A config as a whole is wrong whatever its references will become.
    return bool(loc) and may_refer(value)


def node(
    name: str, *, title: str, group: str, config: type[NodeConfig], durable: bool = False,
    aliases: Iterable[str] = (), verbatim: Iterable[str] = (), timeout: Duration | None = None,
    max_timeout: Duration | None = None,
) -> Callable[[Callable[[Any, Any], Awaitable[Any]]], NodeType]:  # fmt: skip
    """Make a function `(config, call)` a node type.

    `aliases` are names that it has elsewhere; in `verbatim` fields nothing is a reference;
    `timeout` is that of nodes that have none, and none may have more than `max_timeout`.
    """

    def decorate(function: Callable[[Any, Any], Awaitable[Any]]) -> NodeType:
        return NodeType(
            name, function, config, title=title, group=group, durable=durable, aliases=aliases,
            verbatim=verbatim, timeout=timeout, max_timeout=max_timeout,
        )  # fmt: skip

    return decorate

"""The contract of an operation: one use case, declared once for all surfaces.

An operation is an async method of the class of its noun in `operations/`. It takes plain values,
raises named errors, and returns records. `@operation` says where it is found over HTTP and what
permission it needs; routes, tools, commands and their documentation are made of that, of its
signature and of its docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    get_origin,
    get_type_hints,
)

import msgspec

from stepwell.errors import InvalidInput, StepwellError
from stepwell.kernel.access import PERMISSIONS as PERMISSIONS
from stepwell.kernel.access import ROLES as ROLES
from stepwell.kernel.access import Permission as Permission
from stepwell.kernel.access import Role as Role
from stepwell.kernel.access import allows as allows
from stepwell.kernel.changes import Committed
from stepwell.kernel.clock import Clock
from stepwell.kernel.ids import Ids
from stepwell.kernel.plans import Plan
from stepwell.kernel.presenting import is_hidden, present, restore
from stepwell.kernel.records import TriggerRecord
from stepwell.kernel.run import Explanation, Page, Run, Step, WorkerInfo
from stepwell.store import Store

if TYPE_CHECKING:
    from stepwell.node import NodeTypes

Where = Literal["path", "query", "body", "header"]
# Parameters that have headers of their own over HTTP.
HEADERS = {
    "if_match": "If-Match",
    "idempotency_key": "Idempotency-Key",
    "wait": "Prefer",
}
REQUIRED = inspect.Parameter.empty

# Which definition is meant.
DefinitionRef = Annotated[str, msgspec.Meta(description="The definition's name, which is its id.")]
# How many of something are wanted.
Count = Annotated[int, msgspec.Meta(ge=1, le=1000)]

# A document to show operations with.
TIDY_UP = {
    "name": "tidy-up",
    "nodes": [{"id": "count", "type": "transform", "config": {"value": 1}}],
}

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks for an operation."""

    # What they are called in histories, decisions and the audit log.
    name: str
    permission: Permission
    role: Role = "viewer"
    # None for whoever has the store itself.
    user_id: str | None = None
    # Of the token that they came with, if it was one, or of the session.
    token_id: str | None = None
    session_id: str | None = None

    @property
    def itself(self) -> Caller:
        """For operations that depend on all of it."""
        return self

    @property
    def roles(self) -> tuple[str, ...]:
        """What they are, for gates that say who may decide: an owner may what an admin may."""
        return tuple(role for role, each in ROLES.items() if allows(ROLES[self.role], each))


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something an operation is given."""

    name: str
    type: Any
    default: Any
    where: Where

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True, eq=False)
class Operation:
    """One use case."""

    # `runs.start`; the noun is where its method is found.
    name: str
    noun: str
    function: Callable[..., Awaitable[Any]]
    method: str
    # Below /api, with the names of parameters in braces.
    path: str
    needs: Permission
    status: int = 200
    # Other paths that lead to it.
    also: tuple[str, ...] = ()
    # What a result is called that is no record: {"cancelled": true}.
    result: str = "result"
    # Parameters that are no matter of the caller's choice, and what of the caller they are.
    caller: Mapping[str, str] = field(default_factory=dict)
    # Whether it changes what is the caller's own, for which it is enough to be let in.
    personal: bool = False
    # Whether it takes away, or decides about, something that cannot be brought back.
    destructive: bool = False
    # Whether it is written down who did it, if it changes anything.
    audited: bool = True
    # The parameter that says what it is done to, if neither the path nor the result does.
    subject: str | None = None
    # What it refuses, besides what every operation does.
    raises: tuple[type[StepwellError], ...] = ()
    # Arguments to show it with.
    example: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return self.method != "GET" and (self.needs != "read" or self.personal)

    @property
    def is_recorded(self) -> bool:
        """Whether the audit log has a row of it."""
        return self.changes and self.audited

    @property
    def summary(self) -> str:
        return self._doc.partition("\n\n")[0].replace("\n", " ")

    @property
    def description(self) -> str:
        return self._doc

    @property
    def _doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """What the caller gives, by name."""
        hints = get_type_hints(self.function, include_extras=True)
        return {
            name: Parameter(name, hints.get(name, Any), each.default, self._where(name))
            for name, each in inspect.signature(self.function).parameters.items()
            if name != "self" and name not in self.caller
        }

    def _where(self, name: str) -> Where:
        if "{" + name + "}" in self.path:
            return "path"
        if name in HEADERS:
            return "header"
        return "query" if self.method in ("GET", "DELETE") else "body"

    @cached_property
    def _texts(self) -> list[str]:
        """Those that may be looked for, or kept as they are; PostgreSQL has no NUL in a text."""
        return [
            each.name
            for each in self.parameters.values()
            if each.type is not Any and not is_hidden(each.type)
        ]

    @cached_property
    def returns(self) -> Any:
        return get_type_hints(self.function, include_extras=True).get("return")

    def arguments(self, *where: Where, without: Collection[str] = ()) -> type[msgspec.Struct]:
        """A type for the parameters that come from there; for all of them unless said."""
        found = [
            each for each in self.parameters.values()
            if (not where or each.where in where) and each.name not in without
        ]  # fmt: skip
        return msgspec.defstruct(
            "".join(word.capitalize() for word in self.name.replace(".", "_").split("_")),
            [
                (each.name, each.type) if each.required else (each.name, each.type, _copied(each))
                for each in sorted(found, key=lambda each: not each.required)
            ],
            forbid_unknown_fields=True,
            kw_only=True,
        )

    def shown(self, value: Any) -> Any:
        """A result as surfaces show it: an object, or None if there is nothing to show."""
        found = present(value)
        if isinstance(found, list):
            return {"items": found}
        if found is None or (isinstance(found, dict) and self.result == "result"):
            return found
        return {self.result: found}

    def restored(self, shown: Any) -> Any:
        """The result again, from what surfaces show of it."""
        kind: Any = self.returns
        if get_origin(kind) in (list, Sequence):
            shown = shown["items"]
        elif self.result != "result" or kind in (bool, int, float, str):
            shown = shown[self.result]
        return restore(shown, kind)

    async def call(self, place: Place, caller: Caller, arguments: Mapping[str, Any]) -> Any:
        """Do it. Whether they may is not asked here."""
        for name in self._texts:
            if _has_nul(arguments.get(name)):
                raise InvalidInput(f"{name} has a NUL in it, which no text here can.", path=name)
        given = {name: getattr(caller, what) for name, what in self.caller.items()}
        method = getattr(place.noun(self.noun), self.function.__name__)
        return await method(**arguments, **given)


def _has_nul(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _copied(parameter: Parameter) -> Any:
    """A default that msgspec takes: one that can be changed is made anew for each."""
    default = parameter.default
    return () if default == () else default


def operation(
    route: str, *, needs: Permission, name: str | None = None, **options: Any
) -> Callable[[F], F]:
    """Declare a method as an operation: `@operation("POST /runs/{run_id}/cancel", needs="run")`."""
    method, _, path = route.partition(" ")

    def declare(function: F) -> F:
        declared = {"method": method, "path": path, "needs": needs, "name": name, **options}
        function.__operation__ = declared  # type: ignore[attr-defined]
        return function

    return declare


def declared_in(noun: type[Noun]) -> list[Operation]:
    """The operations of a noun, those first that were written first."""
    found: list[Operation] = []
    for kind in reversed(noun.__mro__):
        for attribute, function in vars(kind).items():
            declared = getattr(function, "__operation__", None)
            if declared is not None:
                name = declared["name"] or f"{noun.noun}.{attribute}"
                found.append(
                    Operation(**{**declared, "name": name}, noun=noun.noun, function=function)
                )
    return found


class Noun:
    """What operations are about; its class holds them."""

    # Where it is found: `stepwell.definitions`.
    noun: ClassVar[str]


class Place(Protocol):
    """Where the operations of one workspace can be called."""

    def noun(self, name: str) -> Noun: ...


class Started(Protocol):
    """A run that was started, or that there was already."""

    id: str
    created: bool


class Engine(Protocol):
    """What executes runs, for operations that start them, stop them and talk to them."""

    async def start(self, definition: str, input: Any = None, **options: Any) -> Started: ...

    async def start_document(
        self, document: Mapping[str, Any], input: Any = None, **options: Any
    ) -> Started: ...

    async def get_run(self, run_id: str) -> Run: ...

    async def list_runs(self, **where: Any) -> Page: ...

    async def count_runs(self) -> dict[str, dict[str, int]]: ...

    async def steps(self, run_id: str) -> list[Step]: ...

    async def explain(self, run_id: str) -> Explanation: ...

    async def workers(self) -> list[WorkerInfo]: ...

    async def result(self, run_id: str, timeout: Any = None) -> Any: ...

    async def cancel(self, run_id: str) -> bool: ...

    async def retry(
        self, run_id: str, *, idempotency_key: str | None = None, user: str | None = None
    ) -> Started: ...

    async def fork(
        self, run_id: str, from_step: str, *, input: Any = ..., version: int | None = None,
        idempotency_key: str | None = None, user: str | None = None,
    ) -> Started: ...  # fmt: skip

    async def signal(
        self, run_id: str, name: str, payload: Any = None, *, idempotency_key: str | None = None
    ) -> bool: ...

    async def emit(
        self, type: str, payload: Any = None, *, key: str | None = None, once: bool = False,
        idempotency_key: str | None = None,
    ) -> bool: ...  # fmt: skip

    async def tasks(self, run_id: str) -> list[Any]: ...

    async def advance(
        self, run_id: str, step: str, *, summary: str = "", output: Any = None,
        failed: bool = False,
    ) -> None: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where operations take place."""

    store: Store
    id: str
    ids: Ids
    clock: Clock
    # Loaded when they are first needed.
    types: Callable[[], NodeTypes]
    # Told of commits that workers may want to hear of.
    changed: Callable[[Committed], None]
    # Starts the run of a trigger with a payload, once for each key, for somebody; its id, and
    # whether it is new.
    fire: Callable[[TriggerRecord, Any, str | None, str | None], Awaitable[tuple[str, bool]]]
    # Returns once it is written what became of triggers so far.
    settled: Callable[[], Awaitable[None]]
    # How much the workspace may have.
    plan: Plan
    engine: Engine

"""Finding parts: stores by the scheme of their URL, types of nodes and triggers by looking around.

What not every process needs is loaded by name, when it is first used.
"""

from __future__ import annotations

import logging
import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from stepwell.errors import InvalidInput, StoreUrlInvalid
from stepwell.graph.control import CONTROL
from stepwell.kernel.clock import Clock
from stepwell.kernel.names import show
from stepwell.kernel.urls import shown_url, split_url
from stepwell.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepwell.node import NodeType, NodeTypes
    from stepwell.operation import Operation
    from stepwell.telemetries.prometheus import Prometheus
    from stepwell.telemetry import Telemetry
    from stepwell.trigger import TriggerType

log = logging.getLogger("stepwell.catalog")

_SCHEMES = ("sqlite", "postgresql", "postgres")
_EXAMPLES = "Use sqlite:///file.db or postgresql://user@host/database."


def check_url(url: str, what: str = "The store's URL") -> str:
    """The URL, if it has the form of a store's; errors begin with `what`."""
    given: object = url
    if not isinstance(given, str):
        raise StoreUrlInvalid(f"{what}: {show(given)} is not a text. {_EXAMPLES}")
    scheme, separator, _ = url.partition("://")
    if not separator or scheme.lower() not in _SCHEMES or not url.isprintable():
        raise StoreUrlInvalid(
            f"{what}: {shown_url(url)!r} is not a store. "
            f"The schemes are {', '.join(_SCHEMES)}. {_EXAMPLES}"
        )
    if is_sqlite(url):
        sqlite_path(url, what)
    else:
        split_url(url, what)
    return url


def is_sqlite(url: str) -> bool:
    """Whether a URL, which has been checked, names a SQLite store."""
    return url.lower().startswith("sqlite:")


def sqlite_path(url: str, what: str = "The store's URL") -> str:
    """The file of a sqlite URL: three slashes before a relative path, four before an absolute."""
    path, _, options = url[len("sqlite:///") :].partition("?")
    if not url.lower().startswith("sqlite:///") or not path:
        raise StoreUrlInvalid(
            f"{what}: {shown_url(url)!r} names no file. "
            "Write sqlite:///relative/path.db or sqlite:////absolute/path.db."
        )
    if options:
        raise StoreUrlInvalid(f"{what}: {shown_url(url)!r} has options; SQLite takes none here.")
    if path == ":memory:":
        raise StoreUrlInvalid(f"{what}: a store in memory would not outlive a crash; name a file.")
    return path


def store_for(url: str, clock: Clock) -> Store:
    """The store a URL names, not yet opened."""
    store: Store
    if is_sqlite(check_url(url)):
        # Loaded by name, so that a process pays only for the store it uses.
        store = import_module("stepwell.stores.sqlite").SqliteStore(sqlite_path(url), clock)
    else:
        store = postgres("stepwell.stores.postgres").PostgresStore(url, clock)
    return store


NODE_GROUP, TRIGGER_GROUP = "stepwell.nodes", "stepwell.triggers"


@cache
def node_types() -> NodeTypes:
    """All node types: those of the folder `nodes`, and those that other packages bring.

    Loaded when a graph is first looked at: a process that has none pays nothing.
    """
    contract = import_module("stepwell.node")
    found = _types_in(_modules("nodes"))
    aliases = {alias: each.name for each in CONTROL.values() for alias in each.aliases}
    types: NodeTypes = contract.NodeTypes(found, aliases, plugged_in(), trigger_types().values())
    return types


@cache
def trigger_types() -> Mapping[str, TriggerType]:
    """All trigger types, by name: those of the folder `triggers`, and those of other packages."""
    contract = import_module("stepwell.trigger")
    modules = [*_modules("triggers"), *_brought(TRIGGER_GROUP)]
    values = (value for module in modules for value in vars(module).values())
    found = [value for value in values if isinstance(value, contract.TriggerType)]
    return {each.name: each for each in found}


@cache
def operations() -> Mapping[str, Operation]:
    """All operations, by name."""
    contract = import_module("stepwell.operation")
    nouns = {
        value: None
        for module in _modules("operations")
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, contract.Noun) and hasattr(value, "noun")
    }
    return {each.name: each for noun in nouns for each in contract.declared_in(noun)}


def _modules(folder: str) -> list[ModuleType]:
    """The files of a folder of parts."""
    package = import_module(f"stepwell.{folder}")
    names = [each.name for each in pkgutil.iter_modules(package.__path__)]
    return [import_module(f"stepwell.{folder}.{name}") for name in names]


@cache
def plugged_in() -> list[NodeType]:
    """The node types that other packages bring, which not every worker has."""
    modules = _brought(NODE_GROUP)
    return _types_in(modules) if modules else []


def _brought(group: str) -> list[ModuleType]:
    """Modules that other packages bring, as far as they can be loaded."""
    modules = []
    for entry in import_module("importlib.metadata").entry_points(group=group):
        try:
            modules.append(entry.load())
        except Exception:  # others have their work to do all the same
            log.exception("The types of %s cannot be loaded.", entry.value)
    return modules


def _types_in(modules: list[ModuleType]) -> list[NodeType]:
    contract = import_module("stepwell.node")
    values = (value for module in modules for value in vars(module).values())
    return [value for value in values if isinstance(value, contract.NodeType)]


def prometheus() -> Prometheus:
    """What counts and measures for Prometheus: one for a process, whatever is open in it."""
    made: Prometheus = import_module("stepwell.telemetries.prometheus").Prometheus()
    return made


def opentelemetry(endpoint: str) -> Telemetry:
    """What makes spans and sends them there."""
    try:
        module = import_module("stepwell.telemetries.opentelemetry")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise InvalidInput(
            "Tracing needs OpenTelemetry, which comes with the extra `otel`. In the folder of "
            "Stepwell: pip install '.[otel]'. Or unset STEPWELL_OTLP_ENDPOINT and "
            "OTEL_EXPORTER_OTLP_ENDPOINT."
        ) from error
    made: Telemetry = module.OpenTelemetry(endpoint)
    return made


def postgres(module: str) -> ModuleType:
    """A module that needs the driver of PostgreSQL."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreUrlInvalid(
            "PostgreSQL needs asyncpg, which comes with the extra `postgres`. In the folder of "
            "Stepwell: pip install '.[postgres]'"
        ) from error

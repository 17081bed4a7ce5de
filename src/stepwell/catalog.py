"""Finding parts by name: for now, stores by the scheme of their URL."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from stepwell.errors import StoreUrlInvalid
from stepwell.kernel.clock import Clock
from stepwell.store import Store

_POSTGRES = ("postgresql", "postgres")
_EXAMPLES = "Use sqlite:///file.db or postgresql://user@host/database."


def sqlite_path(url: str) -> str:
    """The file of a sqlite URL: three slashes before a relative path, four before an absolute."""
    path = url.removeprefix("sqlite://").removeprefix("/").partition("?")[0]
    if not url.startswith("sqlite:///") or not path:
        raise StoreUrlInvalid(
            f"{url!r} names no file. Write sqlite:///relative/path.db or sqlite:////absolute/path.db."
        )
    if path == ":memory:":
        raise StoreUrlInvalid("A store in memory would not outlive a crash; name a file.")
    return path


def store_for(url: str, clock: Clock) -> Store:
    """The store a URL names, not yet opened."""
    given: object = url
    if not isinstance(given, str) or not given.isprintable():
        raise StoreUrlInvalid(f"{url!r} is not a store. {_EXAMPLES}")
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise StoreUrlInvalid(f"{url!r} is not a store: {error}. {_EXAMPLES}") from error
    if scheme == "sqlite":
        # Loaded by name, so that a process pays only for the store it uses.
        module = import_module("stepwell.stores.sqlite")
        store: Store = module.SqliteStore(sqlite_path(url), clock)
        return store
    if scheme in _POSTGRES:
        try:
            module = import_module("stepwell.stores.postgres")
        except ImportError as error:
            raise StoreUrlInvalid(
                "PostgreSQL needs the extra `postgres`: pip install 'stepwell[postgres]'."
            ) from error
        store = module.PostgresStore(url, clock)
        return store
    raise StoreUrlInvalid(f"{url!r} is not a store. {_EXAMPLES}")

"""A server in place of a store: the nouns and methods that commands know, each a request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.catalog import operations
from stepwell.cli.oneself import own_name
from stepwell.cli.server_files import needs_store
from stepwell.errors import InvalidInput, UnknownDefinition
from stepwell.kernel.programs import definition_of
from stepwell.operation import Operation
from stepwell.sdk.calling import Calling
from stepwell.sdk.client import Client
from stepwell.sdk.connection import Connection

# Somebody waits in front of it: a server that does not answer is given up soon.
PATIENCE = "3s"


class Remote:
    """A server, by the names that a Stepwell has."""

    def __init__(self, url: str, token: str | None) -> None:
        self._client = Client(url, token, patience=PATIENCE)

    async def __aenter__(self) -> Remote:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    @property
    def server_url(self) -> str:
        """Where the server is; a store has no such place."""
        return self._client.connection.url

    def noun(self, name: str) -> RemoteNoun:
        """What the operations of a noun are methods of."""
        return RemoteNoun(self._client.connection, name)

    async def definition_exists(self, name: str) -> bool:
        """Whether runs of it can be started; what is Python code, workers have."""
        try:
            await self.noun("definitions").get(name)
        except UnknownDefinition:
            workers = await self._client.workers()
            programs = [program for each in workers for program in each.programs]
            return name in map(definition_of, programs)
        return True

    def __getattr__(self, name: str) -> Any:
        if callable(getattr(Client, name, None)):  # `steps` and `workers` are verbs here
            return getattr(self._client, name)
        if any(each.noun == name for each in operations().values()):
            return self.noun(name)
        raise needs_store(name)


class RemoteNoun(Calling):
    """The operations of a noun, as methods that call them at the server."""

    def __init__(self, connection: Connection, noun: str) -> None:
        super().__init__(connection)
        self._noun = noun
        self._operations = {
            each.function.__name__: each for each in operations().values() if each.noun == noun
        }

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        operation = self._operations.get(name)
        if operation is None:
            raise needs_store(f"{self._noun}.{name}")

        async def call(*args: Any, **options: Any) -> Any:
            return await self._perform(operation, *args, **options)

        return call

    async def _perform(self, operation: Operation, *args: Any, **options: Any) -> Any:
        bound = inspect.signature(operation.function).bind(self, *args, **options)
        given = {name: value for name, value in bound.arguments.items() if name != "self"}
        for name in operation.caller:
            _check_caller(given.pop(name, None))
        if "idempotency_key" in operation.parameters and given.get("idempotency_key") is None:
            given["idempotency_key"] = self.connection.new_key()
        shown = await self.connection.call(f"{operation.method} {operation.path}", given)
        return None if shown is None else operation.restored(shown)


def _check_caller(name: Any) -> None:
    """Refuse to act in the name of another: the server knows who has the token."""
    if isinstance(name, str) and name not in ("", own_name()):
        raise InvalidInput(
            f"At a server you are who your token belongs to, not {name!r}; leave that out."
        )

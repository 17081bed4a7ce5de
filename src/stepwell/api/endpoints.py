"""What answers to a path: operations, and how their results become answers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol
from urllib.parse import quote

from stepwell.api.arguments import ArgumentReader, tags_in
from stepwell.api.exchange import Answer, Request, Stream
from stepwell.api.gatehouse import Gatehouse
from stepwell.app.doorkeeper import Admission
from stepwell.app.performing import Performer
from stepwell.catalog import operations
from stepwell.errors import Conflict
from stepwell.kernel.states import ENDED
from stepwell.operation import Operation


class Endpoint(Protocol):
    """Answers requests to one path."""

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer | Stream: ...


class OperationEndpoint:
    """Answers with the result of an operation."""

    def __init__(self, operation: Operation, performer: Performer, gatehouse: Gatehouse) -> None:
        self.name = operation.name
        self._operation = operation
        self._reader = ArgumentReader(operation)
        self._performer = performer
        self._gatehouse = gatehouse

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        admission = await self._gatehouse.admit(request)
        # Before the body is read: whoever may not do it has nothing to send.
        self._performer.check(admission, self._operation)
        body = await request.body() if self._reader.has_body else b""
        arguments = self._reader.read(values, request.query, request.headers, body)
        result = await self._perform(admission, arguments, request)
        await self._check(admission, arguments, result)
        return answer_of(self._operation, result, waited="wait" in arguments)

    async def _perform(
        self, admission: Admission, arguments: dict[str, Any], request: Request
    ) -> Any:
        """The result; with several tags, by the first that is that of what is there."""
        others: list[str] = []
        if "if_match" in arguments:
            others = tags_in(request.headers["if-match"])[1:]
        while True:
            try:
                return await self._performer.perform(
                    admission, self._operation, arguments, request.id
                )
            except Conflict:
                if not others:
                    raise
            arguments["if_match"] = others.pop(0)

    async def _check(self, admission: Admission, arguments: Mapping[str, Any], result: Any) -> None:
        """Refuse what a path of its own makes a mistake."""


class RunsOfDefinition(OperationEndpoint):
    """Lists the runs of a definition, which there has to be, or have been."""

    async def _check(self, admission: Admission, arguments: Mapping[str, Any], result: Any) -> None:
        if result.items:
            return
        place, name = await self._performer.place(admission), arguments["definition"]
        runs = await place.list_runs(definition=name, limit=1)
        if not runs.items and not await place.definition_exists(name):
            await place.definitions.get(name)  # it may have nothing but a draft


# Paths of operations that ask for more than the operation does.
NESTED: Mapping[str, type[OperationEndpoint]] = {
    "/definitions/{definition}/runs": RunsOfDefinition,
}


def answer_of(operation: Operation, result: Any, *, waited: bool) -> Answer:
    """The answer that a result makes."""
    shown = operation.shown(result)
    if shown is None:
        return Answer(204)
    headers = []
    status = operation.status
    if status == 201:
        if getattr(result, "created", None) is False:
            status = 200
        if place := _place_of(operation, result):
            headers.append(("location", place))
    if waited:
        headers.append(("preference-applied", "wait"))
        if result.status not in ENDED:
            status = 202
    tag = getattr(result, "etag", None) or getattr(result, "hash", None)
    if tag:
        headers.append(("etag", f'"{tag}"'))
    return Answer.json(shown, status, headers)


def _place_of(operation: Operation, result: Any) -> str | None:
    """Where what was made is found."""
    noun = operation.name.partition(".")[0]
    run_id = getattr(result, "run_id", None)
    found = run_id or getattr(result, "id", None) or getattr(result, "name", None)
    place = "runs" if run_id else noun
    if found is None or place not in found_by_id():
        return None
    return f"/api/{place}/{quote(found, safe='')}"


@cache
def found_by_id() -> frozenset[str]:
    """Nouns of which one can be asked for by what it is called."""
    parts = [each.path.split("/") for each in operations().values() if each.method == "GET"]
    return frozenset(noun for _, noun, *rest in parts if len(rest) == 1 and rest[0].startswith("{"))

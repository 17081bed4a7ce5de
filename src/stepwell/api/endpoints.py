"""What answers to a path: operations, and how their results become answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from stepwell.api.arguments import ArgumentReader
from stepwell.api.exchange import Answer, Request, Stream
from stepwell.api.gatehouse import Gatehouse
from stepwell.app.performing import Performer
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
        result = await self._performer.perform(admission, self._operation, arguments, request.id)
        return answer_of(self._operation, result, waited="wait" in arguments)


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
    return None if found is None else f"/api/{'runs' if run_id else noun}/{found}"

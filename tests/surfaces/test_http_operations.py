"""Every operation over HTTP answers what it returns, and is given what was sent."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

import msgspec
import pytest

from stepwell.api.headers import COMPONENTS
from stepwell.api.openapi import openapi_document
from stepwell.catalog import operations
from stepwell.operation import HEADERS, Operation
from tests.surfaces.scenario import Recorder, walk, walk_access
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio


async def asked(server: Served, operation: Operation, arguments: dict[str, Any]) -> Any:
    """What the server answers when arguments are sent where they belong."""
    path, query, headers, body = operation.path, {}, {}, {}
    for name, value in arguments.items():
        where = operation.parameters[name].where
        if where == "path":
            path = path.replace("{" + name + "}", quote(str(value), safe=""))
        elif where == "header":
            headers[HEADERS[name]] = f"wait={value}" if name == "wait" else str(value)
        elif where == "query":
            query[name] = ",".join(value) if isinstance(value, list) else value
        else:
            body[name] = value
    given = None if operation.method in ("GET", "DELETE") else body
    answer = await server.ask(operation.method, f"/api{path}", given, headers=headers, params=query)
    assert answer.is_success, (operation.name, answer.text)
    assert answer.status_code in (operation.status, 200, 204)
    item = openapi_document()["paths"][f"/api{operation.path}"][operation.method.lower()]
    documented = item["responses"][str(answer.status_code)]["headers"].keys()
    found = answer.json() if answer.content else None
    # What is only sent to those who prefer something; and what is not valid has no hash.
    missing = set() if "wait" in arguments else {"Preference-Applied"}
    if operation.name == "definitions.validate":
        missing.add("ETag")
    sent = {name for name in COMPONENTS if name in answer.headers}
    assert sent == documented - missing, operation.name
    return found


async def test_every_operation_answers_what_it_returns(store_url: str) -> None:
    called: set[str] = set()
    async with served(store_url) as server:
        sw = server.host.first
        place = Recorder(sw)
        server.host._open[server.host.first_id] = cast("Any", place)
        link = await server.host.doorkeeper.new_link("owner-1")
        await server.http.get(f"/login/{link}")
        server.http.cookies.clear()

        async def do(operation: str, /, **arguments: Any) -> Any:
            declared = operations()[operation]
            found = await asked(server, declared, arguments)
            given, value = place.calls.pop(f"{declared.noun}.{declared.function.__name__}")
            assert found == msgspec.json.decode(msgspec.json.encode(declared.shown(value)))
            for name, each in arguments.items():
                assert str(given[name]) == str(each) or given[name] == each, (operation, name)
            if "by" in declared.caller:
                assert given["by"] == "owner-1"
            called.add(operation)
            return found

        await walk(sw, do)
        await walk_access(do)
        rows = await sw.store.access.audit("default", None, 1000)
        recorded = {each.name for each in operations().values() if each.is_recorded}
        assert {each.operation for each in rows} == recorded | {"login"}
        assert {each.operation for each in rows if not each.subject} == {"secrets.rotate"}
    assert called == operations().keys()


async def test_a_body_with_an_unknown_field_is_told_which_there_are(store_url: str) -> None:
    async with served(store_url) as server:
        answer = await server.ask("POST", "/api/definitions/any/runs", {"name": "Ada"})
    assert answer.status_code == 422
    assert "unknown field `name`. Its fields are: input, " in answer.json()["detail"]

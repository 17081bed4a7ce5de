"""The OpenAPI document: what it says of every operation, and that the server keeps to it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from stepwell import errors, workflow
from stepwell.api.examples import recorded
from stepwell.api.openapi import openapi, openapi_document
from stepwell.api.pages import pages
from stepwell.api.problems import MEDIA_TYPE, STATUSES, status_of
from stepwell.catalog import operations
from stepwell.errors import StepwellError
from stepwell.operation import TIDY_UP
from tests.operations.support import open_gate
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio

PEOPLE = re.compile(r"(/\{at\})?/(runs|gates)/.*")
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance", "response_headers_conformance", "unsupported_method",
)  # fmt: skip
EXAMPLES = 12
# Asked by themselves: whoever has learned ids from other answers ends their own access with
# these, or listens to a run that never ends.
APART = ("runs.events", "tokens.revoke", "users.remove", "users.set_role")


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return 2


def all_errors(kind: type[StepwellError] = StepwellError) -> Iterator[type[StepwellError]]:
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from all_errors(each)


def resolved(document: dict[str, Any], found: Any) -> Any:
    """What is meant: itself, or what it refers to."""
    while "$ref" in found:
        at: Any = document
        for name in found["$ref"].removeprefix("#/").split("/"):
            at = at[name]
        found = at
    return found


def every_item(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, each in item.items():
            yield path, method, each


async def test_the_document_is_one_of_openapi() -> None:
    document = json.loads(openapi())
    assert [each.message for each in OPENAPI_31_VALIDATOR.iter_errors(document)] == []
    templates = [re.sub(r"{\w+}", "{}", path) for path in document["paths"]]
    assert len(set(templates)) == len(templates), "two paths differ in the names of values only"
    ids = [each["operationId"] for _, _, each in every_item(document)]
    assert len(set(ids)) == len(ids)
    tags = {each["name"] for each in document["tags"]}
    for path, method, each in every_item(document):
        in_path = {p["name"] for p in each.get("parameters", ()) if p["in"] == "path"}
        assert in_path == set(re.findall(r"{(\w+)}", path)), (method, path)
        assert set(each["tags"]) <= tags, (method, path)
        for response in each["responses"].values():
            assert resolved(document, response)["description"]


async def test_every_route_is_documented(tmp_path: Path) -> None:
    async with served(f"sqlite:///{tmp_path}/stepwell.db", worker=False) as server:
        found = pages(server.host, cast("Any", None), asyncio.Event())
        routes = {
            (method.lower(), "/hooks/{path}" if path.startswith("/hooks/") else path)
            for method, path, _ in found
        }
    routes |= {(each.method.lower(), f"/api{each.path}") for each in operations().values()}
    routes |= {("post", "/mcp")}
    # What asks for the head of an answer has the answers of what it is the head of.
    routes -= {("head", "/hooks/{path}")}
    # Pages for people, who do not read this.
    routes = {(method, path) for method, path in routes if not PEOPLE.fullmatch(path)}
    paths = openapi_document()["paths"]
    assert {route for route in routes if route[0] not in paths.get(route[1], {})} == set()


async def test_only_what_can_happen_is_documented() -> None:
    document = openapi_document()
    for path, method, each in every_item(document):
        statuses = each["responses"].keys()
        assert {"431", "500"} <= statuses, (method, path)
        if method in ("get", "delete") and not path.startswith("/hooks/"):
            assert not statuses & {"413", "415"}, (method, path)
        assert "405" not in statuses
    for operation in operations().values():
        looked_up = [error.code for error in operation.raises if status_of(error) == 404]
        found = document["paths"][f"/api{operation.path}"][operation.method.lower()]
        examples = resolved(document, found["responses"]["404"])["content"][MEDIA_TYPE]["examples"]
        assert examples.keys() == {*looked_up, "workspace_not_found"}, operation.name


async def test_every_answer_is_documented_with_its_headers(tmp_path: Path) -> None:
    document = openapi_document()
    for path, method, each in every_item(document):
        for status, response in each["responses"].items():
            headers = resolved(document, response)["headers"]
            assert "X-Request-Id" in headers, (method, path)
            assert ("WWW-Authenticate" in headers) is (status == "401" and path != "/"), path
            assert ("Retry-After" in headers) is (status in ("429", "503")), path
            assert ("Location" in headers) >= (status == "303"), path
        if each.get("security") != [] and path.startswith("/api/") and path != "/api/logout":
            assert "Stepwell-Workspace" in [p["name"] for p in each["parameters"]], path
    async with served(f"sqlite:///{tmp_path}/stepwell.db", worker=False) as server:
        shown = (await server.ask("GET", "/metrics")).text
        example = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]["text/plain"]
        assert example["examples"]["example"]["value"].splitlines()[0] in shown
        named = {"Stepwell-Workspace": "elsewhere"}
        for path in ("/api/runs", "/metrics", "/api/runs/none/events"):
            answer = await server.ask("GET", path, headers=named)
            assert answer.json()["code"] == "workspace_not_found", path


async def test_every_operation_is_documented_with_what_it_refuses() -> None:
    document = openapi_document()
    paths = document["paths"]
    for each in operations().values():
        found = paths[f"/api{each.path}"][each.method.lower()]
        assert found["operationId"] == each.name
        assert found["summary"].endswith("."), each.name
        assert found["x-permission"] == each.needs
        for error in each.raises:
            said = resolved(document, found["responses"][str(status_of(error))])["description"]
            assert f"`{error.code}`" in said, (each.name, error.code)


async def test_definitions_are_named_by_their_ids() -> None:
    found = openapi_document()["paths"].items()
    of_one = {path: item for path, item in found if path.startswith("/api/definitions/{")}
    assert len(of_one) > 10
    for path, item in of_one.items():
        for method, each in item.items():
            named = re.findall(r"{(\w+)}", path)[0]
            [said] = [p["schema"] for p in each["parameters"] if p["name"] == named]
            assert said["description"] == "The definition's name, which is its id.", (method, path)


async def test_statuses_are_of_errors_that_there_are() -> None:
    codes = {each.code for each in all_errors()}
    assert STATUSES.keys() <= codes


async def test_what_operations_raise_is_never_a_fault_of_the_server() -> None:
    for each in operations().values():
        for error in each.raises:
            assert status_of(error) != 500, (each.name, error.code)


async def test_everything_is_shown_by_example_and_examples_fit_their_schemas() -> None:
    document = json.loads(openapi())
    checked = 0
    for path, method, each in every_item(document):
        contents = list(each.get("requestBody", {}).get("content", {}).values())
        for response in each["responses"].values():
            contents += resolved(document, response).get("content", {}).values()
        for content in contents:
            schema = {**content["schema"], "components": document["components"]}
            assert content["examples"], (method, path)
            for example in content["examples"].values():
                assert jsonschema_rs.is_valid(schema, example["value"]), (method, path, example)
                checked += 1
        for parameter in each.get("parameters", ()):
            schema = {**parameter["schema"], "components": document["components"]}
            assert jsonschema_rs.is_valid(schema, parameter["example"]), (method, path, parameter)
    assert checked > len(operations())


async def test_every_answer_was_recorded() -> None:
    answering = {each.name for each in operations().values() if each.returns is not type(None)}
    assert recorded().keys() == answering, "run: make examples"


async def test_nothing_that_is_hidden_is_documented() -> None:
    text = json.dumps(openapi_document()["components"]["schemas"])
    assert "password_hash" not in text
    schemas = openapi_document()["components"]["schemas"]
    assert "tokens" not in schemas["GateRecord"]["properties"]


async def test_the_server_keeps_to_its_document(store_url: str, tmp_path: Path) -> None:
    async with served(store_url, [double]) as server:
        document = _with_examples(json.loads(openapi()), await _populated(server))
        written = tmp_path / "openapi.json"
        written.write_text(json.dumps(document))
        for chosen in (_options("--exclude-operation-id"), _options("--include-operation-id")):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "schemathesis.cli", "run", str(written), "--url", server.url,
                "--header", f"Authorization: Bearer {server.tokens['owner']}", *chosen,
                "--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES), "--seed", "1",
                "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all",
                "--no-color", "--generation-database", "none", "--request-timeout", "60",
                cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            said = (await process.communicate())[0].decode()
            assert process.returncode == 0, said[-20_000:]
            assert "Tested: " in said
            assert "Rate limited" not in said, "It lost its access, and asked on in vain."


def _options(option: str) -> Iterator[str]:
    for each in APART:
        yield from (option, each)


async def _populated(server: Served) -> dict[str, str]:
    """Something to find under every name that stands in a path."""
    place = server.host.first
    document = {
        **TIDY_UP,
        "policy": {"proposals": True},
        "nodes": [{"id": "ok", "type": "approval", "config": {"prompt": "Go on?"}}],
    }
    await place.definitions.publish(document)
    await place.definitions.save_draft("tidy-up", {**document, "title": "Other"})
    change = [{"op": "set_meta", "set": {"title": "Better"}}]
    proposal = await place.proposals.propose("tidy-up", change, author="ada")
    trigger = await place.triggers.create("tidy-up", "schedule", {"cron": "0 9 * * *"})
    await place.secrets.set("hook-secret", "a secret value")
    await place.triggers.create("tidy-up", "webhook", {"path": "pushed"})
    ended = await place.start("double")
    await ended.result(timeout=30)
    run = await place.start("tidy-up")
    gate = await open_gate(place, run.id)
    users = {
        each["name"]: each["id"] for each in (await server.ask("GET", "/api/users")).json()["items"]
    }
    tokens = (await server.ask("GET", "/api/tokens", role="viewer")).json()["items"]
    return {
        "name": "tidy-up", "ref": "tidy-up", "definition": "tidy-up", "run_id": run.id,
        "gate_id": gate.id, "trigger": trigger.id, "proposal_id": proposal.id, "step": "ok",
        "ended": ended.id, "user_id": users["viewer-1"], "token_id": tokens[0]["id"],
    }  # fmt: skip


def _with_examples(document: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
    """The document with something that exists as the example of what stands in its paths."""
    # The token is the way in: made-up sessions would get no further than the door.
    document["security"] = [{"token": []}]
    document["components"]["securitySchemes"].pop("session")
    for path, item in document["paths"].items():
        for each in item.values():
            # And so would made-up workspaces.
            given = [p for p in each.get("parameters", ()) if p["name"] != "Stepwell-Workspace"]
            each["parameters"] = given
            for parameter in given:
                if parameter["in"] == "path" and parameter["name"] in values:
                    parameter["example"] = values[parameter["name"]]
                    if path.startswith("/api/secrets"):
                        parameter["example"] = "hook-secret"
                    if path.endswith("/events"):  # which end when the run has
                        parameter["example"] = values["ended"]
    return document

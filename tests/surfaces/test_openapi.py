"""The OpenAPI document: what it says of every operation, and that the server keeps to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from stepwell import errors, workflow
from stepwell.api.openapi import openapi_document
from stepwell.api.problems import STATUSES, status_of
from stepwell.catalog import operations
from stepwell.errors import StepwellError
from stepwell.operation import TIDY_UP
from tests.operations.support import open_gate
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance", "response_headers_conformance", "unsupported_method",
)  # fmt: skip
EXAMPLES = 12


@workflow(name="double")
async def double(ctx: Any, input: Any) -> Any:
    return 2


def all_errors(kind: type[StepwellError] = StepwellError) -> Iterator[type[StepwellError]]:
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from all_errors(each)


async def test_every_operation_is_documented_with_what_it_refuses() -> None:
    paths = openapi_document()["paths"]
    for each in operations().values():
        found = paths[f"/api{each.path}"][each.method.lower()]
        assert found["operationId"] == each.name
        assert found["summary"].endswith("."), each.name
        assert found["x-permission"] == each.needs
        for error in each.raises:
            said = found["responses"][str(status_of(error))]["description"]
            assert f"`{error.code}`" in said, (each.name, error.code)


async def test_statuses_are_of_errors_that_there_are() -> None:
    codes = {each.code for each in all_errors()}
    assert STATUSES.keys() <= codes


async def test_what_operations_raise_is_never_a_fault_of_the_server() -> None:
    for each in operations().values():
        for error in each.raises:
            assert status_of(error) != 500, (each.name, error.code)


async def test_examples_fit_their_schemas() -> None:
    document = openapi_document()
    for path, item in document["paths"].items():
        for method, each in item.items():
            content = each.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = {**content.get("schema", {}), "components": document["components"]}
            for example in content.get("examples", {}).values():
                assert jsonschema_rs.is_valid(schema, example["value"]), (method, path)


async def test_nothing_that_is_hidden_is_documented() -> None:
    text = json.dumps(openapi_document()["components"]["schemas"])
    assert "password_hash" not in text
    schemas = openapi_document()["components"]["schemas"]
    assert "tokens" not in schemas["GateRecord"]["properties"]


async def test_the_server_keeps_to_its_document(tmp_path: Path) -> None:
    async with served(f"sqlite:///{tmp_path}/stepwell.db", [double]) as server:
        document = _with_examples(openapi_document(), await _populated(server))
        written = tmp_path / "openapi.json"
        written.write_text(json.dumps(document))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "schemathesis.cli", "run", str(written), "--url", server.url,
            "--header", f"Authorization: Bearer {server.tokens['owner']}",
            "--checks", ",".join(CHECKS), "--max-examples", str(EXAMPLES), "--seed", "1",
            "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all",
            "--exclude-path", "/api/runs/{run_id}/events", "--exclude-path", "/api/logout",
            "--no-color", "--generation-database", "none", "--request-timeout", "60",
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-20_000:]
    assert b"Tested: " in said


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
    run = await place.start("tidy-up")
    gate = await open_gate(place, run.id)
    return {
        "name": "tidy-up", "ref": "tidy-up", "definition": "tidy-up", "run_id": run.id,
        "gate_id": gate.id, "trigger": trigger.id, "proposal_id": proposal.id, "step": "ok",
    }  # fmt: skip


def _with_examples(document: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
    """The document with something that exists as the example of what stands in its paths."""
    for path, item in document["paths"].items():
        for each in item.values():
            for parameter in each.get("parameters", ()):
                if parameter["in"] == "path" and parameter["name"] in values:
                    parameter["example"] = values[parameter["name"]]
                    if path.startswith("/api/secrets"):
                        parameter["example"] = "hook-secret"
    return document

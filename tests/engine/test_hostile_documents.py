"""Documents that mean harm: a clear error in bounded time, and the engine unharmed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from stepwell import Stepwell
from stepwell.catalog import node_types
from stepwell.cli.documents import load
from stepwell.graph.documents import checked
from stepwell.graph.inputs import Inputs
from stepwell.settings import Settings
from tests.conftest import World
from tests.engine.support import until
from tests.operations.support import definition, node

# Generous: machines are noisy, and what means harm takes minutes, or all memory there is.
BOUND_SECONDS = 20


def chain(number: int) -> list[dict[str, Any]]:
    return [{"source": f"n{i}", "target": f"n{(i + 1) % number}"} for i in range(number)]


def nodes(number: int) -> list[dict[str, Any]]:
    return [node(f"n{i}", "transform", value=i) for i in range(number)]


def bomb() -> str:
    lines = ["name: x", "a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return "\n".join([*lines, "nodes: *a11"])


def one(kind: str, /, **config: Any) -> str:
    return json.dumps({"name": "x", "nodes": [node("a", kind, **config)]})


HOSTILE = {
    "a cycle": (json.dumps({"name": "x", "nodes": nodes(50), "edges": chain(50)}), "cycle"),
    "nested too deep": ('{"name": ' * 50_000, "unreadable"),
    "nested YAML": ("name: x\nnodes: " + "[" * 50_000, "unreadable"),
    "ten thousand nodes": (json.dumps({"name": "x", "nodes": nodes(10_000)}), "too_many_nodes"),
    "odd ids": (json.dumps({"name": "x", "nodes": [node("ünï‮cødé", "transform")]}), "bad_id"),
    "a YAML bomb": (bomb(), "unreadable"),
    "a YAML tag": ("name: !!python/object/apply:os.system ['echo']\nnodes: []", "unreadable"),
    "a call": (one("transform", value="{{input.items()}}"), "bad_reference"),
    "long CEL": (
        json.dumps({"name": "x", "nodes": [node("a", "transform") | {
            "when": "[" + ",".join(["1"] * 2000) + "].all(x, [1,2,3].all(y, x > y))"}]}),
        "bad_condition"),
    "deep CEL": (
        json.dumps({"name": "x", "nodes": [node("a", "transform") | {
            "when": "(" * 5000 + "true" + ")" * 5000}]}), "bad_condition"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_in_bounded_time(name: str) -> None:
    text, code = HOSTILE[name]
    began = time.perf_counter()
    found = checked(text, node_types())
    assert code in {each.code for each in found.problems}
    assert time.perf_counter() - began < BOUND_SECONDS


def test_ten_megabytes_are_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    file.write_text("name: x\ntitle: " + "y" * 10_000_000)
    [problem] = load(str(file)).problems
    assert problem.code == "unreadable"
    assert "at most 4,194,304" in problem.message


def test_a_schema_that_refers_to_itself_ends() -> None:
    assert Inputs({"$ref": "#"}).prepared({"a": 1}) == {"a": 1}


async def test_templates_see_data_and_no_attributes(world: World) -> None:
    async with world() as sw, sw.worker():
        for path in ("input.__class__", "input.keys", "run.__dict__", "input.x.__len__"):
            document = definition(node("a", "transform", value=f"{{{{{path}}}}}"))
            run = await sw.start_document(document, {"x": "y"})
            ended = await until(sw, run.id, "completed", "failed")
            assert ended.error is not None
            assert ended.error.type == "missing_path"


async def test_nodes_that_mean_harm_fail_and_the_next_run_is_as_good_as_any(
    store_url: str, tmp_path: Path
) -> None:
    harm = {
        "spin": node("spin", "code", code="while True:\n    pass") | {"timeout": "2s"},
        "spin_js": node("spin_js", "code", language="javascript", code="while (true) {}")
        | {"timeout": "2s"},
        "hoard": node("hoard", "code", code="x = ['y' * 1000]\nwhile True:\n    x = x + x"),
        "hoard_js": node("hoard_js", "code", language="javascript",
                         code="let x = ['y']; for (;;) x = x.concat(x)"),
        "fork": node("fork", "script", script=":(){ :|:& };:; wait") | {"timeout": "3s"},
        "write": node("write", "script", script=f"echo x > {tmp_path}/out"),
        "socket": node("socket", "script", interpreter="python3",
                       script="import socket; socket.create_connection(('127.0.0.1', 9), 2)"),
        "cel": node("cel", "transform", value=1)
        | {"when": "input.big.all(x, input.big.all(y, x + y >= 0))"},
        "huge": node("huge", "shell", command="head -c 3000000 /dev/zero | tr '\\0' 'x'"),
        "long": node("long", "transform", value="{{input.text}}" * 20),
    }  # fmt: skip
    settings = Settings(folder=str(tmp_path), environment={"PATH": "/usr/bin:/bin"})
    document = {"name": "harm", "nodes": list(harm.values())}
    began = time.perf_counter()
    async with Stepwell(store_url, settings=settings) as sw, sw.worker():
        run = await sw.start_document(document, {"big": list(range(900)), "text": "y" * 100_000})
        ended = await until(sw, run.id, "completed", "failed")
        steps = {step.key: step for step in await sw.steps(run.id)}
        assert ended.status == "failed"
        failed = {key for key in harm if steps[key].status == "failed"}
        # What a shell says when it may not fork any more is its own affair.
        assert failed - {"fork"} == set(harm) - {"huge", "fork"}
        assert steps["huge"].output["truncated"] is True
        assert not (tmp_path / "out").exists()
        good = await sw.start_document(definition(node("a", "transform", value="fine")))
        assert await good.result(30) == "fine"
    assert time.perf_counter() - began < 3 * BOUND_SECONDS

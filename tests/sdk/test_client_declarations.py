"""The client against the declarations of operations: same paths, same parameters, same records."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

from stepwell.catalog import operations
from stepwell.operation import Operation
from stepwell.sdk.client import Client, RunOptions
from stepwell.sdk.remote_nouns import Definitions, Gates

NOUNS: tuple[tuple[str, type], ...] = (
    ("", Client),
    ("definitions", Definitions),
    ("gates", Gates),
)
METHODS = {
    f"{noun}.{name}".strip("."): method
    for noun, kind in NOUNS
    for name, method in vars(kind).items()
    if inspect.iscoroutinefunction(method) and not name.startswith("_")
}
# What calls no operation, or several.
BESIDES = frozenset({"close", "wait", "result", "tasks"})


class Recorded(Exception):
    """What a method has asked for."""


class Recorder:
    """Takes the place of a connection, to see which operation a method is about."""

    async def call(self, route: str, arguments: dict[str, Any]) -> Any:
        raise Recorded(route, arguments)

    def new_key(self) -> str:
        return "key"


async def asked(name: str) -> tuple[Operation, dict[str, Any]]:
    """The operation that a method calls, and the arguments that it gives."""
    noun = name.rpartition(".")[0]
    kind = dict(NOUNS)[noun]
    target = object.__new__(kind)
    target.connection = Recorder()
    parameters = inspect.signature(METHODS[name]).parameters.values()
    given = {
        each.name: "x"
        for each in parameters
        if each.name != "self" and each.kind is not each.VAR_KEYWORD
    }
    if name == "start":
        given |= dict.fromkeys(RunOptions.__annotations__, "x")
    with pytest.raises(Recorded) as raised:
        await METHODS[name](target, **given)
    route, arguments = raised.value.args
    [found] = [each for each in operations().values() if f"{each.method} {each.path}" == route]
    return found, arguments


@pytest.mark.parametrize("name", sorted(METHODS.keys() - BESIDES))
async def test_a_method_gives_what_its_operation_takes(name: str) -> None:
    operation, arguments = await asked(name)
    assert arguments.keys() <= operation.parameters.keys()
    required = {each.name for each in operation.parameters.values() if each.required}
    assert required <= arguments.keys()
    returned = inspect.signature(METHODS[name]).return_annotation
    if "Record" in returned or "Result" in returned:
        assert returned == operation.returns.__name__ or "list[" in returned


def test_a_client_loads_no_engine_and_is_there_at_once() -> None:
    program = (
        # Time of the processor: a machine with much else to do takes longer by the clock.
        "import time; t = time.process_time(); import stepwell.sdk.client;"
        "print(time.process_time() - t); import sys; print(*sys.modules)"
    )
    took = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
        )
        seconds, _, loaded = done.stdout.partition("\n")
        took.append(float(seconds))
    parts = {name.split(".")[1] for name in loaded.split() if name.startswith("stepwell.")}
    assert not parts & {"engine", "app", "stores", "operations", "api", "cli", "nodes"}
    assert min(took) < 0.3, took

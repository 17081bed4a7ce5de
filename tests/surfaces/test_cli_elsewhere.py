"""What not every process has: functions named at the last moment, node types of other packages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from tests.surfaces.graphs import document, refused, written
from tests.surfaces.support import Cli

FUNCTIONS = """
    from stepwell import function

    @function
    def shout(text):
        return text.upper()
"""
CALLING = """
    name: calling
    nodes:
      - {id: first, type: shell, config: {command: "echo first >> log"}}
      - {id: call, type: python, config: {function: "{{input.function}}", input: hello}}
    edges: [{source: first, target: call}]
"""
PARENT = """
    name: parent
    nodes: [{id: child, type: run, config: {definition: calling, input: "@input"}}]
"""
PLUGIN = """
    from typing import Any
    from stepwell.node import NodeConfig, node

    class Config(NodeConfig):
        text: str

    @node("acme_shout", title="Shout", group="action", config=Config, aliases=("acme_yell",))
    async def shout(config: Config, call: Any) -> Any:
        return config.text.upper()

    @node("acme_praise", title="Praise", group="action", config=Config)
    async def praise(config: Config, call: Any) -> Any:
        return f"{config.text}!"

    @node("acme_greet", title="Greet", group="action", config=Config)
    async def greet(config: Config, call: Any) -> Any:
        return f"hello {config.text}"
"""
SHOUTING = """
    name: shouting
    nodes:
      - {id: greet, type: acme_greet, config: {text: you}}
      - {id: praise, type: acme_praise, config: {text: "@greet"}}
      - {id: shout, type: acme_shout, config: {text: "@praise"}}
"""


@contextmanager
def plugged_in(cli: Cli) -> Iterator[None]:
    """Processes that are begun inside have a package that brings a node type."""
    folder = cli.folder / "packages"
    info = folder / "acme-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "acme.py").write_text(textwrap.dedent(PLUGIN), "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text("[stepwell.nodes]\nacme = acme\n", "utf-8")
    cli.environ["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        del cli.environ["PYTHONPATH"]


def test_a_run_that_comes_to_a_function_nobody_has_goes_on_with_one_who_has(lite: Cli) -> None:
    written(lite, FUNCTIONS, "shouting.py")
    given = ("--input", '{"function": "shout"}')
    said = refused(lite.process("run", written(lite, CALLING), *given))
    assert "No living worker has the Python function 'shout'" in said
    run_id = said.partition("Run ")[2].partition(" ")[0]
    assert f"stepwell resume {run_id} --with MODULE" in said
    found = document(lite, "resume", run_id, "--with", "shouting")
    assert (found["status"], found["output"]) == ("completed", "HELLO")
    assert (lite.folder / "log").read_text("utf-8") == "first\n"


def test_the_same_in_a_child_is_said_too(lite: Cli) -> None:
    written(lite, CALLING, "calling.yaml")
    parent = written(lite, PARENT, "parent.yaml")
    said = refused(lite.process("run", parent, "--input", '{"function": "shout"}'))
    assert "No living worker has the Python function 'shout'" in said


def test_a_graph_with_node_types_of_another_package_waits_for_a_worker_that_has_it(
    lite: Cli,
) -> None:
    path = written(lite, SHOUTING)
    assert "acme_shout" in lite.process("validate", path).stdout
    with plugged_in(lite):
        assert lite.process("definitions", "publish", path).exit_code == 0
    with lite.worker("jobs"):
        run_id = lite.ok("runs", "start", "shouting")["id"]
        lite.until(
            lambda found: found["explanation"]["code"] == "unknown_node_type",
            "runs", "show", run_id,
        )  # fmt: skip
        with plugged_in(lite), lite.worker("jobs"):
            lite.until(lambda found: found["run"]["status"] == "completed", "runs", "show", run_id)
    assert lite.ok("runs", "show", run_id)["run"]["output"] == "HELLO YOU!"

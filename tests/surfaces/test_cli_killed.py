"""`stepwell run` is killed in the middle of a graph, and `stepwell resume` finishes it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.surfaces.graphs import document, log, written
from tests.surfaces.support import PATIENCE_SECONDS, Cli

DISKS = 10
MOVES = 2**DISKS - 1


def moves(disks: int, source: str, spare: str, target: str) -> Iterator[str]:
    """Disks from one peg to another, never a larger one on a smaller one."""
    if disks:
        yield from moves(disks - 1, source, target, spare)
        yield f"Move disk {disks} from {source} to {target}"
        yield from moves(disks - 1, spare, source, target)


def hanoi() -> str:
    """A formula in which each of 1,025 steps needs the one before."""
    titles = ["Set up", *moves(DISKS, "A", "B", "C"), "Verify"]
    ids = ["setup", *(f"move-{number}" for number in range(1, MOVES + 1)), "verify"]
    parts = ['formula = "hanoi"\ntype = "workflow"\nversion = 1\n']
    for place, (step_id, title) in enumerate(zip(ids, titles, strict=True)):
        needs = f'needs = ["{ids[place - 1]}"]\n' if place else ""
        parts.append(f'[[steps]]\nid = "{step_id}"\ntitle = "{title}"\n{needs}')
    return "\n".join(parts)


def killed(cli: Cli, *words: str, after: Any) -> str:
    """Run, and kill the process as soon as its progress is `after`; the run's id."""
    with cli.started(*words) as process:
        try:
            assert process.stderr is not None
            # A page: else it could be through before anybody has read how far it is.
            fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
            started = re.match(r"Run (\w+) of ", process.stderr.readline())
            assert started is not None
            done: list[str] = []
            while not after(done):
                line = process.stderr.readline()
                assert line, "it ended before it was killed"
                if " ✓ " in line:
                    done.append(line.split()[1])
        finally:
            process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    return started[1]


def recorded(cli: Cli, run_id: str) -> dict[str, Any]:
    """The steps in the journal that have ended, by key; none is there twice."""
    steps = cli.ok("runs", "show", run_id)["steps"]
    assert len({step["key"] for step in steps}) == len(steps)
    return {step["key"]: step for step in steps if step["completed_at"] is not None}


def test_hanoi_is_killed_and_finished_with_no_move_repeated(lite: Cli) -> None:
    formula = written(lite, hanoi(), "hanoi.formula.toml")
    done = lite.process("import", formula, "-o", "hanoi.yaml")
    assert "nothing was lost" in done.stderr
    run_id = killed(
        lite, "run", "hanoi.yaml", "--auto-advance", after=lambda done: len(done) >= 200
    )
    before = recorded(lite, run_id)
    assert 199 <= sum(key.endswith(".task") and key != "setup.task" for key in before) < MOVES
    found = document(lite, "resume", run_id)
    assert found["status"] == "completed"
    assert [step["id"] for step in found["steps"]] == [
        "setup", *(f"move-{number}" for number in range(1, MOVES + 1)), "verify",
    ]  # fmt: skip
    assert {(step["status"], step["attempts"]) for step in found["steps"]} == {("completed", 1)}
    after = recorded(lite, run_id)
    for key, step in before.items():
        assert after[key] == step
    run = lite.ok("runs", "show", run_id)["run"]
    began, ended = (datetime.fromisoformat(run[at]) for at in ("created_at", "completed_at"))
    assert (ended - began).total_seconds() < 10


GRAPH = """
    name: busy
    nodes:
      - {id: begin, type: shell, config: {command: "echo begin >> log"}}
      - id: both
        type: parallel
        branches:
          - id: left
            nodes:
              - {id: l1, type: shell, config: {command: "echo l1 >> log"}}
              - {id: l2, type: shell, config: {command: "echo l2 >> log"}}
            edges: [{source: l1, target: l2}]
          - {id: right, nodes: [{id: r1, type: shell, config: {command: "echo r1 >> log"}}]}
      - id: each
        type: shell
        for_each: {items: [0, 1, 2, 3, 4, 5], concurrency: 2}
        # The fourth cannot go on before somebody opens the other end, or says that it may.
        config:
          command: |
            echo each-{{index}} >> log
            test {{index}} != 3 || test -e open || cat door
      - id: again
        type: loop
        config: {until: "index == 2", delay: 10ms}
        body: [{id: round, type: shell, config: {command: "echo round-{{index}} >> log"}}]
      - {id: end, type: shell, config: {command: "echo end >> log"}}
    edges:
      - {source: begin, target: both}
      - {source: begin, target: each}
      - {source: begin, target: again}
      - {source: both, target: end}
      - {source: each, target: end}
      - {source: again, target: end}
"""


def test_branches_items_and_rounds_of_a_killed_run_happen_once(cli: Cli) -> None:
    written(cli, GRAPH)
    door = cli.folder / "door"
    os.mkfifo(door)
    # All there is to do while the fourth item waits.
    ready = {
        "begin", "both.left.l2", "both.right.r1", "each[0]", "each[1]", "each[2]", "each[4]",
        "each[5]", "again[2].body.round",
    }  # fmt: skip
    run_id = killed(cli, "run", "flow.yaml", after=lambda done: ready <= set(done))
    before = recorded(cli, run_id)
    (cli.folder / "open").touch()
    os.close(os.open(door, os.O_RDWR))  # a command that outlives its worker may go
    assert "each[3]" not in before
    found = document(cli, "resume", run_id)
    assert found["status"] == "completed"
    after = recorded(cli, run_id)
    for key, step in before.items():
        assert after[key] == step
    wanted = Counter(
        ["begin", "l1", "l2", "r1", "end", *(f"each-{i}" for i in range(6)),
         *(f"round-{i}" for i in range(3))]
    )  # fmt: skip
    # The item that was interrupted is executed again, and nothing else is.
    assert Counter(log(cli)) == wanted + Counter(["each-3"])
    for step in found["steps"]:
        assert (step["status"], step["attempts"]) == ("completed", 1), step


def test_an_interrupted_run_says_how_it_goes_on(lite: Cli) -> None:
    text = """
        name: long
        nodes:
          - {id: a, type: shell, config: {command: "echo a >> log"}}
          - {id: b, type: shell, config: {command: "test -e open || cat door"}}
        edges: [{source: a, target: b}]
    """
    os.mkfifo(lite.folder / "door")
    with lite.started("run", written(lite, text)) as process:
        assert process.stderr is not None
        started, first = process.stderr.readline(), process.stderr.readline()
        assert "✓ a" in first
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    run_id = started.split()[1]
    assert process.returncode == 130
    assert f"`stepwell resume {run_id}` lets the run go on" in said
    (lite.folder / "open").touch()
    assert document(lite, "resume", run_id)["status"] == "completed"
    assert log(lite) == ["a"]

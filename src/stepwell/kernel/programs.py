"""The names of programs: what a worker must have to execute a run, `kind:definition@version`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations


def code_program(definition: str, version: int) -> str:
    """The program of a workflow written in Python."""
    return f"code:{definition}@{version}"


# How all programs of graphs begin.
GRAPHS = "graph:"
# What a worker must have to execute runs of graphs, whichever graph it is.
GRAPH_PROGRAM = f"{GRAPHS}*@1"
_FUNCTION = "function "
_NODE_TYPE = "node type "
_AND = " + "


def graph_program(node_types: Iterable[str] = (), function: str | None = None) -> str:
    """The program of a graph that needs what not every worker has.

    That is node types in it that other packages bring, and the function of the node that it has
    come to.
    """
    needs = [f"{_NODE_TYPE}{name}" for name in sorted(node_types)]
    needs += [] if function is None else [f"{_FUNCTION}{function}"]
    return f"{GRAPHS}{_AND.join(needs)}@1" if needs else GRAPH_PROGRAM


def graph_programs(node_types: Iterable[str], functions: Iterable[str]) -> list[str]:
    """What a worker that has these can execute: with none, one, two or all of the types."""
    names = sorted(node_types)
    sets = {kept for size in (0, 1, 2, len(names)) for kept in combinations(names, size)}
    return [
        graph_program(kept, function) for kept in sorted(sets) for function in (None, *functions)
    ]


def needs_of(program: str) -> list[tuple[str, str]]:
    """What a graph needs of its worker beside graphs: kinds of things, and their names."""
    found = []
    needs = program.removeprefix(GRAPHS).rpartition("@")[0] if program.startswith(GRAPHS) else ""
    for need in needs.split(_AND):
        for kind, prefix in (("function", _FUNCTION), ("node_type", _NODE_TYPE)):
            if need.startswith(prefix):
                found.append((kind, need.removeprefix(prefix)))
    return found


def shown_program(program: str) -> str:
    """The program for people: definition and version."""
    if program == GRAPH_PROGRAM:
        return "graphs"
    found = program.partition(":")[2]
    return found.rpartition("@")[0] if program.startswith(GRAPHS) else found


def definition_of(program: str) -> str:
    return program.partition(":")[2].rpartition("@")[0]

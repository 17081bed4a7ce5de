"""The names of programs: what a worker must have to execute a run, `kind:definition@version`."""

from __future__ import annotations


def code_program(definition: str, version: int) -> str:
    """The program of a workflow written in Python."""
    return f"code:{definition}@{version}"


# What a worker must have to execute runs of graphs, whichever graph it is.
GRAPH_PROGRAM = "graph:*@1"
# The same with one thing more that a graph has come to need, and not every worker has.
_FUNCTION = "graph:function "
_NODE_TYPE = "graph:node type "


def function_program(name: str) -> str:
    """What a worker must have to execute a node that calls this Python function."""
    return f"{_FUNCTION}{name}@1"


def node_type_program(name: str) -> str:
    """What a worker must have to execute a graph with nodes of this type."""
    return f"{_NODE_TYPE}{name}@1"


def need_of(program: str) -> tuple[str, str] | None:
    """What a graph needs of its worker, if it needs anything: the kind of thing, and its name."""
    for kind, prefix in (("function", _FUNCTION), ("node_type", _NODE_TYPE)):
        if program.startswith(prefix):
            return kind, program.removeprefix(prefix).rpartition("@")[0]
    return None


def shown_program(program: str) -> str:
    """The program for people: definition and version."""
    if program == GRAPH_PROGRAM:
        return "graphs"
    found = program.partition(":")[2]
    return found if need_of(program) is None else found.rpartition("@")[0]


def definition_of(program: str) -> str:
    return program.partition(":")[2].rpartition("@")[0]

"""The names of programs: what a worker must have to execute a run, `kind:definition@version`."""

from __future__ import annotations


def code_program(definition: str, version: int) -> str:
    """The program of a workflow written in Python."""
    return f"code:{definition}@{version}"


# What a worker must have to execute runs of graphs, whichever graph it is.
GRAPH_PROGRAM = "graph:*@1"


def shown_program(program: str) -> str:
    """The program for people: definition and version."""
    return program.partition(":")[2]


def definition_of(program: str) -> str:
    return shown_program(program).rpartition("@")[0]

"""The names of programs: what a run needs is what a worker that has it can execute."""

from __future__ import annotations

import pytest

from stepwell.kernel.programs import (
    GRAPH_PROGRAM,
    graph_program,
    graph_programs,
    needs_of,
    shown_program,
)


@pytest.mark.parametrize("types", [[], ["a"], ["b", "a"], ["c", "a", "b"]])
@pytest.mark.parametrize("function", [None, "f", "g h"])
def test_a_worker_that_has_all_that_a_graph_needs_can_execute_it(
    types: list[str], function: str | None
) -> None:
    needed = graph_program(types, function)
    assert needed in graph_programs(["a", "b", "c"], ["f", "g h"])
    assert GRAPH_PROGRAM in graph_programs([], [])
    wanted = [("node_type", name) for name in sorted(types)]
    wanted += [] if function is None else [("function", function)]
    assert needs_of(needed) == wanted
    for missing in types:
        left = [name for name in ["a", "b", "c"] if name != missing]
        assert needed not in graph_programs(left, ["f", "g h"])
    if function is not None:
        assert needed not in graph_programs(["a", "b", "c"], [])


def test_programs_are_shown_as_people_know_them() -> None:
    assert shown_program("code:onboard@2") == "onboard@2"
    assert shown_program(GRAPH_PROGRAM) == "graphs"
    assert shown_program(graph_program(["a"], "f")) == "node type a + function f"
    assert needs_of("code:function f@1") == []

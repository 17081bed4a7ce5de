"""Text to data: what is read, with which lines, and what is refused in bounded time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from stepwell.graph.problems import Problems
from stepwell.graph.reading import MAX_CHARACTERS, Reading, read


def reading(text: str) -> Reading:
    problems = Problems()
    found = read(text, problems)
    assert problems.found == []
    assert found is not None
    return found


def refusal(text: str) -> tuple[str, int | None]:
    problems = Problems()
    assert read(text, problems) is None
    (found,) = problems.found
    assert found.code == "unreadable"
    return found.message, found.line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[yes, on, NO, 12:30, 2020-01-01]", ["yes", "on", "NO", "12:30", "2020-01-01"]),
        ("[1_000, 1e, 0x, +]", ["1_000", "1e", "0x", "+"]),
        ("[true, False, null, ~, '', \"true\"]", [True, False, None, None, "", "true"]),
        ("[1, -2, 0x1F, 0o17, 010, 1.5, 1e3, .5]", [1, -2, 31, 15, 10, 1.5, 1000.0, 0.5]),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("1: a\ntrue: b\n", {"1": "a", "true": "b"}),
        ("x: &x {a: 1}\ny: *x", {"x": {"a": 1}, "y": {"a": 1}}),
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 3}}),
        ("a: !!str 5", {"a": "5"}),
        ('{"a": "\\ud83d\\ude00", "b": [1]}', {"a": "😀", "b": [1]}),
        ("", None),
    ],
)  # fmt: skip
def test_plain_words_mean_what_they_look_like(text: str, value: Any) -> None:
    assert reading(text).data == value


def test_every_part_knows_its_line() -> None:
    lines = reading("name: x\nnodes:\n  - id: a\n    type: shell\n  - id: b\n").lines
    assert lines["nodes"] == 3
    assert (lines["nodes[0].type"], lines["nodes[1]"], lines["nodes[1].id"]) == (4, 5, 5)


def _laughs() -> str:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("a: 1\nb: [1\n", "expected", 3),
        ("a: 1\na: 2\n", "twice", 2),
        ("? [a]\n: b", "key must be text", 1),
        ("a: *nobody", "not there yet", 1),
        ("a: &x [*x]", "not there yet", 1),
        ("a: 1\n--- \nb: 2", "several documents", 2),
        ("a:\n  b: .nan", "no number", 2),
        ("a: 1e999", "no number", 1),
        ("a: 99999999999999999999", "64 bits", 1),
        ("a: !!python/object/apply:os.system [x]", "not a kind of value", 1),
        ("a: !!binary aGk=", "not a kind of value", 1),
        ("a: {<<: 3}", "needs a mapping", 1),
        (_laughs(), "more than 200,000 values", 6),
        ("[" * 100_000, "nested more than 100", 1),
        ("- " * 100_000 + "x", "nested more than 100", 1),
        ('{"a":' * 3000 + "1" + "}" * 3000, "nested more than 100", 1),
        ("[" * 150 + "]" * 150, "nested more than 100", None),
        ("[" + "1," * 250_000 + "1]", "more than 200,000 values", None),
        ("x" * (MAX_CHARACTERS + 1), "characters", None),
        ("a: \x00", "control characters", None),
    ],
    ids=range(20),
)
def test_what_cannot_be_read_is_refused_with_its_line(
    text: str, said: str, line: int | None
) -> None:
    message, at = refusal(text)
    assert said in message
    assert at == line


@pytest.mark.parametrize(
    "text", ["a:\n  value: @step.field\n", "a: {value: {{input.n}}}\n", "- @step\n", "a: [{{x}}]"]
)
def test_a_reference_without_its_quotes_is_told_to_need_them(text: str) -> None:
    problems = Problems()
    assert read(text, problems) is None
    assert "needs quotes" in problems.found[0].hint


def test_other_slips_are_told_nothing_of_references() -> None:
    problems = Problems()
    assert read("a: [1\nb: 2", problems) is None
    assert problems.found[0].hint == ""


def test_a_tab_is_called_so() -> None:
    for text in ("name: x\nnodes:\n\t- {id: a}\n", "nodes:\n  - id: a\n\ttype: shell\n"):
        problems = Problems()
        assert read(text, problems) is None
        assert "indented with a tab" in problems.found[0].hint


def test_a_long_key_over_a_long_list_is_not_repeated_for_each_of_its_values() -> None:
    text = "? " + "k" * 20_000 + "\n:\n" + " - 1\n" * 20_000
    problems = Problems()
    tracemalloc.start()
    try:
        found = read(text, problems)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert found.data == {"k" * 20_000: [1] * 20_000}
    assert found.lines == {"": 1}
    assert peak < 20_000_000


def test_what_aliases_repeat_counts_as_text() -> None:
    problems = Problems()
    text = "a: &a " + "x" * 10_000 + "\nb:\n" + " - *a\n" * 1000
    assert read(text, problems) is None
    assert "with all that is repeated" in problems.found[0].message

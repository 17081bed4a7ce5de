"""Conditions: CEL and comparisons, what they yield, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.errors import ConditionFailed, MissingPath
from stepwell.graph.conditions import evaluate, holds, looks_at_item, read_condition, steps_of
from stepwell.graph.problems import Problems
from stepwell.graph.refs import Names
from stepwell.graph.scope import Scope, StepView

NAMES = Names({"user", "my-step", "gone", "partly"}, {"item", "index"}, {"inner"})


def scope() -> Scope:
    found = Scope(
        {"input": {"n": 3, "s": "text", "big": list(range(5000))}, "trigger": {}, "run": {},
         "item": {"q": 1}, "index": 0}
    )  # fmt: skip
    found.steps["user"] = StepView("completed", {"n": 2, "ok": True, "none": None, "f": 1.5})
    found.steps["my-step"] = StepView("completed", [1, 2])
    found.steps["gone"] = StepView("skipped")
    found.steps["partly"] = StepView("completed", [1, None], {"items": [{"index": 1}]})
    return found


def ask(condition: Any) -> bool:
    problems = Problems()
    found = read_condition(condition, NAMES, "when", problems)
    assert problems.found == []
    assert found is not None
    return holds(found, scope())


def code_of(condition: Any) -> str:
    problems = Problems()
    assert read_condition(condition, NAMES, "when", problems) is None
    return problems.found[0].code


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("steps.user.output.n > 1", True),
        ("steps.user.output.n == input.n - 1", True),
        ("steps.user.output.f > 1", True),
        ('steps["my-step"].output.size() == 2', True),
        ("steps['my-step'].output[0] == 2", False),
        ("steps.user.status == 'completed'", True),
        ("steps.gone.status == 'skipped'", True),
        ("steps.gone.output.a.b == null", True),
        ("steps.gone.output == null", True),
        ("steps.gone.output != null && steps.gone.output.n > 3", False),
        ("steps.gone.output.a != null && steps.gone.output.a.b > 3", False),
        ("has(steps.gone.output.n) && steps.gone.output.n > 3", False),
        ("steps.gone.output.list[index + 1].x == null", True),
        ("steps.gone.output['odd ] key'] == null", True),
        ("steps.gone.output.s == 'steps.gone.output.s'", False),
        ("steps.user.error.message == null", True),
        ("steps.partly.error.items[0].index == 1", True),
        ("has(steps.user.output.nope)", False),
        ("item.q == 1 && index == 0", True),
        ("input.s == 'steps.nobody.output'", False),
        ({"ref": "@user.ok"}, True),
        ({"ref": "user.ok"}, True),
        ({"ref": "@user.none"}, False),
        ({"ref": "@gone.anything"}, False),
        ({"ref": "@user.n", "eq": 2}, True),
        ({"ref": "@user.n", "eq": 2.0}, True),
        ({"ref": "@user.n", "eq": "2"}, False),
        ({"ref": "@user.ok", "eq": 1}, False),
        ({"ref": "@user.none", "eq": None}, True),
        ({"ref": "@user.n", "neq": 3}, True),
        ({"ref": "@user.n", "gt": 1}, True),
        ({"ref": "@user.f", "lt": 1.5}, False),
        ({"ref": "@gone.n", "gt": 0}, False),
    ],
)
def test_a_condition_holds_or_does_not(condition: Any, expected: bool) -> None:
    assert ask(condition) is expected


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("steps.user.output.nope == 1", ConditionFailed),
        ("input.n", ConditionFailed),
        ("steps.gone.output.n > 3", ConditionFailed),
        ("steps.user.output.none.below == null", ConditionFailed),
        ("input.s > 1", ConditionFailed),
        ("input.big.all(x, input.big.all(y, x + y >= 0))", ConditionFailed),
        ({"ref": "@user.nope"}, MissingPath),
        ({"ref": "@input.s", "gt": 1}, ConditionFailed),
    ],
)
def test_a_condition_that_cannot_be_answered_is_an_error(condition: Any, error: Any) -> None:
    with pytest.raises(error):
        ask(condition)


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("", "bad_condition"),
        ("1 +", "bad_condition"),
        ("nobody.x == 1", "bad_condition"),
        ("previous == 1", "bad_condition"),
        ("1 + 1", "condition_not_boolean"),
        ("steps.usr.output.x", "unknown_step"),
        ("steps.inner.output.x", "step_out_of_sight"),
        ("steps[input.s].output.x", "bad_condition"),
        ("size(steps) > 0", "bad_condition"),
        ("true " * 2000, "bad_condition"),
        ("(" * 200 + "true" + ")" * 200, "bad_condition"),
        (True, "bad_condition"),
        ([], "bad_condition"),
        ({"eq": 1}, "bad_condition"),
        ({"ref": "@user.n", "gt": 1, "lt": 3}, "bad_condition"),
        ({"ref": "@user.n", "gte": 1}, "bad_condition"),
        ({"ref": "@user.n", "gt": "1"}, "bad_condition"),
        ({"ref": "@usr.n"}, "unknown_reference"),
        ({"ref": "two words"}, "bad_reference"),
        ({"ref": 3}, "bad_reference"),
    ],
)
def test_what_is_no_condition_is_refused(condition: Any, code: str) -> None:
    assert code_of(condition) == code


@pytest.mark.parametrize(
    ("condition", "steps", "item"),
    [
        ("steps.user.output.n == 1 || steps['my-step'].output == item", {"user", "my-step"}, True),
        ("steps['my-step'].output[steps.user.output.n] == 1", {"user", "my-step"}, False),
        ("input.s == 'steps.gone item'", set(), False),
        ({"ref": "@user.n"}, {"user"}, False),
        ({"ref": "@item.q"}, set(), True),
    ],
)
def test_it_is_known_what_a_condition_looks_at(condition: Any, steps: set[str], item: bool) -> None:
    found = read_condition(condition, NAMES, "when", Problems())
    assert found is not None
    assert set(steps_of(found)) == steps
    assert looks_at_item(found) is item


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("input.n = 3", "compared with =="),
        ("{{input.n}} > 3", "without braces"),
        ("input.n > 3 and input.n < 5", "'and' is written &&"),
        ("not input.ok", "'not' is written !"),
        ("step.user.output == 1", "Did you mean 'steps'?"),
        ("user.output == 1", "steps.user.output"),
        ("@user.n == 1", "no @"),
        ("steps.my-step.output.n == 1", 'steps["my-step"]'),
        ("nobody.x == 'a = b and {{c}}'", "Known are"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(condition: str, hint: str) -> None:
    problems = Problems()
    assert read_condition(condition, NAMES, "when", problems) is None
    assert hint in problems.found[0].hint


def test_what_no_step_has_is_warned_of() -> None:
    problems = Problems()
    assert read_condition("steps.user.n == 1", NAMES, "when", problems) is not None
    assert [each.severity for each in problems.found] == ["warning"]
    assert problems.found[0].hint == "Write steps.user.output.n."
    assert ask("steps.user.size() > 0")


@pytest.mark.parametrize(
    ("text", "input", "said"),
    [
        ("input.x == 1", None, "input is null, so it has no 'x'. If it may be: input != null && …"),
        ("input.x.y == 1", {"x": None}, "input.x is null, so it has no 'y'."),
        ("input.x.y == 1", {"x": 3}, "input.x is a number, so it has no 'y'."),
        ("input.x == 1", {}, "input has no 'x': it is empty. If it may be missing: has(input.x)"),
        ("input.x == 1", {"y": 1, "z": 2}, "input has no 'x', only y, z."),
        ("has(input.b) || input.a.b == 1", {"a": {"c": 1}}, "input.a has no 'b', only c."),
        ("input['a b'] == 1", {}, "If it may be missing: 'a b' in input && …"),
        ("input.l[3] == 1", {"l": [1, 2]}, "the list has 2 items, and none at [3]."),
        ("input.l.exists(i, i.z > 3)", {"l": [{}]}, "there is no 'z'."),
        ("input.x > 3", {"x": "5"}, "input.x is text. Text that is a number is read with int(…)"),
        ("input.x > 3", {"x": None}, "> does not take null and a number. input.x is null."),
        ("input.x.contains('a')", {"x": None}, "contains does not take null and text. input.x is"),
        ("!input.x", {"x": None}, "input.x is null."),
    ],
)
def test_a_condition_that_fails_says_what_is_null_missing_or_of_another_kind(
    text: str, input: Any, said: str
) -> None:
    with pytest.raises(ConditionFailed) as caught:
        evaluate(text, ("input",), {"input": input})
    assert said in caught.value.message

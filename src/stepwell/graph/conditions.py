"""Conditions: CEL text, or a reference with at most one comparison; both yield a boolean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel

from stepwell.errors import ConditionFailed
from stepwell.graph.complaints import STRING, complaint, said
from stepwell.graph.problems import Problems
from stepwell.graph.refs import ITEM_ROOTS, STEP_PARTS, Names, Ref, look_up, read_ref
from stepwell.graph.scope import Scope, StepView

# What expressions see everywhere; inside iterations also what `Names.items` adds.
VARIABLES = ("input", "trigger", "steps", "run")
OPERATORS = ("eq", "neq", "gt", "lt")
MAX_LENGTH = 4000

_FIELD = r"\s*\.\s*[A-Za-z_]\w*+(?!\s*\()"
_STEPS = re.compile(
    rf"(?P<string>{STRING})"
    rf"|(?<![\w.])steps\s*(?:\.\s*(?P<name>[A-Za-z_]\w*)|\[\s*(?P<quoted>{STRING})\s*\])?"
    rf"(?P<part>{_FIELD})?"
    rf"(?P<below>(?:{_FIELD}|\s*\[(?:{STRING}|(?!\bsteps\b)[^\[\]\"'])*\])*)"
)
# A null that CEL takes for anything, so that what is guarded may compare it with a number.
_NULL = "dyn(null)"
_HAS_NULL = re.compile(r"(?<![\w.])has\s*\(\s*dyn\(null\)\s*\)")
_WORD = re.compile(rf"{STRING}|(?<![\w.])([A-Za-z_]\w*)")
# Slips of those who know other languages.
_ASSIGNED = re.compile(r"(?<![=!<>])=(?!=)")
_CEL_WORDS = {"and": "&&", "or": "||", "not": "!"}
_OTHER_WORDS = re.compile(r"(?<![\w.])(?:and|or|not)(?!\w)", re.IGNORECASE)
_DASHED = re.compile(r"(?<![\w.])(?:steps\s*\.\s*)?([A-Za-z_]\w*(?:-\w+)+)")


class Expression(msgspec.Struct, frozen=True):
    """CEL text, and what it looks at."""

    text: str
    variables: tuple[str, ...]
    steps: tuple[str, ...]


class Comparison(msgspec.Struct, frozen=True):
    """A reference, and what it has to be; with no operator, anything but nothing."""

    ref: Ref
    operator: str | None
    value: Any = None


Condition = Expression | Comparison


def read_condition(value: Any, names: Names, path: str, problems: Problems) -> Condition | None:
    """Read a condition of a document; None, and a problem, if that is not possible."""
    if isinstance(value, str):
        return _read_expression(value, names, path, problems)
    if isinstance(value, dict):
        return _read_comparison(value, names, path, problems)
    problems.error(
        path, "bad_condition", f"A condition cannot be {value!r}.",
        'Write CEL text, or {ref: "@step.field", eq: …}.',
    )  # fmt: skip
    return None


def steps_of(condition: Condition) -> Iterable[str]:
    """The steps that a condition looks at."""
    if isinstance(condition, Expression):
        return condition.steps
    return () if condition.ref.step is None else (condition.ref.step,)


def looks_at_item(condition: Condition) -> bool:
    """Whether it has to be asked for each item, not once."""
    if isinstance(condition, Expression):
        return any(
            word and word not in VARIABLES and word in condition.variables
            for word in _WORD.findall(condition.text)
        )
    return condition.ref.root not in (*VARIABLES, "secrets")


def holds(condition: Condition, scope: Scope) -> bool:
    """Whether a condition holds; raises ConditionFailed or MissingPath if nobody can tell."""
    if isinstance(condition, Comparison):
        return _compare(condition, look_up(condition.ref, scope))
    data: dict[str, Any] = {
        name: scope.value(name) for name in condition.variables if scope.has(name)
    }
    steps = {step_id: scope.step(step_id) or StepView("skipped") for step_id in condition.steps}
    data["steps"] = {
        step_id: {"status": step.status, "output": step.output, "error": step.error}
        for step_id, step in steps.items()
    }
    text = _without_nothing(condition.text, steps)
    return evaluate(text, condition.variables, data, condition.text)


def is_true(value: Any) -> bool:
    """What counts as something: not null, false, zero or empty text; lists and objects do."""
    return value is not None and value is not False and value != "" and value != 0


# -- comparisons -------------------------------------------------------------------------


def _read_comparison(
    value: dict[str, Any], names: Names, path: str, problems: Problems
) -> Comparison | None:
    unknown = sorted(map(str, set(value) - {"ref", *OPERATORS}))
    for key in unknown:
        problems.error(
            path, "bad_condition", f"A condition has no {key!r}.",
            problems.did_you_mean(key, OPERATORS) or "It has a ref, and one of eq, neq, gt, lt.",
        )  # fmt: skip
    operators = [key for key in OPERATORS if key in value]
    if len(operators) > 1:
        problems.error(
            path, "bad_condition", f"A condition compares once, not with {' and '.join(operators)}."
        )
    if "ref" not in value:
        problems.error(path, "bad_condition", "A condition needs a ref.", 'Like "@step.field".')
        return None
    ref = read_ref(value["ref"], names, f"{path}.ref", problems)
    if ref is None or unknown or len(operators) > 1:
        return None
    if not operators:
        return Comparison(ref, None)
    wanted = value[operators[0]]
    if operators[0] in ("gt", "lt") and not _is_number(wanted):
        problems.error(
            f"{path}.{operators[0]}", "bad_condition",
            f"{operators[0]} compares with a number, not with {wanted!r}.",
        )  # fmt: skip
        return None
    return Comparison(ref, operators[0], wanted)


def _compare(condition: Comparison, found: Any) -> bool:
    if condition.operator is None:
        return is_true(found)
    if condition.operator == "eq":
        return same(found, condition.value)
    if condition.operator == "neq":
        return not same(found, condition.value)
    if found is None:
        return False  # nothing is neither more nor less
    if not _is_number(found):
        raise ConditionFailed(
            f"{condition.ref.text} is {found!r}; {condition.operator} compares numbers."
        )
    return bool(found > condition.value if condition.operator == "gt" else found < condition.value)


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: true is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- CEL ---------------------------------------------------------------------------------


def check_expression(
    text: str, variables: tuple[str, ...], path: str, problems: Problems, names: Names
) -> bool:
    """Whether CEL text over these variables yields true or false; if not, a problem."""
    if not text.strip() or len(text) > MAX_LENGTH:
        problems.error(
            path, "bad_condition",
            "A condition is empty." if not text.strip()
            else f"A condition has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed.",
        )  # fmt: skip
        return False
    try:
        expression = _compiled(text, variables)
    except RuntimeError as error:
        hint = _hint(text, variables, names, error, problems)
        problems.error(path, "bad_condition", said(error), hint)
        return False
    if expression.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
        problems.error(
            path, "condition_not_boolean",
            f"{text!r} yields {expression.return_type().name().lower()}, not true or false.",
            "Compare it with something.",
        )  # fmt: skip
        return False
    return True


def evaluate(
    text: str, variables: tuple[str, ...], data: Mapping[str, Any], written: str = ""
) -> bool:
    """Whether CEL text holds, which was written so; ConditionFailed if nobody can tell."""
    shown = written or text
    try:
        result = _compiled(text, variables).eval(data=data)
    except RuntimeError as error:  # more iterations than are allowed, say
        raise ConditionFailed(f"{shown!r} failed: {said(error)}") from None
    if result.type() == cel.Type.ERROR:
        raise ConditionFailed(f"{shown!r} failed: {complaint(shown, data, result.value())}")
    if result.type() != cel.Type.BOOL:
        raise ConditionFailed(
            f"{shown!r} yields {result.value()!r}, which is neither true nor false."
        )
    return bool(result.value())


def _read_expression(text: str, names: Names, path: str, problems: Problems) -> Expression | None:
    variables = tuple(sorted({*VARIABLES, *names.items}))
    if not check_expression(text, variables, path, problems, names):
        return None
    steps = _steps_in(text, names, path, problems)
    return None if steps is None else Expression(text, variables, steps)


def _steps_in(text: str, names: Names, path: str, problems: Problems) -> tuple[str, ...] | None:
    found: dict[str, None] = {}
    ok = True
    for match in _STEPS.finditer(text):
        if match["string"] is not None:
            continue
        step, part = _looked_at(match)
        if not step:
            ok = False
            problems.error(
                path, "bad_condition", "A condition must name the steps that it looks at.",
                'Write steps.<id>.output, or steps["<id>"].output.',
            )  # fmt: skip
        elif step not in names.steps:
            ok = False
            problems.error(
                path, "step_out_of_sight" if step in names.hidden else "unknown_step",
                f"{text!r} looks at step {step!r}, which "
                + ("cannot be seen from here." if step in names.hidden else "does not exist."),
                problems.did_you_mean(step, names.steps),
            )  # fmt: skip
        else:
            found[step] = None
            if part and part not in STEP_PARTS:
                problems.warning(
                    path, "bad_condition",
                    f"{text!r}: a step has an output, an error and a status, but no {part!r}.",
                    f"Write steps.{step}.output.{part}.",
                )  # fmt: skip
    return tuple(found) if ok else None


def _looked_at(match: re.Match[str]) -> tuple[str, str]:
    """A step that CEL text looks at, and which part of it."""
    step = match["name"] or (match["quoted"] or "")[1:-1]
    return step, (match["part"] or "").strip(" \t\r\n.")


def _without_nothing(text: str, steps: Mapping[str, StepView]) -> str:
    """The text with null for all that is asked for below what a step left empty.

    Below the output of a skipped step, that is, and below the error of one that has none; to CEL,
    a field of null is an error.
    """

    def known(match: re.Match[str]) -> str:
        step, part = _looked_at(match)
        if not match["below"] or part not in ("output", "error"):
            return match[0]
        empty = steps[step].is_null if part == "output" else steps[step].error is None
        return _NULL if empty else match[0]

    if ".error" not in text and not any(step.is_null for step in steps.values()):
        return text
    return _HAS_NULL.sub("false", _STEPS.sub(known, text))


@lru_cache(maxsize=64)
def _environment(variables: tuple[str, ...]) -> Any:
    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN))


@lru_cache(maxsize=4096)
def _compiled(text: str, variables: tuple[str, ...]) -> Any:
    return _environment(variables).compile(text)


def _hint(
    text: str, variables: tuple[str, ...], names: Names, error: object, problems: Problems
) -> str:
    """What was probably meant."""
    code = re.sub(STRING, "''", text)
    if "{{" in code:
        return "A condition is no template: write input.n > 3, without braces."
    if "@" in code:
        return "A condition has no @: write steps.<id>.output.<field>, or input.<field>."
    if _ASSIGNED.search(code):
        return "Things are compared with ==."
    if (word := _OTHER_WORDS.search(code)) is not None:
        return f"{word[0]!r} is written {_CEL_WORDS[word[0].lower()]}."
    for step in _DASHED.findall(code):
        if step in names.steps:
            return f'An id with a dash is written in brackets: steps["{step}"].'
    unknown = re.search(r"undeclared reference to '([^'.]+)", str(error))
    if unknown is None:
        return ""
    if unknown[1] in ITEM_ROOTS or unknown[1] == "previous":
        return f"{unknown[1]!r} exists only inside an iteration."
    if unknown[1] in names.steps:
        return f"What a step gave is found below steps: steps.{unknown[1]}.output."
    return problems.did_you_mean(unknown[1], variables) or f"Known are {', '.join(variables)}."

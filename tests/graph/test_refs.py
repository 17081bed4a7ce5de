"""References: how they are read, what they yield, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import MissingPath, TextTooLong
from stepwell.graph.problems import Problems
from stepwell.graph.refs import Names, Ref, Template, read_template, refs_in, resolve
from stepwell.graph.scope import Scope, StepView

NAMES = Names({"user", "my-step", "gone", "broken"}, {"item", "index"}, {"inner"})
USER = {"name": "Ann", "id": 7, "tags": ["a", {"odd key": True}], "nothing": None}
INPUT = {"suite": "all", "n": 0, "deep": {"list": [1, 2]}}


def scope(**options: Any) -> Scope:
    values = {"input": INPUT, "trigger": {"type": "manual"}, "run": {"id": "r1"}}
    found = Scope(values | {"item": {"id": 1}, "index": 3}, **options)
    found.steps["user"] = StepView("completed", USER)
    found.steps["my-step"] = StepView("completed", [1, 2])
    found.steps["gone"] = StepView("skipped")
    found.steps["broken"] = StepView("failed", None, {"type": "ValueError", "message": "no"})
    return found


def read(value: Any, names: Names = NAMES) -> Template:
    problems = Problems()
    template = read_template(value, names, "x", problems)
    assert problems.found == []
    return template


def problem(value: Any, names: Names = NAMES) -> tuple[str, str, str]:
    problems = Problems()
    read_template(value, names, "x", problems)
    (found,) = problems.found
    assert found.path == "x"
    return found.code, found.severity, found.hint


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("@user", USER),
        ("@user.id", 7),
        ("@user.tags.0", "a"),
        ("@user.tags[0]", "a"),
        ('@user.tags[1]["odd key"]', True),
        ("@user.nothing", None),
        ("{{ user.id }}", 7),
        ("{{user.id}}", 7),
        ("{{step.user.output.id}}", 7),
        ("{{ steps.user.output.id }}", 7),
        ("@step.my-step.output.1", 2),
        ("@my-step[0]", 1),
        ("{{ step.user.status }}", "completed"),
        ("@step.broken.status", "failed"),
        ("@step.broken.error.message", "no"),
        ("@step.user.error", None),
        ("@input.n", 0),
        ("{{suite}}", "all"),
        ("{{deep.list.1}}", 2),
        ("@item.id", 1),
        ("@index", 3),
        ("@run.id", "r1"),
        ("@trigger.type", "manual"),
        ("{{ nope ? 5 }}", 5),
        ('{{ user.nope.deeper ? {"a": null} }}', {"a": None}),
        ("{{ user.nothing ? 5 }}", None),
        ({"a": ["@user.id", {"b": "@index"}]}, {"a": [7, {"b": 3}]}),
    ],
)
def test_a_whole_value_keeps_its_type(written: Any, value: Any) -> None:
    assert resolve(read(written), scope()) == value


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("Hello @user.name!", "Hello Ann!"),
        ("Hello @user.name.", "Hello Ann."),
        ("(@user.id)", "(7)"),
        ("{{user.name}}{{user.id}}", "Ann7"),
        ("@user.id-@user.id", "7-7"),
        ("tags: @user.tags", 'tags: ["a",{"odd key":true}]'),
        ("nothing: <{{user.nothing}}>", "nothing: <>"),
        ("skipped: <@gone.a.b>", "skipped: <>"),
        ("ann@user.name", "ann@user.name"),
        ("@@user.name", "@user.name"),
        ("mail to @@ or @nobody-here-at-all", "mail to @ or @nobody-here-at-all"),
        ("docker ps --format '{{{{.Names}}'", "docker ps --format '{{.Names}}'"),
        ("no references: }} { @ }", "no references: }} { @ }"),
    ],
)
def test_inside_text_values_become_text(written: str, text: str) -> None:
    assert resolve(read(written), scope()) == text


def test_control_characters_do_not_get_into_text() -> None:
    found = scope()
    found.steps["user"] = StepView("completed", "a\x00\x1b[31mb\r\nc\td\x7f\x85")
    assert resolve(read("<@user>"), found) == "<a[31mb\nc\td>"
    assert resolve(read("@user"), found) == "a\x00\x1b[31mb\r\nc\td\x7f\x85", (
        "a value is left alone"
    )


def test_text_does_not_grow_without_end() -> None:
    found = scope()
    found.steps["user"] = StepView("completed", "x" * 600_000)
    with pytest.raises(TextTooLong):
        resolve(read("@user @user"), found)


@pytest.mark.parametrize("path", ["gone", "gone.a.b[3]", "broken", "broken.x"])
def test_everything_below_a_step_that_ended_null_is_null(path: str) -> None:
    assert resolve(read(f"@{path}"), scope()) is None


@pytest.mark.parametrize(
    "path",
    ["user.nope", "user.name.first", "user.tags.2", "user.tags.x", "user.nothing.x", "input.nope"],
)
def test_a_missing_path_is_an_error_that_names_it(path: str) -> None:
    with pytest.raises(MissingPath) as caught:
        resolve(read(f"@{path}"), scope())
    assert f"@{path}" in str(caught.value)
    assert resolve(read(f"@{path}"), scope(lenient=True)) is None


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("@usr.name", "unknown_reference"),
        ("@previous", "unknown_reference"),
        ("{{ step.usr.output }}", "unknown_step"),
        ("text {{ step.inner.output }}", "step_out_of_sight"),
        ("@step.user", "bad_reference"),
        ("@step.user.result", "bad_reference"),
        ("{{ a b }}", "bad_reference"),
        ("{{ }}", "bad_reference"),
        ("{{ user.id | upper }}", "bad_reference"),
        ("{{ user.id ? none }}", "bad_default"),
        ("{{ user.id", "bad_reference"),
    ],
)
def test_what_cannot_be_meant_is_refused(written: str, code: str) -> None:
    assert problem(written)[:2] == (code, "error")


def test_a_hint_says_what_may_have_been_meant() -> None:
    assert "'user'" in problem("@usr.name")[2]
    assert problem("to @usr")[:2] == ("doubtful_reference", "warning")
    assert "'user'" in problem("to @usr")[2]


@pytest.mark.parametrize("written", ["@user.größe", "@user.ключ"])
def test_a_path_with_letters_of_other_languages_is_no_reference_without_brackets(
    written: str,
) -> None:
    code, severity, hint = problem(written)
    assert (code, severity) == ("doubtful_reference", "warning")
    assert '["odd key"]' in hint
    assert '["odd key"]' in problem("{{" + written[1:] + "}}")[2]


def test_secrets_are_for_nodes_that_act_and_have_a_name() -> None:
    acting = Names(NAMES.steps, secrets=True)
    assert read("Bearer {{secrets.token}}", acting) is not None
    assert problem("@secrets", acting)[0] == "bad_reference"
    assert problem("@secrets.token", Names(NAMES.steps, secrets=False))[0] == "secret_not_allowed"


@pytest.mark.parametrize(
    "path",
    ["user.__class__", "user.name.__len__", "input.__init__.__globals__", "item.id.real"],
)
def test_attributes_cannot_be_reached(path: str) -> None:
    with pytest.raises(MissingPath):
        resolve(read("{{ " + path + " }}"), scope())


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    problems = Problems()
    template = read_template(text, NAMES, "x", problems)
    if problems.ok:
        assert all(isinstance(ref, Ref) for ref in refs_in(template))


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(alphabet="ab {}"), st.lists)
)
def test_what_refers_to_nothing_stays_as_it_is(value: Any) -> None:
    problems = Problems()
    template = read_template(value, NAMES, "x", problems)
    if "{{" not in repr(value):
        assert resolve(template, scope()) == value

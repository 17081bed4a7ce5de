"""Text that references put into commands arrives as data."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import ConfigInvalid
from stepwell.node import Inserted
from stepwell.nodes.quoting import with_variables

HOSTILE = "a'b\"c`id`$(id);id #$HOME\\ *\n&&|<>{x,y}"
BASE = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def in_bash(*parts: str) -> str:
    """What bash makes of a command with inserted text."""
    command, variables = with_variables(parts)
    done = subprocess.run(
        ["bash", "-c", command], env=BASE | variables, capture_output=True, timeout=20
    )
    assert done.stderr == b"", (command, done.stderr)
    return done.stdout.decode()


def insert(text: str) -> Inserted:
    return Inserted(text)


# What stands before and after a text that is to arrive whole.
CONTEXTS = {
    "double quotes": ('printf %s "', '"'),
    "single quotes": ("printf %s '", "'"),
    "ANSI-C quotes": ("printf %s $'", "'"),
    "translated quotes": ('printf %s $"', '"'),
    "an assignment": ("x=", '; printf %s "$x"'),
    "a here-string": ("x=$(cat <<<", '); printf %s "$x"'),
    "a substitution in quotes": ('printf %s "$(printf %s "', '")"'),
    "single quotes in a substitution": ("printf %s \"$(printf %s '", "')\""),
    "a subshell": ('(printf %s "', '")'),
    "after a comment with a quote": ("# it's\nprintf %s \"", '"'),
    "after a # in a word": ("printf %s a#\"'\" >/dev/null; printf %s '", "'"),
    "after quotes of the other kind": ("printf %s \"it's\" >/dev/null; printf %s '", "'"),
    "after an escaped quote": ("printf %s \\' >/dev/null; printf %s '", "'"),
    "after an escaped quote in quotes": ('printf %s "\\"" >/dev/null; printf %s \'', "'"),
    "after an escaped quote in ANSI-C quotes": ("printf %s $'\\'' >/dev/null; printf %s '", "'"),
    "after a case": ('case a in a) printf %s "', '";; esac'),
    "after arithmetic": ("x=$(( (1+2) * 3 )); printf %s '", "'"),
    "after a parameter": ("x=${y:-'z}'}; printf %s '", "'"),
    "after a here-document": ("cat >/dev/null <<E\nit's\nE\nprintf %s '", "'"),
    "after a quoted here-document": ("cat >/dev/null <<'E'\n\"\nE\nprintf %s '", "'"),
    "after an indented here-document": ("cat >/dev/null <<-E\n\tit's\n\tE\nprintf %s '", "'"),
    "after backquotes": ("x=`echo \"'\"`; printf %s '", "'"),
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_hostile_text_arrives_whole_in(context: tuple[str, str]) -> None:
    before, after = context
    assert in_bash(before, insert(HOSTILE), after) == HOSTILE


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
shellish = st.text(st.sampled_from("'\"`$(){}[]<>;&|\\#!*?~= \n\tab1"), max_size=12)
# Closed pieces of commands that print nothing; any sequence of them may come first.
pieces = st.sampled_from([
    ": 'a\"b'; ", ': "a\'b"; ', ": \\' \\\" \\\\; ", ": $'\\''; ", ": $(: ')' \"(\"); ",
    "# don't\n", ": a#b; ", ": ${HOME#'}'}; ", ": $((1 << 2)); ", ": <<E\n'\n\"\nE\n",
    ": <<'E'\n$(\nE\n", ": <<<\"'\"; ", "( : '(' ); ", ": `: \"'\"`; ",
])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(pieces, max_size=4), st.sampled_from(list(CONTEXTS.values())), texts | shellish,
)  # fmt: skip
def test_any_text_arrives_after_any_command(
    before: list[str], context: tuple[str, str], text: str
) -> None:
    opening, closing = context
    # Substitutions lose newlines at the end; that is not what is tested.
    text = text.rstrip("\n")
    assert in_bash("".join(before) + opening, insert(text), closing) == text


@settings(max_examples=60, deadline=None)
@given(st.lists(shellish | shellish.map(Inserted), max_size=5), shellish)
def test_whatever_a_command_looks_like_the_text_is_not_in_it(parts: list[str], text: str) -> None:
    secret = f"zz{text}zz"
    try:
        command, variables = with_variables([*parts, insert(secret)])
    except ConfigInvalid:
        return
    assert "zz" not in command
    assert secret in variables.values()


def test_without_quotes_text_is_split_into_words_and_nothing_more() -> None:
    assert in_bash("printf '<%s>' ", insert("a  b;id $(id)")) == "<a><b;id><$(id)>"


def test_text_in_a_here_document_arrives() -> None:
    assert in_bash("cat <<E\nit's ", insert(HOSTILE), "\nE\n") == f"it's {HOSTILE}\n"


def test_text_that_looks_like_the_end_of_a_here_document_does_not_end_it() -> None:
    assert in_bash("cat <<E\n", insert("x\nE\nid\n"), "\nE\n") == "x\nE\nid\n\n"


def test_a_dollar_before_a_text_stays_one() -> None:
    assert in_bash('echo "costs $', insert("5"), '"; echo $', insert("6")) == "costs $5\n$6\n"


def test_a_dollar_in_ansi_c_quotes_stays_one() -> None:
    assert in_bash("printf %s $'costs $", insert("5"), "'") == "costs $5"


def test_a_backslash_before_a_text_does_not_escape_the_variable() -> None:
    assert in_bash('printf %s "a\\', insert("b"), '" c\\', insert("d")) == "a\\bcd"
    assert in_bash("printf %s $'a\\", insert("b"), "'") == "a\\b"


def test_several_texts_keep_their_order() -> None:
    assert in_bash("echo '", insert("1"), "' ", insert("2"), insert("3")) == "1 23\n"


def test_a_command_without_references_is_left_alone() -> None:
    command = "for i in 1 2; do echo \"$i\" 'x' $'y' `date` <<E\n'\nE\ndone # it's\\"
    assert with_variables([command]) == (command, {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("echo $((", "))"),
        ("echo $((1 + (2 * ", ")))"),
        ('echo $(("', '"))'),
        ("((x = ", "))"),
        ("echo $[", "]"),
        ("echo ${x:", "}"),
        ("eval echo ", ""),
        ("true && eval 'echo ", "'"),
        ("let x=", ""),
        ('if true; then eval "a; b ', '"; fi'),
        ("bash -c 'echo a; echo ", "'"),
        ('sh -ec "echo ', '"'),
        ("sudo /bin/sh -x -c ", ""),
        ("read ", ""),
        ("printf -v ", " x"),
        ("[ -v ", " ]"),
        ("test -v '", "'"),
        ("f() { local ", "; }"),
        ("declare -i x=", ""),
        ("x[", "]=1"),
        ('echo ok; x["', '"]=1'),
        ("[[ ", " -eq 1 ]]"),
        ("[[ a == b || 1 -lt ", " ]]"),
    ],
)
def test_where_text_would_be_read_as_code_only_numbers_are_put_in(before: str, after: str) -> None:
    with pytest.raises(ConfigInvalid, match="only numbers"):
        with_variables([before, insert("a[$(id)]"), after])
    with_variables([before, insert("-12"), after])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x=$((1+1)); echo ", ""),
        ("[[ ", " == yes ]]"),
        ("[[ 1 -eq 1 ]] && echo ", ""),
        ("[ ", " -eq 1 ]"),
        ("evaluate ", ""),
        ("echo ./deploy.sh ", " | sort"),
        ("bash script.sh ", ""),
        ("eval x; echo ", ""),
        ("f() { local x=", "; }"),
        ("declare -r x='", "'"),
        ("printf %s ", ""),
        ("export x=", ""),
    ],
)
def test_beside_such_places_any_text_is_put_in(before: str, after: str) -> None:
    with_variables([before, insert("a[$(id)]"), after])


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [("echo `echo ", "`", "backquotes"), ("cat <<'E'\n", "\nE\n", "here-document")],
)
def test_where_a_shell_does_not_look_at_variables_text_is_refused(
    before: str, after: str, hint: str
) -> None:
    with pytest.raises(ConfigInvalid, match=hint):
        with_variables([before, insert("x"), after])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if eval echo ", "; then :; fi"), ("while read -r ", "; do :; done"), ("X=1 eval ", ""),
        ("\\eval echo ", ""), ("time eval ", ""), ("coproc eval ", ""), ("if let ", "; then :; fi"),
        ("timeout 5 bash -c 'echo ", "'"), ('nohup sh -c "echo ', '"'), ("env A=1 bash -c ", ""),
        ("FOO=1 bash -Cc ", ""), ("xargs -I{} sh -c ", ""), ("su root -c ", ""),
        ("bash <<EOF\necho ", "\nEOF"), ('bash <<< "', '"'), ('echo "', '" | bash'),
        ('echo "', '" | sudo sh -s'), ("source <(echo ", ")"), ("declare -i n; n=", ""),
    ],
)  # fmt: skip
def test_no_wrapper_makes_a_shell_read_text_as_code(before: str, after: str) -> None:
    with pytest.raises(ConfigInvalid):
        with_variables([before, insert("; id"), after])

"""References: `{{ step.user.output.name }}` and `@user.name`, read once and answered often.

A value that is exactly one reference keeps its type; inside text it becomes text. What a
reference may begin with depends on where it stands (`Names`); what it yields depends on how far
the run has come (`Scope`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from stepwell.errors import TextTooLong
from stepwell.graph.problems import Problems, below
from stepwell.graph.scope import Scope

# What a reference may always begin with, beside the ids of steps and the names of items.
ROOTS = ("input", "trigger", "step", "steps", "run", "secrets")
# What it may begin with inside an iteration.
ITEM_ROOTS = frozenset({"item", "index"})
# The parts of a step that can be referred to.
STEP_PARTS = ("output", "error", "status")
# How long a text may become by what is put into it.
MAX_TEXT = 1024 * 1024

_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?"
_BRACKET = r"\[(?:\d+|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')\]"
_PATH = re.compile(rf"{_NAME}(?:\.{_NAME}|{_BRACKET})*")
_SEGMENT = re.compile(rf"\.?({_NAME})|({_BRACKET})")
_BRACES = re.compile(r"\{\{\{\{|\{\{(.*?)\}\}", re.DOTALL)
_PLAIN_BRACES = re.compile(r"\{\{\{\{")
_AT = re.compile(rf"@@|(?<![\w@])@({_PATH.pattern})")
# A path that goes on with letters of other languages.
_OTHER_PATH = re.compile(r"@[\w.-]*\w")
_ODD_KEYS = 'Names of other letters than a to z stand in brackets: ["odd key"].'
# Everything a terminal or a protocol could take for a command; line breaks and tabs stay.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Key = str | int


class Ref(msgspec.Struct, frozen=True):
    """One reference: where to begin, and which way to go from there."""

    root: str
    path: tuple[Key, ...]
    # As it was written, for messages.
    text: str
    # JSON text of what to take where the path is missing; None where there is no such thing.
    default: str | None = None

    @property
    def step(self) -> str | None:
        """The step it looks at, if it does."""
        return str(self.path[0]) if self.root == "steps" else None


class Inserted(str):
    """Text that a reference has put into another: data, whatever it looks like."""


class Text(msgspec.Struct, frozen=True):
    """Text with references in it."""

    parts: tuple[str | Ref, ...]


class Composed(msgspec.Struct, frozen=True):
    """An object or a list in which something refers to something."""

    value: dict[str, Any] | list[Any]


class Constant(msgspec.Struct, frozen=True):
    """A value that refers to nothing."""

    value: Any


Template = Ref | Text | Composed | Constant


class Names(msgspec.Struct, frozen=True):
    """What references may begin with at some place of a definition."""

    # Steps whose results can be seen from here.
    steps: Collection[str]
    # Names that iterations around this place give to their items, and `item`, `index`, `previous`.
    items: Collection[str] = frozenset()
    # Steps that exist, but in a body that cannot be looked into from here.
    hidden: Collection[str] = frozenset()
    secrets: bool = True

    def know(self, name: object) -> bool:
        return name in ROOTS or name in self.items or name in self.steps or name in self.hidden

    def all(self) -> list[str]:
        return [*ROOTS, *self.items, *self.steps]


def read_template(value: Any, names: Names, path: str, problems: Problems) -> Template:
    """Read the references in a value of a document; what cannot be read is a problem."""
    if isinstance(value, str):
        return _read_text(value, names, path, problems)
    if isinstance(value, dict):
        inner: Any = {
            key: read_template(each, names, below(path, key), problems)
            for key, each in value.items()
        }
        constant = all(isinstance(each, Constant) for each in inner.values())
    elif isinstance(value, list):
        inner = [
            read_template(each, names, below(path, index), problems)
            for index, each in enumerate(value)
        ]
        constant = all(isinstance(each, Constant) for each in inner)
    else:
        return Constant(value)
    return Constant(value) if constant else Composed(inner)


def read_ref(value: Any, names: Names, path: str, problems: Problems) -> Ref | None:
    """Read what has to be exactly one reference; None, and a problem, if it is not."""
    if not isinstance(value, str):
        problems.error(path, "bad_reference", f"This must be a reference, not {value!r}.")
        return None
    before = len(problems.found)
    bare = _PATH.fullmatch(value)
    template = _read_text(f"@{value}" if bare else value, names, path, problems)
    if isinstance(template, Ref):
        return template
    if len(problems.found) == before:
        problems.error(
            path, "bad_reference", f"{value!r} is not a reference.", 'Write it like "@step.field".'
        )
    return None


def may_refer(value: Any) -> bool:
    """Whether a value, as it was written, looks as if there were references in it."""
    if isinstance(value, str):
        return "{{" in value or _AT.search(value) is not None
    if isinstance(value, dict):
        return any(map(may_refer, value.values()))
    return isinstance(value, list) and any(map(may_refer, value))


def refs_in(template: Template) -> Iterator[Ref]:
    """All references of a template."""
    if isinstance(template, Ref):
        yield template
    elif isinstance(template, Text):
        yield from (part for part in template.parts if isinstance(part, Ref))
    elif isinstance(template, Composed):
        value = template.value
        for each in value.values() if isinstance(value, dict) else value:
            yield from refs_in(each)


def resolve(template: Template, scope: Scope) -> Any:
    """The value of a template; raises MissingPath where it refers to what is not there."""
    if isinstance(template, Composed):
        value = template.value
        if isinstance(value, dict):
            return {key: resolve(each, scope) for key, each in value.items()}
        return [resolve(each, scope) for each in value]
    if isinstance(template, Constant):
        return template.value
    return look_up(template, scope) if isinstance(template, Ref) else _join(template, scope)


def look_up(ref: Ref, scope: Scope) -> Any:
    """What a reference refers to."""
    default = None if ref.default is None else msgspec.Raw(ref.default.encode())
    return scope.look_up(ref.root, ref.path, ref.text, default)


def as_text(value: Any) -> str:
    """A value inside text: objects as JSON, null as nothing, no control characters."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


def _join(text: Text, scope: Scope) -> str:
    joined = "".join(
        part if isinstance(part, str) else as_text(look_up(part, scope)) for part in text.parts
    )
    if len(joined) > MAX_TEXT:
        raise TextTooLong(
            f"A text has {len(joined):,} characters once its references are filled in; at most "
            f"{MAX_TEXT:,} are allowed."
        )
    return joined


# -- reading -----------------------------------------------------------------------------


def _read_text(text: str, names: Names, path: str, problems: Problems) -> Template:
    if "{{" not in text and "@" not in text:
        return Constant(text)
    parts: list[str | Ref] = []
    end = 0
    unclosed = False
    for match in _braces(text):
        unclosed = unclosed or "{{" in text[end : match.start()]
        _read_ats(text[end : match.start()], names, path, problems, parts, text)
        end = match.end()
        if match[0] == "{{{{":
            parts.append("{{")
        else:
            ref = _read_braces(match[1], names, path, problems)
            parts.append(match[0] if ref is None else ref)
    _read_ats(text[end:], names, path, problems, parts, text)
    if unclosed or "{{" in text[end:]:
        problems.error(
            path, "bad_reference", "A '{{' is not closed by '}}'.",
            "Write '{{{{' for two braces that mean nothing.",
        )  # fmt: skip
    kept = [part for part in parts if part != ""]
    if len(kept) == 1 and isinstance(kept[0], Ref):
        return kept[0]
    if any(isinstance(part, Ref) for part in kept):
        return Text(tuple(kept))
    return Constant("".join(str(part) for part in kept))


def _braces(text: str) -> Iterator[re.Match[str]]:
    """All braces; behind the last that close, only those are looked for that mean nothing.

    Looked for everywhere, each that opens would be followed to the end of the text.
    """
    closed = text.rfind("}}") + 2 if "}}" in text else 0
    end = 0
    for match in _BRACES.finditer(text, 0, closed):
        end = match.end()
        yield match
    yield from _PLAIN_BRACES.finditer(text, end)


def _read_ats(
    text: str, names: Names, path: str, problems: Problems, parts: list[str | Ref], whole: str
) -> None:
    end = 0
    for match in _AT.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match[1] is None:
            parts.append("@")
        elif len(match[0]) == len(whole):
            ref = _read_path(match[1], match[0], None, names, path, problems)
            parts.append(match[0] if ref is None else ref)
        else:
            parts.append(_read_in_text(match, whole, names, path, problems))
    parts.append(text[end:])


def _read_in_text(
    match: re.Match[str], whole: str, names: Names, path: str, problems: Problems
) -> str | Ref:
    """`@word` inside text means a reference only if the word is known."""
    first = _segments(match[1])[0]
    if names.know(first):
        if _OTHER_PATH.fullmatch(whole):
            problems.warning(
                path, "doubtful_reference",
                f"{whole!r} is taken for {match[0]!r} with text behind it.", _ODD_KEYS,
            )  # fmt: skip
        return _read_path(match[1], match[0], None, names, path, problems) or match[0]
    if hint := problems.did_you_mean(str(first), names.all()):
        problems.warning(
            path, "doubtful_reference", f"{match[0]!r} is taken as text.",
            f"{hint} Write '@@' for an @ that means nothing.",
        )  # fmt: skip
    return match[0]


def _read_braces(inside: str, names: Names, path: str, problems: Problems) -> Ref | None:
    written = "{{" + inside + "}}"
    stripped = inside.strip()
    match = _PATH.match(stripped)
    rest = stripped[match.end() :].strip() if match else stripped
    default = None
    if match and rest.startswith("?"):
        default = rest[1:].strip()
        try:
            msgspec.json.decode(default)
            rest = ""
        except msgspec.DecodeError:
            problems.error(
                path, "bad_default", f"The default in {written!r} is not JSON.",
                'Write text in double quotes: {{ path ? "text" }}.',
            )  # fmt: skip
            return None
    if not match or rest:
        problems.error(
            path, "bad_reference", f"{written!r} is not a reference.",
            _ODD_KEYS
            if _OTHER_PATH.fullmatch(f"@{stripped}")
            else "Write {{ step.<id>.output.<field> }}, and '{{{{' for two braces that mean "
            "nothing.",
        )  # fmt: skip
        return None
    return _read_path(match[0], written, default, names, path, problems, braces=True)


def _read_path(
    dotted: str, written: str, default: str | None, names: Names, path: str, problems: Problems,
    *, braces: bool = False,
) -> Ref | None:  # fmt: skip
    first, *rest = _segments(dotted)
    root = str(first)
    if root in names.items:
        return Ref(root, tuple(rest), written, default)
    if root in ("step", "steps"):
        return _read_step(rest, written, default, names, path, problems)
    if root == "secrets" and (not names.secrets or not rest):
        problems.error(
            path, "secret_not_allowed" if rest else "bad_reference",
            f"{written!r}: secrets can only be used by name, and only in the config of nodes "
            "that act (shell, http …), so that they are written down nowhere.",
        )  # fmt: skip
        return None
    if root in ROOTS:
        return Ref(root, tuple(rest), written, default)
    if root in names.steps or root in names.hidden:
        known = ["output", *rest]
        return _read_step([root, *known], written, default, names, path, problems)
    if braces and root not in ITEM_ROOTS and root != "previous":
        return Ref("input", (root, *rest), written, default)
    if root in ITEM_ROOTS or root == "previous":
        where = "a loop" if root == "previous" else "for_each or a loop"
        hint = f"{root!r} exists only inside {where}."
    else:
        hint = problems.did_you_mean(root, names.all()) or "Write '@@' for an @ that means nothing."
    problems.error(path, "unknown_reference", f"{written!r} refers to nothing that is known.", hint)
    return None


def _read_step(
    rest: list[Key], written: str, default: str | None, names: Names, path: str,
    problems: Problems,
) -> Ref | None:  # fmt: skip
    step = str(rest[0]) if rest else ""
    if step in names.hidden:
        problems.error(
            path, "step_out_of_sight",
            f"{written!r} refers to step {step!r}, which is inside a body that cannot be looked "
            "into from here.",
            "Refer to the step that has the body.",
        )  # fmt: skip
        return None
    if step not in names.steps:
        problems.error(
            path, "unknown_step", f"{written!r} refers to step {step!r}, which does not exist.",
            problems.did_you_mean(step, names.steps),
        )  # fmt: skip
        return None
    part = rest[1] if len(rest) > 1 else None
    if part not in STEP_PARTS:
        problems.error(
            path, "bad_reference",
            f"{written!r}: a step has an output, an error and a status"
            + ("." if part is None else f", but no {part!r}."),
            f"What went wrong with items is in step.{step}.error.items."
            if part == "errors"
            else f"Write step.{step}.output" + ("." if part is None else f".{part}."),
        )  # fmt: skip
        return None
    return Ref("steps", tuple(rest), written, default)


def _segments(dotted: str) -> list[Key]:
    found: list[Key] = []
    for name, bracket in _SEGMENT.findall(dotted):
        if name:
            found.append(name)
        elif bracket[1:-1].isdigit():
            found.append(int(bracket[1:-1]))
        else:
            found.append(re.sub(r"\\(.)", r"\1", bracket[2:-2]))
    return found

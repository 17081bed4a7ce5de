"""Putting text into a shell command as data: in variables, wherever in the command it stands.

The text itself never becomes part of the command, only `${STEPWELL_ARG_1}` does. So whatever
the scanner below may misread, nothing that was put in is read as syntax; following the quotes
only makes the right text arrive. What is refused are places where a shell would read a variable's
text as code after all (arithmetic, `eval`), or not look at variables (a quoted here-document).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepwell.errors import ConfigInvalid
from stepwell.node import Inserted

_PREFIX = "STEPWELL_ARG_"

# What opens which kind of text, and what ends it.
_OPENS = {
    "'": ("single", "'"),
    '"': ("double", '"'),
    "`": ("backquote", "`"),
    "$'": ("ansi", "'"),
    '$"': ("double", '"'),
    "$(": ("code", ")"),
    "$((": ("arithmetic", "))"),
    "$[": ("arithmetic", "]"),
    "${": ("parameter", "}"),
    "(": ("code", ")"),
    "((": ("arithmetic", "))"),
    "#": ("comment", "\n"),
}
_DOLLARS = ("$((", "$(", "${", "$[")
_QUOTES = ("$'", '$"', "'", '"', "`")
# What means something in each kind of text, besides its end.
_TOKENS = {
    "code": (*_DOLLARS, *_QUOTES, "((", "(", "#", "<<", "\n"),
    "arithmetic": (*_DOLLARS, *_QUOTES, "("),
    "parameter": (*_DOLLARS, *_QUOTES),
    "double": (*_DOLLARS, "`"),
    "heredoc": (*_DOLLARS, "`", "\n"),
    "verbatim": ("\n",),
    "single": (),
    "ansi": (),
    "backquote": (),
    "comment": (),
}
_UNESCAPED = ("single", "comment", "verbatim")
_QUOTED = ("single", "double", "ansi")
_DELIMITER = re.compile(r"<<(-?)[ \t]*((?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|<>()'\"\\])+)")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
# Commands that read their arguments as code. Names of variables are code too: bash executes what
# stands in the subscript of `a[$(id)]`.
_EVALUATES = re.compile(
    r"""(?:^|[\s;&|({!\\])
    (?:(?:eval|let|trap|unset|read|mapfile|readarray|getopts)\s[^;&|\n]*
    |(?:declare|typeset|local)\s(?:[^;&|\n]*\s)?(?:[^\s=;&|]*|-[a-zA-Z]*[in]\S*\s[^;&|\n]*)
    |(?:printf|test|\[)\s(?:[^;&|\n]*\s)?-[vR]\s+\S*
    |(?:\S*/)?(?:(?:ba|da|a|k|mk|z)?sh|su)\s(?:[^;&|\n]*\s)?-[a-zA-Z]*c\s[^;&|\n]*)\Z""",
    re.VERBOSE,
)
# A shell that reads its code from what comes in, and an integer by declaration: both may stand far
# from the reference, before or after it.
_READS_CODE = re.compile(
    r"""(?:\||<\()\s*(?:\w+\s+)*(?:\S*/)?(?:ba|da|a|k|mk|z)?sh(?![\w./-])
    |(?<![\w./-])(?:ba|da|a|k|mk|z)?sh(?![\w./-])[^;&|\n]*<<
    |(?:^|[\s;&|({])(?:source|\.)\s+(?:<\(|/dev/stdin)
    |(?:^|[\s;&|({])(?:declare|typeset|local)\s+-[a-zA-Z]*i""",
    re.VERBOSE,
)
_SUBSCRIPT = re.compile(r"\b[A-Za-z_]\w*\[[^\]\s]*\Z")
# Tests that read their operands as arithmetic.
_TEST = re.compile(r"\[\[\s(?:(?!\]\]).)*\Z", re.DOTALL)
_COMPARES = re.compile(r"\s-(?:eq|ne|lt|le|gt|ge|v)\s")


@dataclass
class _Frame:
    """A stretch of a command in which characters have one meaning."""

    kind: str
    end: str
    start: int
    tabs: bool = False  # whether a here-document's end may be indented


def with_variables(parts: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The command, and the variables that hold what references have put into it."""
    joined = _joined(parts)
    _check_whole(joined)
    scanner = _Scanner(joined)
    return scanner.text, scanner.variables


def _check_whole(parts: Sequence[str]) -> None:
    """Refuse a command that reads code from where references could put it."""
    inserted = [part for part in parts if isinstance(part, Inserted)]
    found = _READS_CODE.search("".join("0" if isinstance(p, Inserted) else p for p in parts))
    if found and not all(map(_NUMBER.fullmatch, inserted)):
        raise ConfigInvalid(
            f"The command has a shell that reads code ({found[0].strip()!r}), so only numbers can "
            "be put into it. Hand other text over by `env` or `stdin`."
        )


def _joined(parts: Iterable[str]) -> list[str]:
    """The same parts, with literal ones that follow each other as one."""
    found: list[str] = []
    for part in parts:
        if found and not isinstance(part, Inserted) and not isinstance(found[-1], Inserted):
            found[-1] += part
        else:
            found.append(part)
    return found


class _Scanner:
    """Reads a command once, from its start to its end."""

    def __init__(self, parts: Sequence[str]) -> None:
        self.text = ""
        self.variables: dict[str, str] = {}
        self._frames = [_Frame("code", "", 0)]
        self._documents: list[_Frame] = []  # here-documents that begin on the next line
        self._loose = ""  # a backslash or dollar at the end of a part
        self._compares = any(_COMPARES.search(f" {part} ") for part in parts)
        for part in parts:
            if isinstance(part, Inserted):
                self._insert(part)
            else:
                self._read(part)
        self.text += self._loose

    @property
    def _top(self) -> _Frame:
        return self._frames[-1]

    def _read(self, text: str) -> None:
        position = 0
        while found := _pattern(self._top).search(text, position):
            before = text[found.start() - 1 : found.start()] if found.start() else self.text[-1:]
            self.text += text[position : found.start()]
            position = found.end()
            token = found.group()
            if position == len(text) and token in ("\\", "$"):
                self._loose = token
            elif token[0] == "\\" or (token == "#" and before.strip("\n\t ;&|(")):
                self.text += token  # an escaped character, or a # within a word
            else:
                self.text += token
                position = self._turn(token, text, position)
        self.text += text[position:]

    def _turn(self, token: str, text: str, position: int) -> int:
        """What a token changes; where to read on."""
        if token == "<<":
            return self._announce(text, position)
        if token == "\n" and self._top.kind in ("heredoc", "verbatim"):
            return self._line(text, position)
        if token == self._top.end:
            self._frames.pop()
        elif token in _OPENS:
            kind, end = _OPENS[token]
            if token == "(" and self._top.kind == "arithmetic":
                kind = "arithmetic"
            self._frames.append(_Frame(kind, end, len(self.text) - len(token)))
        if token == "\n" and self._documents:
            self._frames += reversed(self._documents)
            self._documents.clear()
            return self._line(text, position)
        return position

    def _announce(self, text: str, position: int) -> int:
        """Remember a here-document; `<<<` is none."""
        found = _DELIMITER.match(text, position - 2)
        if found is None:
            skipped = len(text[position:]) - len(text[position:].lstrip("<"))
            self.text += text[position : position + skipped]
            return position + skipped
        word = found.group(2)
        kind = "verbatim" if re.search(r"[\\'\"]", word) else "heredoc"
        end = re.sub(r"\\(.)|['\"]", r"\1", word)
        self._documents.append(_Frame(kind, end, len(self.text), tabs=bool(found.group(1))))
        self.text += text[position : found.end()]
        return found.end()

    def _line(self, text: str, position: int) -> int:
        """At the start of a line of a here-document: it may be the one that ends it."""
        while self._top.kind in ("heredoc", "verbatim"):
            tabs = r"\t*" if self._top.tabs else ""
            found = re.compile(rf"{tabs}{re.escape(self._top.end)}(\n|\Z)").match(text, position)
            if found is None:
                break
            self._frames.pop()
            self.text += found.group()
            position = found.end()
        return position

    def _insert(self, value: Inserted) -> None:
        self._refuse(value)
        name = f"{_PREFIX}{len(self.variables) + 1}"
        self.variables[name] = str(value)
        if self._loose == "$":
            self.text += "\\$"
        elif self._loose and self._top.kind != "code":
            self.text += "\\\\"
        self._loose = ""
        opened = {"single": "'", "ansi": "$'"}.get(self._top.kind)
        self.text += f"${{{name}}}" if opened is None else f'\'"${{{name}}}"{opened}'

    def _refuse(self, value: Inserted) -> None:
        """Refuse text that the shell would read as code there, or not put in."""
        around = next(frame for frame in reversed(self._frames) if frame.kind not in _QUOTED)
        if around.kind == "backquote":
            raise ConfigInvalid("Nothing can be put in between backquotes; write $( … ) instead.")
        if around.kind == "verbatim":
            raise ConfigInvalid(
                "Nothing can be put into a here-document whose end word is quoted; "
                "leave the quotes away."
            )
        if self._evaluated(around) and not _NUMBER.fullmatch(value):
            raise ConfigInvalid(
                "A reference stands where the shell would read its text as code "
                f"({self._excerpt()!r}); only numbers can be put in there. "
                "Hand other text over by `env` or `stdin`."
            )

    def _evaluated(self, around: _Frame) -> bool:
        if around.kind in ("arithmetic", "parameter"):
            return True
        quoted = self._top.kind in _QUOTED
        before = self.text[: self._top.start] if quoted else self.text
        if _EVALUATES.search(before) or _SUBSCRIPT.search(before):
            return True
        return self._compares and _TEST.search(before) is not None

    def _excerpt(self) -> str:
        return self.text[-40:]


def _pattern(frame: _Frame) -> re.Pattern[str]:
    """What to look for next."""
    tokens = list(_TOKENS[frame.kind])
    if frame.kind not in ("heredoc", "verbatim") and frame.end:
        tokens.append(frame.end)
    escapes = [r"\\[\s\S]", r"\\\Z", r"\$\Z"]
    if frame.kind in _UNESCAPED:
        escapes = []
    elif frame.kind == "ansi":
        escapes.pop()  # a dollar means nothing there
    longest_first = sorted(set(tokens), key=len, reverse=True)
    return re.compile("|".join([*escapes, *map(re.escape, longest_first)]))

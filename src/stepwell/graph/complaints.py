"""Why a condition failed, in the words of its document: CEL speaks of types of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# A text inside CEL.
STRING = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"

_PART = rf"\s*\.\s*[A-Za-z_]\w*+(?!\s*\()|\s*\[\s*(?:\d+|{STRING})\s*\]"
_PATH = re.compile(rf"{STRING}|(?<![\w.])(?P<root>[A-Za-z_]\w*+)(?!\s*\()(?P<below>(?:{_PART})*)")
_NEWLINE = re.compile(r"\s*\n[\s|]*")
_MISSING = re.compile(r'Key not found in map : "?(.*?)"?$')
# What may be missing without harm.
_HAS = re.compile(r"(?<![\w.])has\s*\([^()]*\)")
_INDEX = re.compile(r"Index error: index=(-?\d+) size=(\d+)")
_NO_OBJECT = "Applying SELECT to non-message type"
_OVERLOADS = re.compile(r"No matching overloads found : (?P<call>.+)")
_TYPES = {
    "string": "text", "int64": "a number", "uint64": "a number", "double": "a number",
    "bool": "true or false", "null_type": "null", "list": "a list", "map": "an object",
}  # fmt: skip
_KINDS: dict[type, str] = {
    str: "text", int: "a number", float: "a number", bool: "true or false", list: "a list",
    dict: "an object", type(None): "null",
}  # fmt: skip
MOST_NAMED = 10


def said(error: object) -> str:
    """What CEL says, without its codes."""
    text = _NEWLINE.sub(" ", str(error).partition("\n |")[0]).strip()
    text = re.sub(r"^[A-Z_]+: (?:ERROR: )?(?:<input>:-?\d+:-?\d+: )?", "", text)
    return re.sub(r"\s*\[[A-Z_]+\]$|\s*\(in container ''\)", "", text)


def complaint(text: str, data: Mapping[str, Any], error: object) -> str:
    """What was null, missing or of the wrong kind, and what to write instead."""
    raw = said(error)
    if missing := _MISSING.search(raw):
        return _of_missing(text, data, missing[1])
    if _NO_OBJECT in raw:
        return _of_no_object(text, data)
    if overloads := _OVERLOADS.search(raw):
        return _of_kinds(text, data, overloads["call"])
    if index := _INDEX.search(raw):
        return f"the list has {index[2]} items, and none at [{index[1]}]."
    return raw


def _of_missing(text: str, data: Mapping[str, Any], key: str) -> str:
    for _, parts in _paths(_HAS.sub("", text)):
        above, value, rest = _walked(parts, data)
        if rest and isinstance(value, dict) and str(rest[0]) == key:
            known = ", ".join(map(str, list(value)[:MOST_NAMED]))
            there = f", only {known}" if known else ": it is empty"
            asked = f"has({above}.{key})" if key.isidentifier() else f"{key!r} in {above}"
            return f"{above} has no {key!r}{there}. If it may be missing: {asked} && …"
    return f"there is no {key!r}. If it may be missing, ask with has(…) before."


def _of_no_object(text: str, data: Mapping[str, Any]) -> str:
    for _, parts in _paths(text):
        above, value, rest = _walked(parts, data)
        if rest and not isinstance(value, dict | list):
            what = _KINDS.get(type(value), "no object")
            guard = f" If it may be: {above} != null && …" if value is None else ""
            return f"{above} is {what}, so it has no {rest[0]!r}.{guard}"
    return "it asks for a field of something that is no object."


def _of_kinds(text: str, data: Mapping[str, Any], call: str) -> str:
    name, _, given = call.partition("(") if not call.startswith("(") else ("", "", call)
    kinds = [_TYPES.get(each, each) for each in re.findall(r"\w+", given) if each in _TYPES]
    operator = name.strip("_") or call.rpartition(".")[2].partition("(")[0]
    found = f"{operator} does not take {' and '.join(kinds) or 'this'}."
    named: list[str] = []
    for path, parts in _paths(text):
        _, value, rest = _walked(parts, data)
        what = _KINDS.get(type(value), "")
        if not rest and path not in data and what and (what in kinds or not kinds):
            named.append(f"{path} is {what}")
    if named:
        found += f" {', '.join(dict.fromkeys(named))}."
    if "null" in kinds:
        return f"{found} What may be null is asked for before: … != null && …"
    if "text" in kinds and "a number" in kinds:
        return f"{found} Text that is a number is read with int(…) or double(…)."
    return found


def _paths(text: str) -> Iterator[tuple[str, list[str | int]]]:
    """What CEL text looks at: `input.list[0]`, and its parts."""
    for match in _PATH.finditer(text):
        if match["root"] is None:
            continue
        parts: list[str | int] = [match["root"]]
        for part in re.findall(_PART, match["below"]):
            word = part.strip().lstrip(".[").rstrip("]").strip()
            parts.append(int(word) if word.isdigit() else word.strip("\"'"))
        yield match[0].strip(), parts


def _walked(parts: list[str | int], data: Any) -> tuple[str, Any, list[str | int]]:
    """As far as the data goes: the way there, the value, and the parts that are left."""
    way = ""
    for index, part in enumerate(parts):
        inside = (isinstance(data, Mapping) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if not inside:
            return way, data, parts[index:]
        data = data[part]
        way = f"{way}[{part}]" if isinstance(part, int) else f"{way}.{part}".lstrip(".")
    return way, data, []

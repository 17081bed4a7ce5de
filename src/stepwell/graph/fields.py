"""Fields of a document, read one by one: what has not the form that it must have is a problem."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from stepwell.errors import InvalidDuration
from stepwell.graph.definition import ID, id_of
from stepwell.graph.problems import Problems, below
from stepwell.kernel.durations import seconds


class Fields:
    """Reads fields of mappings."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def known(
        self, data: Mapping[str, Any], fields: Collection[str], path: str,
        slips: Mapping[str, str] | None = None, otherwise: str = "",
    ) -> None:  # fmt: skip
        """Every field is one of these; `slips` says what to write for words of other languages."""
        for key in data:
            if key not in fields:
                at = path or "A definition"
                hint = (slips or {}).get(key) or self._problems.did_you_mean(key, fields)
                self._problems.error(
                    below(path, key), "unknown_field", f"{at} has no field {key!r}.",
                    hint or f"{otherwise.format(key)}Known are {', '.join(fields)}.",
                )  # fmt: skip

    def id(self, data: Mapping[str, Any], path: str, seen: set[str] | None, what: str) -> str:
        found = data.get("id")
        at = below(path, "id")
        if not isinstance(found, str) or not ID.fullmatch(found):
            shown = "is missing" if found is None else f"cannot be {found!r:.100}"
            hint = id_of(found) if isinstance(found, str) else ""
            self._problems.error(
                at, "bad_id",
                f"The id of a {what} {shown}: it has letters, digits, '_' and '-', at most 100.",
                f"Write {hint!r}." if hint else "",
            )  # fmt: skip
            return ""
        if seen is not None:
            if found in seen:
                self._problems.error(at, "duplicate_id", f"There are two {what}s {found!r}.")
            seen.add(found)
        return found

    def list(self, data: Mapping[str, Any], key: str, path: str) -> list[Any]:
        found = data.get(key)
        if found is not None and not isinstance(found, list):
            what, hint = f"{found!r:.50}", ""
            if isinstance(found, dict):
                what, hint = (
                    "a mapping",
                    f"Write - before each: - {{id: {next(iter(found), '…')}}}.",
                )
            self._problems.error(
                below(path, key), "bad_field", f"{key} is a list, not {what}.", hint
            )
            return []
        return found or []

    def mapping(self, data: Mapping[str, Any], key: str, path: str) -> dict[str, Any] | None:
        found = data.get(key)
        if found is not None and not isinstance(found, dict):
            self._problems.error(below(path, key), "bad_field", f"{key} is a mapping.")
            return None
        return found

    def text(self, data: Mapping[str, Any], key: str, path: str, longest: int) -> str:
        found = data.get(key)
        if found is not None and (not isinstance(found, str) or len(found) > longest):
            self._problems.error(
                below(path, key), "bad_field", f"{key} is a text of at most {longest:,} characters."
            )
            return ""
        return found or ""

    def flag(self, data: Mapping[str, Any], key: str, path: str) -> bool:
        found = data.get(key)
        if found is not None and not isinstance(found, bool):
            self._problems.error(below(path, key), "bad_field", f"{key} is true or false.")
        return found is True

    def choice(
        self, data: Mapping[str, Any], key: str, path: str, choices: tuple[Any, ...], usual: str
    ) -> Any:
        found = data.get(key)
        if found is None:
            return usual
        if found not in choices:
            self._problems.error(
                below(path, key), "bad_field",
                f"{key} is {', '.join(choices[:-1])} or {choices[-1]}, not {found!r:.100}.",
                self._problems.did_you_mean(str(found), choices),
            )  # fmt: skip
            return usual
        return found

    def count(
        self, data: Mapping[str, Any], key: str, path: str, usual: int | None,
        most: int = 2**31 - 1, least: int = 1,
    ) -> int | None:  # fmt: skip
        found = data.get(key)
        if found is None:
            return usual
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            self._problems.error(
                below(path, key), "bad_field",
                f"{key} is a whole number from {least} to {most:,}, not {found!r:.100}.",
            )  # fmt: skip
            return usual
        return found

    def duration(self, data: Mapping[str, Any], key: str, path: str) -> Any:
        found = data.get(key)
        if found is None:
            return None
        try:
            seconds(found, key)
        except InvalidDuration as error:
            self._problems.error(below(path, key), "bad_duration", error.message)
            return None
        return found

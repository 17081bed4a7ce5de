"""What is wrong with a document: all of it at once, each with its place and a way out."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from stepwell.kernel.names import cut

Severity = Literal["error", "warning"]
# More errors, or warnings, than this are counted, not listed.
MOST_LISTED = 200
# Characters of what is said of each: documents may have names as long as themselves.
MAX_PATH = 500
MAX_SAID = 1000
# Names that are compared for hints, over the whole document.
MOST_COMPARED = 100_000


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, or doubtful."""

    # Where in the document, like `nodes[2].config.url`; empty for the whole of it.
    path: str
    code: str
    message: str
    hint: str = ""
    severity: Severity = "error"
    # The line of the text, where there is one.
    line: int | None = None


class Problems:
    """Collects problems, and where the values stand that they are about."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        # How many more there are than are listed.
        self.unlisted = 0
        self._listed: Counter[Severity] = Counter()
        self._compared = 0

    def error(
        self, path: str, code: str, message: str, hint: str = "", *, line: int | None = None
    ) -> None:
        self._add(Problem(path, code, message, hint, "error", line))

    def warning(self, path: str, code: str, message: str, hint: str = "") -> None:
        self._add(Problem(path, code, message, hint, "warning"))

    def _add(self, problem: Problem) -> None:
        if self._listed[problem.severity] < MOST_LISTED:
            self._listed[problem.severity] += 1
            self.found.append(
                msgspec.structs.replace(
                    problem,
                    path=cut(problem.path, MAX_PATH),
                    message=cut(problem.message, MAX_SAID),
                    hint=cut(problem.hint, MAX_SAID),
                )
            )
        else:
            self.unlisted += 1

    def did_you_mean(self, wanted: str, known: Iterable[str]) -> str:
        """The known name that is closest, as a hint; empty if none is close."""
        names = list(known)
        self._compared += len(names)
        if self._compared > MOST_COMPARED:  # comparing takes its time
            return ""
        closest = difflib.get_close_matches(wanted[:100], names, 1, 0.6)
        return f"Did you mean {closest[0]!r}?" if closest else ""

    @property
    def ok(self) -> bool:
        return not self._listed["error"]


def below(path: str, key: str | int) -> str:
    """The path one level down: `nodes` and 2 is `nodes[2]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key

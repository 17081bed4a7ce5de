"""Lists of runs: what is asked of either store, and what is picked from what it gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from stepwell.kernel.matching import contains, looked_up
from stepwell.kernel.run import Run
from stepwell.kernel.views import RUN_COLUMNS
from stepwell.store import Found, RunFilter

# How many inputs are looked at for one page. A list of which few runs fit is not waited for while
# all others are read.
MAX_EXAMINED = 2_000

_BODIES = """(SELECT body FROM payloads WHERE run_id = r.id AND kind = 'input'),
             (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'output'),
             (SELECT body FROM payloads WHERE run_id = r.id AND kind = 'error')"""
# What `run_from_row` takes, of `r`.
RUN = f"SELECT {', '.join('r.' + column for column in RUN_COLUMNS)}, {_BODIES}"

# All runs that have ended well are in no index by status: there would be little else in it.
_UNINDEXED = "completed"


class Lane(NamedTuple):
    """A query with `$1`, `$2` … for some of the runs, those with the highest ids first."""

    sql: str
    values: list[Any]


def lanes(where: RunFilter, aside: str = "") -> list[Lane]:
    """Queries that give all runs of a list between them, each by one walk through an index.

    No index has several statuses, or several terms, in the order of ids: these are apart. `aside`
    before a column says that the index is not to be chosen for it.
    """
    own = ("r.workspace_id = {}", where.workspace_id)
    of = ("r.definition = {}", where.definition)
    fits = ("r.status IN ({})", where.status)
    if where.input is not None and (terms := looked_up(where.input)):
        filed = ("t.workspace_id = {} AND r.id = t.run_id", where.workspace_id)
        source = "terms t CROSS JOIN runs r"
        return [
            _lane(where, source, "t.run_id", filed, ("t.term = {}", term), of, fits)
            for term in terms
        ]
    if where.status is not None and _UNINDEXED not in where.status:
        of = (f"{aside}r.definition = {{}}", where.definition)
        only = f"r.status <> '{_UNINDEXED}' AND r.status = {{}}"
        return [_lane(where, "runs r", "r.id", own, (only, each), of) for each in where.status]
    if where.definition is None:
        own = (f"{aside}r.workspace_id = {{}}", where.workspace_id)
    return [_lane(where, "runs r", "r.id", own, of, fits)]


def _lane(where: RunFilter, source: str, id_: str, *first: tuple[str, Any]) -> Lane:
    conditions: list[str] = []
    values: list[Any] = []
    for condition, value in (
        *first,
        ("r.created_at >= {}", where.since),
        (id_ + " >= {}", where.since_id),
        ("r.created_at < {}", where.until),
        (id_ + " < {}", where.until_id),
        (id_ + " < {}", where.before_id),
    ):
        if value is not None:
            given = value if isinstance(value, list) else [value]
            numbers = [f"${len(values) + number}" for number, _ in enumerate(given, 1)]
            values += given
            conditions.append(condition.format(", ".join(numbers)))
    sql = f"{RUN} FROM {source} WHERE {' AND '.join(conditions)} ORDER BY {id_} DESC"
    return Lane(sql, values)


class Finding:
    """Picks the runs of a list out of those that come, until there are enough."""

    def __init__(self, where: RunFilter) -> None:
        self._where = where
        self._examined = 0
        self._runs: list[Run] = []
        self._last: str | None = None
        self._after: str | None = None

    def take(self, run: Run) -> bool:
        """Look at the next one; whether another is wanted."""
        if run.id == self._last:
            return True  # it is in two lanes
        fits = self._where.input is None or contains(run.input, self._where.input)
        full = len(self._runs) == self._where.limit
        if self._examined == MAX_EXAMINED or (full and fits):
            self._after = self._last
            return False
        if fits:
            self._runs.append(run)
        self._examined += 1
        self._last = run.id
        return True

    @property
    def found(self) -> Found:
        return Found(self._runs, self._after)


def counted(rows: Iterable[Sequence[Any]]) -> dict[str, dict[str, int]]:
    """Runs by definition and status, of what `COUNTS` gives."""
    counts: dict[str, dict[str, int]] = {}
    for definition, status, number in rows:
        of_it = counts.setdefault(definition, {_UNINDEXED: 0})
        if status is None:
            of_it[_UNINDEXED] += number
        else:
            of_it[status] = number
            of_it[_UNINDEXED] -= number
    return {
        definition: {status: number for status, number in of_it.items() if number}
        for definition, of_it in counts.items()
    }


# All runs of a definition, and those by status that have not ended well: both from indexes alone.
COUNTS = f"""SELECT definition, NULL, count(*) FROM runs WHERE workspace_id = $1
             GROUP BY definition
             UNION ALL
             SELECT definition, status, count(*) FROM runs
             WHERE workspace_id = $1 AND status <> '{_UNINDEXED}' GROUP BY definition, status"""

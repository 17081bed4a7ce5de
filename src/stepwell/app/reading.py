"""Looking at runs: none of this changes anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from stepwell.engine.ending import Endings
from stepwell.engine.feed import Feed
from stepwell.engine.writer import Writer
from stepwell.errors import InvalidInput
from stepwell.kernel.clock import to_micros
from stepwell.kernel.cursors import digest_of, read_cursor, write_cursor
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.explaining import explain
from stepwell.kernel.feed import RunEvent
from stepwell.kernel.matching import check_match
from stepwell.kernel.names import check_count, check_run_id, check_text, check_time, no_such_run
from stepwell.kernel.run import Explanation, Page, Run, Step, WorkerInfo
from stepwell.kernel.states import TRANSITIONS
from stepwell.store import RunFilter, Store

MAX_PAGE = 1000


class Reading:
    """The runs of a workspace, as they are once everything of this process's own is written."""

    store: Store
    _writer: Writer
    _endings: Endings
    _feed: Feed
    _workspace: str

    async def get_run(self, run_id: str) -> Run:
        """The run as it is now; raises RunNotFound."""
        check_run_id(run_id)
        await self._writer.drained()
        run = await self.store.get_run(self._workspace, run_id)
        if run is None:
            raise no_such_run(run_id)
        return run

    async def list_runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        definition: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        input: Mapping[str, Any] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Runs, newest first: `items` and a `next_cursor`, to be passed as `cursor` for the next.

        At most 1000 come at a time, whatever the `limit`. `input` is a superset test on inputs;
        where many have to be looked at for that, a page has fewer runs, or none, and a cursor.
        A cursor belongs to its list: `status`, `definition` and `input` stay the same.
        """
        if not isinstance(status, str | list | tuple | set | frozenset | None):
            raise InvalidInput(f"status takes a status or a list of them, not {status!r}.")
        statuses = [status] if isinstance(status, str) else status
        for name in statuses or ():
            if name not in TRANSITIONS:
                raise InvalidInput(f"{name!r} is no status; there are {', '.join(TRANSITIONS)}.")
        where = RunFilter(
            self._workspace,
            status=None if statuses is None else sorted(set(statuses)),
            definition=None if definition is None else check_text(definition, "definition"),
            since=None if since is None else to_micros(check_time(since, "since")),
            until=None if until is None else to_micros(check_time(until, "until")),
            input=None if input is None else check_match(input, "input"),
            limit=min(check_count(limit, "limit"), MAX_PAGE),
        )
        # Not of `since` and `until`: "the last hour" is another time on every page.
        digest = digest_of([self._workspace, where.status, where.definition, where.input])
        if cursor is not None:
            where.before_id = read_cursor(cursor, digest)
        await self._writer.drained()
        found, after = await self.store.list_runs(where)
        return Page(found, None if after is None else write_cursor(after, digest))

    async def count_runs(self) -> dict[str, dict[str, int]]:
        """How many runs of each definition are in each status."""
        await self._writer.drained()
        return await self.store.count_runs(self._workspace)

    async def steps(self, run_id: str) -> list[Step]:
        """The journal of a run, in order of call."""
        await self.get_run(run_id)
        return await self.store.steps(run_id)

    def watch(self, run_id: str, after: str | None = None) -> AsyncGenerator[RunEvent, None]:
        """What happens to a run, as it happens: from its start, until it has ended.

        With `after`, the id of an event, it goes on behind that one, here or in another process.
        Close it if you leave before the end (`contextlib.aclosing`).
        """
        self._writer.check_open()
        return self._feed.watch(check_run_id(run_id), after)

    async def explain(self, run_id: str) -> Explanation:
        """Why the run is where it is."""
        check_run_id(run_id)
        await self._writer.drained()
        facts = await self.store.facts(self._workspace, run_id)
        if facts is None:
            raise no_such_run(run_id)
        return explain(facts)

    async def workers(self) -> list[WorkerInfo]:
        """The workers that have a lease, or runs left from one."""
        await self._writer.drained()
        return await self.store.workers(self._workspace)

    async def result(self, run_id: str, timeout: Duration | None = None) -> Any:
        """The output of a run, once it has ended."""
        return await self._result(run_id, timeout, new=False)

    async def _result(self, run_id: str, timeout: Duration | None, *, new: bool) -> Any:
        self._writer.check_open()
        check_run_id(run_id)
        limit = None if timeout is None else seconds(timeout, "timeout")
        return await self._endings.result(run_id, limit, lambda: self.get_run(run_id), new=new)

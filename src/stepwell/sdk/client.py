"""A client of a Stepwell server, for programs that execute nothing themselves.

    async with Client("https://stepwell.example", token) as client:
        run = await client.start("onboard-user", {"email": "a@b.c"})
        print(await run.result(timeout="1m"))

Programs that are not async take `Client.blocking(…)`, which has the same names. Results are the
records of `stepwell`, errors its errors. What has been sent is sent again where that is safe, so a
start is never applied twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import msgspec

from stepwell.errors import InvalidInput, StepwellError
from stepwell.kernel.clock import SECOND, SystemClock, to_micros
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.feed import RunEvent
from stepwell.kernel.outcomes import run_failure
from stepwell.kernel.presenting import restore
from stepwell.kernel.run import ErrorInfo, Explanation, Page, Run, Step, WorkerInfo
from stepwell.kernel.states import ENDED
from stepwell.kernel.told import read_id
from stepwell.sdk.blocking import Blocking, Bridge, Waits
from stepwell.sdk.calling import Calling
from stepwell.sdk.connection import Connection
from stepwell.sdk.remote_nouns import Definitions, Gates
from stepwell.settings import Settings

# A run that has not ended is looked at less and less often.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.02, 1.0, 1.5
# Looking at many takes long, so it is done less often.
PAUSE_PER_RUN = 0.01
# From then on its live events are listened to, by so many at a time: each holds a connection. Those
# that broke off are asked for again after as long.
LIVE_PAUSE, MOST_LISTENING = 0.15, 50


class RunOptions(TypedDict, total=False):
    """What whoever starts a run may say besides definition and input."""

    # Of the definition; the highest unless said.
    version: int | None
    # How long to wait before it may begin.
    delay: Duration | None
    # When it ends as timed_out at the latest: so long after its start, or a time.
    deadline: Duration | datetime | None
    # Higher first.
    priority: int
    # At most `concurrency_limit` runs with this key are active at once.
    concurrency_key: str | None
    concurrency_limit: int | None
    # Refused if no slot is free and so many are queued already.
    max_queued_runs: int | None
    # How long it is kept after its end.
    retention: Duration | None
    # How long it may stay pending once it may begin.
    ttl: Duration | None


class RunHandle(Waits):
    """A run that was started."""

    def __init__(self, client: Client, said: Mapping[str, Any]) -> None:
        self._client = client
        self.id: str = said["id"]
        # False when an earlier start with the same idempotency key made the run.
        self.created: bool = said["created"]
        # How it was when the server answered: with `wait`, it may have ended by then.
        self.status: str = said.get("status", "pending")
        self._output = said.get("output")
        self._error = restore(said.get("error"), ErrorInfo | None)

    async def result(self, timeout: Duration | None = None) -> Any:
        """The run's output; raises RunFailed, RunCancelled or RunTimedOut, or TimeoutError."""
        if self.status in ENDED:
            return _outcome(self.status, self.id, self._output, self._error)
        return await self._client.result(self.id, timeout)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


class Client(Calling):
    """One server, as the holder of one token sees it."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: Duration = "30s",
        patience: Duration = "30s",
    ) -> None:  # fmt: skip
        """To be closed in the end, which `async with` does.

        `url` and `token` are STEPWELL_URL and STEPWELL_TOKEN unless given. An attempt may take
        `timeout`; one that fails is repeated, where that is safe, until `patience` has passed.
        """
        settings = Settings.read()
        named = settings.url if url is None else url
        if named is None:
            raise InvalidInput("Which server? Name one: Client(url), or STEPWELL_URL.")
        who = settings.token if token is None else token
        super().__init__(Connection(named, who, timeout=timeout, patience=patience))
        self._waiting = self._listening = 0
        self.gates = Gates(self.connection)
        self.definitions = Definitions(self.connection)

    @classmethod
    def blocking(
        cls, url: str | None = None, token: str | None = None, *, timeout: Duration = "30s",
        patience: Duration = "30s",
    ) -> Any:  # fmt: skip
        """The same for programs that are not async: `with Client.blocking() as client`."""
        return Blocking(cls(url, token, timeout=timeout, patience=patience), Bridge())

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await self.close()

    async def close(self) -> None:
        """Give the connections back."""
        await self.connection.close()

    def __repr__(self) -> str:
        return f"<client of {self.connection.url}>"

    # -- starting ------------------------------------------------------------------------

    async def start(
        self, definition: str, input: Any = None, *, idempotency_key: str | None = None,
        wait: Duration | None = None, **options: Unpack[RunOptions],
    ) -> RunHandle:  # fmt: skip
        """Start a run of a definition; with `wait`, return when it has ended or that has passed.

        A second start with the same `idempotency_key` gives back the run of the first; without
        one, this start has a key of its own, so that it can be repeated safely.
        """
        if isinstance(deadline := options.get("deadline"), datetime):
            left = to_micros(deadline) - SystemClock().now()
            options["deadline"] = max(0.0, left / SECOND)
        said = await self._call(
            "POST /definitions/{ref}/runs", ref=definition, input=input, wait=wait,
            idempotency_key=idempotency_key or self.connection.new_key(), **options,
        )  # fmt: skip
        return RunHandle(self, said)

    async def start_document(
        self, document: Mapping[str, Any], input: Any = None, *,
        idempotency_key: str | None = None, wait: Duration | None = None,
    ) -> RunHandle:  # fmt: skip
        """Start a run of a document that need not be published."""
        said = await self._call(
            "POST /runs", document=document, input=input, wait=wait,
            idempotency_key=idempotency_key or self.connection.new_key(),
        )  # fmt: skip
        return RunHandle(self, said)

    async def retry(self, run_id: str, *, idempotency_key: str | None = None) -> RunHandle:
        """A new run that goes on where a failed, cancelled or timed out one stopped."""
        said = await self._call(
            "POST /runs/{run_id}/retry", run_id=run_id,
            idempotency_key=idempotency_key or self.connection.new_key(),
        )  # fmt: skip
        return RunHandle(self, said)

    async def fork(
        self, run_id: str, from_step: str, *, input: Any = ..., version: int | None = None,
        idempotency_key: str | None = None,
    ) -> RunHandle:  # fmt: skip
        """A new run that has the journal of another up to a step, and executes that one anew."""
        said = await self._call(
            "POST /runs/{run_id}/fork", run_id=run_id, from_step=from_step, input=input,
            version=version, idempotency_key=idempotency_key or self.connection.new_key(),
        )  # fmt: skip
        return RunHandle(self, said)

    # -- looking -------------------------------------------------------------------------

    async def get_run(self, run_id: str) -> Run:
        """The run as it is now; raises RunNotFound."""
        return await self._record(Run, "GET /runs/{run_id}", run_id=run_id)

    async def list_runs(
        self, *, status: str | Sequence[str] | None = None, definition: str | None = None,
        since: datetime | None = None, until: datetime | None = None,
        input: Mapping[str, Any] | None = None, limit: int = 50, cursor: str | None = None,
    ) -> Page:  # fmt: skip
        """Some runs, newest first, and a cursor for those behind them; `all_runs` follows it."""
        return await self._record(
            Page, "GET /runs", status=status, definition=definition, since=since, until=until,
            input=input, limit=limit, cursor=cursor,
        )  # fmt: skip

    async def all_runs(self, **filters: Any) -> AsyncIterator[Run]:
        """All runs, newest first, with the filters of `list_runs`: `async for run in …`."""
        cursor: str | None = None
        while True:
            page = await self.list_runs(**filters, cursor=cursor)
            for run in page.items:
                yield run
            if (cursor := page.next_cursor) is None:
                return

    async def steps(self, run_id: str) -> list[Step]:
        """The journal of a run, in order of call."""
        return await self._records(Step, "GET /runs/{run_id}/steps", run_id=run_id)

    async def explain(self, run_id: str) -> Explanation:
        """Why the run is where it is."""
        return await self._record(Explanation, "GET /runs/{run_id}/explain", run_id=run_id)

    async def tasks(self, run_id: str) -> list[Any]:
        """What a run waits for somebody to do: title, instructions and the step's key."""
        waiting = [step for step in await self.steps(run_id) if step.status == "waiting"]
        return [step.about for step in waiting if step.kind == "task"]

    async def workers(self) -> list[WorkerInfo]:
        """The workers that have a lease, or runs left from one."""
        return await self._records(WorkerInfo, "GET /workers")

    async def watch(self, run_id: str, after: str | None = None) -> AsyncGenerator[RunEvent, None]:
        """What happens to a run, as it happens: from its start, until it has ended.

        With `after`, the id of an event, it goes on behind that one. A stream that breaks off is
        taken up again; close this if you leave before the end (`contextlib.aclosing`).
        """
        while after is None or not read_id(after, run_id).finished:
            await self.get_run(run_id)  # has patience with a server that is away
            async with aclosing(self.connection.events(_events_path(run_id), after)) as events:
                async for each in events:
                    event = msgspec.json.decode(each.data, type=RunEvent)
                    after = event.id
                    yield event
                    if event.type == "run.finished":
                        return
            await asyncio.sleep(LIVE_PAUSE)

    # -- waiting -------------------------------------------------------------------------

    async def wait(self, run_id: str, timeout: Duration | None = None) -> Run:
        """The run, once it has ended, however that was; TimeoutError if it has not by then."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        self._waiting += 1
        try:
            async with asyncio.timeout(limit) as waiting:
                return await self._ended(run_id)
        except TimeoutError:
            if not waiting.expired():
                raise
            raise TimeoutError(
                f"Run {run_id} has not ended within {limit:g} s; "
                f"`stepwell runs explain {run_id}` says why."
            ) from None
        finally:
            self._waiting -= 1

    async def _ended(self, run_id: str) -> Run:
        """The run, once it has ended: looked at for a while, then told of by its live events."""
        pause, live, after = FIRST_PAUSE, True, None
        while not (run := await self.get_run(run_id)).ended:
            if pause <= LIVE_PAUSE or not live or self._listening >= MOST_LISTENING:
                await asyncio.sleep(max(pause, self._waiting * PAUSE_PER_RUN))
                pause = min(pause * GROWTH, LONGEST_PAUSE)
                continue
            self._listening += 1
            try:
                async for event in self.connection.events(_events_path(run_id), after):
                    after = event.id
                pause = FIRST_PAUSE
            except StepwellError:  # looking is slower, and always possible
                live = False
            finally:
                self._listening -= 1
        return run

    async def result(self, run_id: str, timeout: Duration | None = None) -> Any:
        """The output of a run, once it has ended; raises how it ended if it did not complete."""
        run = await self.wait(run_id, timeout)
        return _outcome(run.status, run.id, run.output, run.error)

    # -- acting --------------------------------------------------------------------------

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run and its children; False if it had already ended."""
        found = await self._call("POST /runs/{run_id}/cancel", run_id=run_id)
        return bool(found["cancelled"])

    async def signal(
        self, run_id: str, name: str, payload: Any = None, *, idempotency_key: str | None = None
    ) -> bool:
        """Send a signal to a run: True; raises SignalNotDelivered if that has ended."""
        found = await self._call(
            "POST /runs/{run_id}/signals/{event}", run_id=run_id, event=name, payload=payload,
            idempotency_key=idempotency_key or self.connection.new_key(),
        )  # fmt: skip
        return bool(found["delivered"])

    async def advance(
        self, run_id: str, step: str, *, summary: str = "", output: Any = None,
        failed: bool = False,
    ) -> None:  # fmt: skip
        """Say that a task was done, or could not be; its run goes on."""
        await self._call(
            "POST /runs/{run_id}/steps/{step}/advance", run_id=run_id, step=step,
            summary=summary, output=output, failed=failed,
        )  # fmt: skip

    async def emit(
        self, type: str, payload: Any = None, *, key: str | None = None, once: bool = False,
        idempotency_key: str | None = None,
    ) -> bool:  # fmt: skip
        """Emit an event of the workspace; False if an earlier `once` of that type and key won.

        False also if one of that type has had the same `idempotency_key`.
        """
        found = await self._call(
            "POST /events", type=type, payload=payload, key=key, once=once,
            idempotency_key=idempotency_key or self.connection.new_key(),
        )  # fmt: skip
        # With a key that only this call has, the earlier one was an attempt of its own.
        return bool(found["emitted"]) or not (once or idempotency_key)


def _events_path(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}/events"


def _outcome(status: str, run_id: str, output: Any, error: ErrorInfo | None) -> Any:
    if status == "completed":
        return output
    raise run_failure(status, run_id, error)

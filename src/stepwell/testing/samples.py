"""Sample changes, and short ways to send them: what store tests are written with."""

from __future__ import annotations

from typing import Any

from stepwell.kernel.changes import (
    Change,
    Claimed,
    ClaimedRun,
    ClaimRuns,
    Held,
    OpenWait,
    RecordStep,
    SendSignal,
    StartRun,
)
from stepwell.store import Store, WorkerRow

WORKSPACE, PROGRAM = "default", "code:work@1"


def start(store: Store, run_id: str, **options: Any) -> StartRun:
    now = store.clock.now()
    fields: dict[str, Any] = {
        "id": run_id, "workspace_id": WORKSPACE, "definition": "work", "version": 1,
        "program": PROGRAM, "input": '{"n": 1}', "created_at": now, "due_at": now,
        "retention_seconds": 60,
    }  # fmt: skip
    return StartRun(**{**fields, **options})


async def commit(store: Store, *changes: Change) -> list[Any]:
    return (await store.commit(changes)).outcomes


async def enlist(store: Store, worker_id: str, lease_seconds: float = 15) -> str:
    await store.enlist(
        WorkerRow(
            worker_id, WORKSPACE, "host", 1, "", 10, [PROGRAM], store.clock.now(), lease_seconds
        )
    )
    return worker_id


async def claim(store: Store, worker_id: str, limit: int = 10, **options: Any) -> Claimed:
    programs = options.pop("programs", [PROGRAM])
    ask = ClaimRuns(WORKSPACE, worker_id, programs, limit, store.clock.now(), **options)
    claimed: Claimed = (await commit(store, ask))[0]
    return claimed


async def claim_one(store: Store, worker_id: str, **options: Any) -> tuple[ClaimedRun, Held]:
    (run,) = (await claim(store, worker_id, **options)).runs
    return run, Held(run.id, worker_id, run.fence)


def record(
    store: Store, held: Held, key: str, output: str | None = "1", **options: Any
) -> RecordStep:
    now = store.clock.now()
    fields: dict[str, Any] = {
        "held": held, "key": key, "seq": 1, "kind": "step", "status": "completed", "attempts": 1,
        "output": output, "error": None, "started_at": now, "completed_at": now, "position": 1,
    }  # fmt: skip
    return RecordStep(**{**fields, **options})


def wait(store: Store, held: Held, key: str, **options: Any) -> OpenWait:
    fields: dict[str, Any] = {"kind": "event", "event": "mail"} if "kind" not in options else {}
    fields |= {"seq": 1, "created_at": store.clock.now()}
    return OpenWait(held=held, key=key, **{**fields, **options})


def signal(
    store: Store, run_id: str, payload: str, signal_id: str = "s1", key: str | None = None
) -> SendSignal:
    return SendSignal(signal_id, WORKSPACE, run_id, "mail", payload, store.clock.now(), key)

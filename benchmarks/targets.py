"""The targets of the comparison, the rows of its table, and the words below it, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

STORES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Target:
    """`contender`'s `metric` is at least, or at most, `factor` times the other figure, if any."""

    workload: str
    label: str
    metric: str
    contender: str
    at_least: bool
    factor: float
    of_contender: str = ""
    of_metric: str = ""


def _targets() -> Iterator[Target]:
    speed = ("w1", "1,000 runs × 5 steps, steps/s", "steps_per_second")
    yield Target(*speed, "stepwell-sqlite", True, 60, "dbos-sqlite")
    yield Target(*speed, "stepwell-postgres", True, 45, "dbos-postgres")
    yield Target(*speed, "stepwell-postgres", True, 12, "absurd")
    yield Target(*speed, "stepwell-postgres", True, 8, "restate")
    for store in STORES:
        us = f"stepwell-{store}"
        for steps in (1, 10):
            idle = ("w2", f"idle p50 of {steps} step{'s'[: steps > 1]}, ms", f"p50_ms_{steps}", us)
            yield Target(*idle, False, 0.25, f"dbos-{store}")
            yield Target(*idle, False, 0.5, "restate")
        for steps in (1_000, 5_000):
            chain = ("w3", f"one run of {steps:,} steps, ms/step", f"ms_per_step_{steps}", us)
            yield Target(*chain, False, 2, f"commit-{store}", "ms_per_commit")
        yield Target(*chain, False, 1.2, us, "ms_per_step_1000")
        park = ("w4", "park 10,000 sleepers, s", "park_seconds_10000", us)
        yield Target(*park, False, 0.1, "best peer")
        yield Target("w4", "memory per sleeper, KB", "kb_per_sleeper", us, False, 3)
        yield Target("w4", "wake 1,000, lateness p99, ms", "wake_p99_ms", us, False, 200)
        signals = ("w5", "signals/s", "signals_per_second", us)
        yield Target(*signals, True, 5, "best peer")
        yield Target("w6", "500 parallel steps, s", "seconds", us, False, 0.5, "best peer")
        yield Target("w7", "steps missing after SIGKILL", "missing", us, False, 0)
        yield Target(
            "w7", "steps repeated, beside in flight", "repeated", us, False, 1, us, "in_flight"
        )
        yield Target("w7", "restart to done, s", "seconds", us, False, 3)
        yield Target("w8", "import and worker ready, s", "ready_seconds", us, False, 0.6)
        yield Target("w8", "idle, % of a core", "idle_cpu_percent", us, False, 1)
        yield Target("w8", "idle, MB", "rss_mb", us, False, 60)
        chain = ("w9", "5-node graph, many at once, ms/run", "graph_ms_per_run", us)
        yield Target(*chain, False, 1.5, us, "python_ms_per_run")
        chain = ("w9", "5-node graph, idle p50, ms", "graph_idle_ms", us)
        yield Target(*chain, False, 1.5, us, "python_idle_ms")
        yield Target("w9", "graph of 1,000 parallel nodes, s", "wide_seconds", us, False, 2)
        event = ("w10", "event to one of 100,000 waits, p99 ms", "event_p99_ms", us)
        yield Target(*event, False, 5)
        due = ("w11", "1,000 schedules at once, last start, s", "last_seconds", us)
        yield Target(*due, False, 2)
        over = "w12", "runs started over HTTP, per second", "starts_per_second", us
        yield Target(*over, True, 1_500)
        yield Target("w12", "a start over HTTP, p99 ms", "start_p99_ms", us, False, 150)
        over = "w12", "webhooks, per second", "webhooks_per_second", us
        yield Target(*over, True, 1_500)
        yield Target("w12", "a webhook, p99 ms", "webhook_p99_ms", us, False, 150)
        lists = "w13", "a list by any filter beside 1,000,000 runs, p95 ms", "list_p95_ms", us
        yield Target(*lists, False, 50)
        full = ("claim", "W1 beside finished runs, steps/s", "full_steps_per_second", us)
        yield Target(*full, True, 0.8, us, "empty_steps_per_second")
        yield Target("claim", "the plan uses the live index", "uses_live_index", us, True, 1)


TARGETS = tuple(_targets())

ROWS = (
    ("w1", "steps_per_second", "1,000 runs × 5 steps, steps/s"),
    ("w2", "p50_ms_1", "start to result, 1 step, p50 ms"),
    ("w2", "p50_ms_10", "start to result, 10 steps, p50 ms"),
    ("w3", "ms_per_step_1000", "one run of 1,000 steps, ms/step"),
    ("w3", "ms_per_step_5000", "one run of 5,000 steps, ms/step"),
    ("w4", "park_seconds_10000", "park 10,000 sleepers, s"),
    ("w4", "kb_per_sleeper", "memory per sleeper, KB"),
    ("w4", "wake_p50_ms", "wake 1,000 at once, lateness p50 ms"),
    ("w4", "wake_p99_ms", "wake 1,000 at once, lateness p99 ms"),
    ("w5", "signals_per_second", "1,000 waiting, signals/s"),
    ("w6", "seconds", "500 parallel steps of 10 ms, s"),
    ("w7", "seconds", "SIGKILL, restart to done, s"),
    ("w7", "missing", "steps missing"),
    ("w7", "repeated", "steps repeated"),
    ("w8", "ready_seconds", "import and worker ready, s"),
    ("w8", "idle_cpu_percent", "idle, % of a core"),
    ("w8", "rss_mb", "idle, MB"),
    ("w9", "python_ms_per_run", "5 steps in Python, many at once, ms/run"),
    ("w9", "graph_ms_per_run", "the same as a graph, ms/run"),
    ("w9", "python_idle_ms", "5 steps in Python, idle p50, ms"),
    ("w9", "graph_idle_ms", "the same as a graph, idle p50, ms"),
    ("w9", "wide_seconds", "a graph of 1,000 parallel nodes, s"),
    ("w10", "event_p50_ms", "an event finds one of 100,000 waits, p50 ms"),
    ("w10", "event_p99_ms", "an event finds one of 100,000 waits, p99 ms"),
    ("w11", "median_seconds", "1,000 schedules due at once, median start, s"),
    ("w11", "last_seconds", "1,000 schedules due at once, last start, s"),
    ("w12", "starts_per_second", "runs started over HTTP at 64 connections, per second"),
    ("w12", "start_p99_ms", "a start over HTTP, p99 ms"),
    ("w12", "webhooks_per_second", "webhooks at 64 connections, per second"),
    ("w12", "webhook_p99_ms", "a webhook, p99 ms"),
    ("w13", "list_p95_ms", "lists of runs beside 1,000,000, by the slowest filter, p95 ms"),
)

METHOD = """\
Everything is durable: every commit is on disk before it is answered (SQLite WAL with
`synchronous=FULL`, PostgreSQL with its defaults, Restate with its write-ahead log synced). One
worker process each. Every workload starts on an empty store with one short run to warm up.

- **DBOS** runs steps as plain functions on a pool of threads, which was its fastest way here, and
  on SQLite in WAL mode, which it does not choose itself but which makes it half as fast again.
  W7 goes through its queue, since runs it did not yet accept cannot be recovered. It holds
  sleeping and waiting runs in memory.
- **Absurd** has one thread with a connection per slot, claiming four tasks at a time, polling
  every 20 ms (0.25 s, its default, when idle in W8); results are polled for every 2 ms. Its claim
  timeout is 10 s, not 120 s, so that W7 does not wait longer. W6 uses its asynchronous client.
- **Restate** has 4 partitions instead of 24, which suits two cores, and its service on Hypercorn
  with uvloop as its documentation advises, with the client in another process. Its sleepers
  suspend at once, its waiters stay connected, whichever is faster. W7 kills the service, not the
  server, as the others lose their worker, not their database; W8 looks at the service alone.
- Concurrency is swept with 300 runs for peers. W7, W8 and the 5,000 steps of W3, which no target
  compares with, peers do once.
- What takes Stepwell a moment (W1, W2, W4, W5, W6) it does again before each of the peers, and the
  median of these counts as one repetition: a second in which the machine is slow, and there are
  many, must not be all of what is measured.

Where Stepwell's own time goes, and what keeps missed targets missed, is in
[`performance.md`](performance.md)."""

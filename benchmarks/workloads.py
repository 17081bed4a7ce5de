"""The workloads W1–W11, written once over the contract of an engine."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import process
from benchmarks.engine import Engine, Options, poll, read_trace

STEPS = 5  # of each run of W1 and W7
ROUNDS = 5  # of W9, in which what is compared takes turns
POLL_SECONDS = 0.02
LONG_SECONDS = 86_400

Figures = dict[str, Any]


async def w1(engine: Engine, options: Options) -> Figures:
    """Many short runs at once."""
    runs = options.sizes.runs
    began = time.perf_counter()
    await engine.finish(await engine.start("steps", [STEPS] * runs))
    seconds = time.perf_counter() - began
    return {"steps_per_second": runs * STEPS / seconds, "seconds": seconds}


async def w2(engine: Engine, options: Options) -> Figures:
    """From start to result while nothing else goes on."""
    figures = {}
    for steps in (1, 10):
        samples = []
        for _ in range(options.sizes.samples):
            await asyncio.sleep(POLL_SECONDS)
            began = time.perf_counter()
            await engine.finish(await engine.start("steps", [steps]))
            samples.append(time.perf_counter() - began)
        figures[f"p50_ms_{steps}"] = statistics.median(samples) * 1000
    return figures


async def w3(engine: Engine, options: Options) -> Figures:
    """One long run."""
    figures = {}
    for steps in options.sizes.chains:
        began = time.perf_counter()
        await engine.finish(await engine.start("steps", [steps]))
        figures[f"ms_per_step_{steps}"] = (time.perf_counter() - began) / steps * 1000
    return figures


async def w4(engine: Engine, options: Options) -> Figures:
    """Park many sleepers, then wake some that are due at the same moment."""
    sleepers, wakes = options.sizes.sleepers, options.sizes.wakes
    gc.collect()
    before = process.rss_bytes(engine.worker_pid)
    began = time.perf_counter()
    await engine.start("sleeper", [LONG_SECONDS] * sleepers)
    await _until_parked(engine, sleepers)
    seconds = time.perf_counter() - began
    gc.collect()
    growth = process.rss_bytes(engine.worker_pid) - before

    # Late enough that all of them are parked by then, at the pace just seen.
    due_at = time.time() + 3 + 2 * seconds * wakes / sleepers
    await engine.start("until", [due_at] * wakes)
    await _until_parked(engine, sleepers + wakes)
    parked_in_time = time.time() < due_at

    async def all_awake() -> bool:
        return len(read_trace(options.trace)) >= wakes

    await poll(all_awake, 0.1)
    lateness = sorted(float(line) for line in read_trace(options.trace))
    return {
        "sleepers": sleepers,
        "park_seconds": seconds,
        "park_seconds_10000": seconds * 10_000 / sleepers,
        "kb_per_sleeper": growth / sleepers / 1024,
        "wake_p50_ms": lateness[len(lateness) // 2] * 1000,
        "wake_p99_ms": lateness[len(lateness) * 99 // 100] * 1000,
        "parked_in_time": parked_in_time,
    }


async def w5(engine: Engine, options: Options) -> Figures:
    """A signal to each of many waiting runs."""
    waiters = options.sizes.waiters
    handles = await engine.start("waiter", list(range(waiters)))
    await _until_parked(engine, waiters)
    await asyncio.sleep(1)
    began = time.perf_counter()
    await engine.signal(handles)
    await engine.finish(handles)
    return {"signals_per_second": waiters / (time.perf_counter() - began)}


async def w6(engine: Engine, options: Options) -> Figures:
    """Parallel steps of one run."""
    began = time.perf_counter()
    await engine.finish(await engine.start("fan_out", [options.sizes.parallel]))
    return {"seconds": time.perf_counter() - began}


async def w9(engine: Engine, options: Options) -> Figures:
    """Graphs beside the same program in Python, and a graph of many parallel nodes."""
    sizes = options.sizes
    many: dict[str, list[float]] = {"steps": [], "chain": []}
    idle: dict[str, list[float]] = {"steps": [], "chain": []}
    for _ in range(ROUNDS):
        for program, samples in many.items():
            began = time.perf_counter()
            await engine.finish(await engine.start(program, [STEPS] * (sizes.runs // 2)))
            samples.append((time.perf_counter() - began) / (sizes.runs // 2))
    for _ in range(sizes.samples):
        for program, samples in idle.items():
            await asyncio.sleep(POLL_SECONDS)
            began = time.perf_counter()
            await engine.finish(await engine.start(program, [STEPS]))
            samples.append(time.perf_counter() - began)
    wide = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await engine.finish(await engine.start("wide", [0]))
        wide.append(time.perf_counter() - began)
    return {
        "python_ms_per_run": statistics.median(many["steps"]) * 1000,
        "graph_ms_per_run": statistics.median(many["chain"]) * 1000,
        "python_idle_ms": statistics.median(idle["steps"]) * 1000,
        "graph_idle_ms": statistics.median(idle["chain"]) * 1000,
        "wide_seconds": statistics.median(wide),
    }


async def crash(engine: Engine, options: Options) -> Figures:
    """The process that W7 kills: says when all runs are submitted."""
    handles = await engine.start("counted", list(range(options.sizes.runs)))
    print("submitted", flush=True)
    await engine.finish(handles)
    return {}


async def w10(engine: Engine, options: Options) -> Figures:
    """Events that find the one of very many waits that they are for.

    Nobody parks so many within seconds, so the server may first clean up after that by itself. One
    event comes after the other: the next when the run of the last one has ended.
    """
    sizes = options.sizes
    runs = []
    for first in range(0, sizes.matches, 5_000):
        numbers = list(range(first, min(first + 5_000, sizes.matches)))
        runs += await engine.start("matched", numbers)
    await _until_parked(engine, sizes.matches)
    await engine.settled()
    taken = []
    for number in range(sizes.events):
        # A prime apart, so that they are all over the place.
        which = number * 7_919 % sizes.matches
        began = time.perf_counter()
        await engine.emit(which)
        taken.append((time.perf_counter() - began) * 1000)
        await engine.finish([runs[which]])
    taken.sort()
    return {
        "event_p50_ms": taken[len(taken) // 2],
        "event_p99_ms": taken[len(taken) * 99 // 100],
    }


async def w11(engine: Engine, options: Options) -> Figures:
    """Schedules that are all due at the same moment."""
    count = options.sizes.schedules
    late = sorted(await engine.schedule(count, time.time() + 15))
    return {"last_seconds": late[-1], "median_seconds": late[count // 2]}


async def recover(engine: Engine, options: Options) -> Figures:
    """The process that W7 starts after the kill: ends when no run is open."""

    async def ended() -> bool:
        return not await engine.unfinished()

    await poll(ended, POLL_SECONDS)
    return {}


async def idle(engine: Engine, options: Options) -> Figures:
    """The process that W8 looks at."""
    print(json.dumps({"pid": engine.worker_pid}), flush=True)
    await asyncio.Event().wait()
    return {}


def w7(options: Options) -> Figures:
    """SIGKILL in the middle of W1, and start again at once."""
    runs = options.sizes.runs
    first = process.spawn(_child(options, "crash"), stdout=subprocess.PIPE)
    try:
        _read_line(first)
        while len(read_trace(options.trace)) < runs * STEPS // 2:
            time.sleep(0.005)
        assert first.poll() is None, "it finished before it could be killed"
    finally:
        process.kill(first)
    executed = len(read_trace(options.trace))
    began = time.perf_counter()
    second = process.spawn(_child(options, "recover"), stdout=subprocess.PIPE)
    try:
        _read_line(second)
        seconds = time.perf_counter() - began
    finally:
        process.kill(second)
    counts = Counter(read_trace(options.trace))
    return {
        "executed_before_kill": executed,
        "missing": runs * STEPS - len(counts),
        "repeated": counts.total() - len(counts),
        "in_flight": options.concurrency,
        "seconds": seconds,
    }


def w8(options: Options) -> Figures:
    """From the start of the interpreter to a ready worker, then what it costs to do nothing."""
    process.kill(_ready(options)[0])  # the first one makes the schema
    began = time.perf_counter()
    child, pid = _ready(options)
    try:
        ready_seconds = time.perf_counter() - began
        time.sleep(1)
        before = process.cpu_seconds(pid)
        time.sleep(options.sizes.idle_seconds)
        used = process.cpu_seconds(pid) - before
        rss = process.rss_bytes(pid)
    finally:
        process.kill(child)
    return {
        "ready_seconds": ready_seconds,
        "idle_cpu_percent": used / options.sizes.idle_seconds * 100,
        "rss_mb": rss / 1024 / 1024,
    }


IN_WORKER = {w.__name__: w for w in (w1, w2, w3, w4, w5, w6, w9, w10, w11, crash, recover, idle)}
AROUND_WORKER = {w.__name__: w for w in (w7, w8)}


def main(
    engine: type[Engine], module: str, own: Mapping[str, Callable[[Options], Figures]] | None = None
) -> None:
    """Run the workload of the command line and print its figures as one line of JSON.

    `own` are workloads that only this engine has: the others have not what these are made of.
    """
    options = Options.parse(module)
    around = {**AROUND_WORKER, **(own or {})}
    if options.workload in around:
        figures = around[options.workload](options)
    else:
        figures = asyncio.run(_in_worker(engine, options))
    print(json.dumps(figures), flush=True)
    os._exit(0)  # what was measured is over; no engine's shutdown is waited for


async def _in_worker(make: type[Engine], options: Options) -> Figures:
    engine = await make(options).__aenter__()
    if options.workload not in ("recover", "idle", "crash"):
        await engine.finish(await engine.start("steps", [STEPS]))  # warm
    return await IN_WORKER[options.workload](engine, options)


async def _until_parked(engine: Engine, count: int) -> None:
    async def parked() -> bool:
        return await engine.parked() >= count

    await poll(parked, POLL_SECONDS)


def _child(options: Options, workload: str) -> list[str]:
    return [sys.executable, *options.arguments(workload)]


def _ready(options: Options) -> tuple[subprocess.Popen[bytes], int]:
    child = process.spawn(_child(options, "idle"), stdout=subprocess.PIPE)
    return child, json.loads(_read_line(child))["pid"]


def _read_line(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, "the child ended early"
    return line

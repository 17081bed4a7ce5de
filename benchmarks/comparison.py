"""The comparison: sweep concurrencies, then repeat every workload with the engines alternating."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import baseline, claim, environments, server
from benchmarks.contender import CONTENDERS, ROOT, Contender, Ring
from benchmarks.report import render

CONCURRENCIES = (4, 10, 30, 100)
WORKLOADS = (
    "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11", "w12", "w13", "claim",
)  # fmt: skip
REPETITIONS = 3
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
QUICK_SIZES = {
    "runs": 200,
    "samples": 10,
    "chains": [200, 1_000],
    "sleepers": 500,
    "wakes": 100,
    "waiters": 200,
    "matches": 5_000,
    "events": 200,
    "schedules": 200,
    "idle_seconds": 3,
    "http_seconds": 3,
    "listed": 50_000,
}
# What no target compares with, peers do in the first repetition only: they take the longest.
ONCE = ("w7", "w8")
LATER_CHAINS = {"chains": [1_000]}
# What only Stepwell has, and what of it takes minutes to prepare and is measured once.
OURS = ("w9", "w10", "w11", "w12", "w13")
PREPARED = ("w13",)
# What takes Stepwell a moment and others many seconds.
SHORT = ("w1", "w2", "w4", "w5", "w6")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [each.name for each in CONTENDERS]
    parser.add_argument("--engines", nargs="+", default=names, choices=names)
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--concurrency", type=int, help="use this one instead of a sweep")
    parser.add_argument("--quick", action="store_true", help="small sizes, once, not published")
    return parser.parse_args()


def _is_whole(args: argparse.Namespace) -> bool:
    """Only a whole comparison is published."""
    everything = len(args.engines) == len(CONTENDERS) and len(args.workloads) == len(WORKLOADS)
    return everything and args.repetitions >= REPETITIONS and not (args.quick or args.concurrency)


async def main() -> None:
    args = parse()
    contenders = [each for each in CONTENDERS if each.name in args.engines]
    for each in contenders:
        environments.interpreter(each.engine)
    with tempfile.TemporaryDirectory(prefix="stepwell-bench-") as name:
        folder = Path(name)
        _require_disk(folder)
        with server.postgres(folder) as postgres:
            book = Book("latest" if _is_whole(args) else "partial", args.quick)
            book.raw["machine"] = _machine() | await postgres.settings()
            await compare(Ring(folder, postgres), book, contenders, args)
    document = render(book.raw)
    target = DOCUMENT if _is_whole(args) else RESULTS / "partial.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(document)
    print(document)
    print(f"written to {target.relative_to(ROOT)}; raw figures in {book.path.relative_to(ROOT)}")


async def compare(
    ring: Ring, book: Book, contenders: list[Contender], args: argparse.Namespace
) -> None:
    sizes: dict[str, Any] = QUICK_SIZES if args.quick else {}
    best = {}
    for each in contenders:
        best[each.name] = args.concurrency or await sweep(ring, book, each, sizes)
    for repetition in range(1 if args.quick else args.repetitions):
        for workload in args.workloads:
            if workload == "claim" or (repetition and workload in PREPARED):
                continue
            if workload == "w3":
                await measure_commits(ring, book)
            several: dict[str, list[dict[str, Any]]] = {}
            for each in _in_turn(contenders, workload):
                if each.is_peer and workload in OURS:
                    continue
                given = each.sizes | sizes
                if each.is_peer and repetition:
                    if workload in ONCE:
                        continue
                    given = given | LATER_CHAINS
                figures = await ring.measure(each, workload, best[each.name], given)
                book.log(f"{workload} {each.name}", figures)
                several.setdefault(each.name, []).append(figures)
            for name, measured in several.items():
                book.note(workload, name, _middle(measured))
    if "claim" in args.workloads:
        finished = 50_000 if args.quick else 1_000_000
        for each in contenders:
            if not each.is_peer:
                try:
                    figures = await claim.measure(ring, each, best[each.name], sizes, finished)
                except Exception as error:  # the figures of the last half hour are worth more
                    figures = {"error": f"{type(error).__name__}: {error}"}
                book.log(f"claim {each.name}", figures)
                book.note("claim", each.name, figures)


def _in_turn(contenders: list[Contender], workload: str) -> list[Contender]:
    """Everybody once; but ours beside each of the others, where ours takes only a moment.

    A machine that is slow for a second is slow for all of a measurement of ours, and for a tenth
    of one of theirs.
    """
    ours = [each for each in contenders if not each.is_peer]
    peers = [each for each in contenders if each.is_peer]
    if workload not in SHORT or not peers:
        return contenders
    return [each for peer in peers for each in (*ours, peer)]


def _middle(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure; what is no number is taken from the first."""
    measured = [figures for figures in measured if "error" not in figures] or measured
    return {
        key: value
        if isinstance(value, bool) or not isinstance(value, int | float)
        else statistics.median(figures.get(key, value) for figures in measured)
        for key, value in measured[0].items()
    }


async def sweep(ring: Ring, book: Book, contender: Contender, sizes: dict[str, Any]) -> int:
    """The concurrency at which this one is fastest at W1."""
    given = {"runs": 300 if contender.is_peer else 1_000} | sizes
    speeds = {}
    for concurrency in CONCURRENCIES:
        figures = await ring.measure(contender, "w1", concurrency, given)
        speeds[concurrency] = figures.get("steps_per_second", 0.0)
        book.log(f"sweep {contender.name} at {concurrency}", figures)
    book.raw["sweep"][contender.name] = speeds
    return max(speeds, key=lambda concurrency: speeds[concurrency])


async def measure_commits(ring: Ring, book: Book) -> None:
    """One bare commit on each store, beside the W3 of the same repetition."""
    for contender in CONTENDERS[:2]:
        async with ring.store(contender, "commit", 1) as (dsn, folder):
            if contender.store == "sqlite":
                cost = baseline.sqlite_commit_ms(folder / "bare.db")
            else:
                cost = await baseline.postgres_commit_ms(dsn)
        book.log(f"commit {contender.store}", {"ms_per_commit": cost})
        book.note("w3", f"commit-{contender.store}", {"ms_per_commit": cost})


class Book:
    """The raw figures, on disk after every measurement."""

    def __init__(self, name: str, quick: bool) -> None:
        RESULTS.mkdir(exist_ok=True)
        self.path = RESULTS / f"{name}.json"
        self.raw: dict[str, Any] = {"quick": quick, "sweep": {}, "figures": {}}
        self._began = time.monotonic()

    def note(self, workload: str, name: str, figures: dict[str, Any]) -> None:
        self.raw["figures"].setdefault(workload, {}).setdefault(name, []).append(figures)
        self.raw["seconds"] = time.monotonic() - self._began
        self.path.write_text(json.dumps(self.raw, indent=1))

    def log(self, what: str, figures: dict[str, Any]) -> None:
        shown = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in figures.items()
        )
        print(f"{time.monotonic() - self._began:7.1f} s  {what}: {shown}", flush=True)


def _machine() -> dict[str, Any]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": model,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def _require_disk(folder: Path) -> None:
    """Durable writes to memory would cost nothing and prove nothing."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(point, kind) for point, kind in mounts if folder.is_relative_to(point)]
    if max(inside, key=lambda mount: len(mount[0]))[1] == "tmpfs":
        raise SystemExit(f"{folder} is in memory: set TMPDIR to a folder on a disk")


if __name__ == "__main__":
    # The default would end the process at once and leave PostgreSQL behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    asyncio.run(main())

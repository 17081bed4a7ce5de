"""`python -m stepwell.testing.simulate`: run many simulations, print the seeds that fail."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import traceback

from stepwell.testing.simulation.simulation import simulate


def attempt(seed: int) -> tuple[int, str | None]:
    """The seed, and what went wrong with it."""
    try:
        simulate(seed)
    except BaseException:
        return seed, traceback.format_exc()
    return seed, None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m stepwell.testing.simulate", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one seed only")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args(arguments)
    if options.seed is not None:
        sys.stdout.write(simulate(options.seed) + "\n")
        return 0
    seeds = range(options.first, options.first + options.seeds)
    failed = 0
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for number, (seed, problem) in enumerate(pool.imap_unordered(attempt, seeds, 20), 1):
            if problem is not None:
                failed += 1
                sys.stdout.write(f"seed {seed} failed:\n{problem}\n")
            if number % 500 == 0:
                sys.stdout.write(f"{number} of {len(seeds)} seeds, {failed} failed\n")
                sys.stdout.flush()
    sys.stdout.write(f"{len(seeds) - failed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

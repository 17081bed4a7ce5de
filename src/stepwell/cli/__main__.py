"""`python -m stepwell.cli` is `stepwell`."""

from __future__ import annotations

from stepwell.cli import main

if __name__ == "__main__":
    main(prog_name="stepwell")

"""The command line, on both stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.surfaces.support import Cli


@pytest.fixture
def cli(store_url: str, tmp_path: Path, anyio_backend: str) -> Cli:
    """The command line on an empty store; a test that asks for it runs on both."""
    return Cli(tmp_path, store_url)


@pytest.fixture
def lite(tmp_path: Path) -> Cli:
    """The command line on SQLite, where the store makes no difference."""
    return Cli(tmp_path, f"sqlite:///{tmp_path}/stepwell.db")

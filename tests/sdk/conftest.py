"""A server of the test's own, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stepwell.sdk.client import Client
from tests.sdk.serving import Server, running


@pytest.fixture
def server(store_url: str) -> Iterator[Server]:
    """A server and a worker; a test that asks for it runs on both stores."""
    with running(store_url) as found:
        yield found


@pytest.fixture
def lite_server(tmp_path: Path) -> Iterator[Server]:
    """A server on SQLite, where the store makes no difference."""
    with running(f"sqlite:///{tmp_path}/stepwell.db") as found:
        yield found


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url, server.token) as found:
        yield found


@pytest.fixture
async def lite(lite_server: Server) -> AsyncIterator[Client]:
    async with Client(lite_server.url, lite_server.token) as found:
        yield found

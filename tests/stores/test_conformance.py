"""Every store does what the contract says."""

from __future__ import annotations

import pytest

from stepwell.catalog import store_for
from stepwell.testing.clock import FakeClock
from stepwell.testing.conformance import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_store(store_url: str, clock: FakeClock, check: Check) -> None:
    store = store_for(store_url, clock)
    await store.open()
    try:
        await check(store)
    finally:
        await store.close()

"""What lets whoever runs a server in: a link and a token of the first owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.app.beginnings import first_owner, local_token
from stepwell.app.hosting import Host, Shape
from stepwell.errors import Unauthenticated
from stepwell.kernel.access import MemberRecord, UserRecord
from stepwell.settings import Settings


@pytest.fixture
async def host(store_url: str) -> AsyncIterator[Host]:
    async with Host(store_url, Shape(worker=None), Settings()) as found:
        await found.begin()
        yield found


async def test_each_folder_has_a_token_of_its_own(host: Host, tmp_path: Path) -> None:
    here, there = [await local_token(host, None, tmp_path / name) for name in ("a", "b")]
    assert here is not None
    assert there is not None
    assert await local_token(host, here, tmp_path / "a") == here
    again = await local_token(host, None, tmp_path / "a")
    assert again not in (None, here)
    assert await host.doorkeeper.by_token(there)
    with pytest.raises(Unauthenticated):
        await host.doorkeeper.by_token(here)


async def test_the_first_owner_stays_the_first_whoever_joins(host: Host) -> None:
    first = await first_owner(host)
    assert first is not None
    access, now = host.first.store.access, host.first.store.clock.now()
    ada = UserRecord(host.ids.new(), "ada", None, now)
    await access.add_member(MemberRecord(host.first_id, ada.id, "owner", now), ada)
    assert ada.name < first.name
    assert await first_owner(host) == first

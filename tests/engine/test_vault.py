"""The vault: however many ask at once, the store is asked once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stepwell.engine.vault import FRESH_SECONDS, Vault
from stepwell.kernel.records import SecretRecord
from stepwell.kernel.sealing import Keyring, new_key
from stepwell.testing.clock import FakeClock

KEYRING = Keyring.read(new_key(), "the test")


class Held:
    """Records of a store that answers when it is told to."""

    def __init__(self, secrets: dict[str, str]) -> None:
        self.found = [
            SecretRecord(name, KEYRING.key_id, KEYRING.seal(value, f"default/{name}"), 0, 0)
            for name, value in secrets.items()
        ]
        self.asked = 0
        self.answer = asyncio.Event()
        self.error: Exception | None = None

    async def secrets(self, workspace_id: str) -> list[SecretRecord]:
        self.asked += 1
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        return self.found


def vault(records: Any, clock: FakeClock) -> Vault:
    return Vault(records, "default", lambda: KEYRING, clock)


async def asking(vault: Vault, times: int) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(vault.secrets()) for _ in range(times)]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("secrets", [{"key": "the value"}, {}])
async def test_many_steps_at_once_ask_the_store_once(
    clock: FakeClock, secrets: dict[str, str]
) -> None:
    records = Held(secrets)
    opened = vault(records, clock)
    tasks = await asking(opened, 1000)
    records.answer.set()
    assert await asyncio.gather(*tasks) == [secrets] * 1000
    assert await opened.secrets() == secrets
    assert records.asked == 1
    clock.advance(FRESH_SECONDS)
    await opened.secrets()
    assert records.asked == 2


async def test_a_step_that_is_cancelled_while_it_asks_fails_no_other(clock: FakeClock) -> None:
    records = Held({"key": "the value"})
    first, second, *others = await asking(vault(records, clock), 10)
    first.cancel()
    second.cancel()
    await asyncio.wait({first, second})
    assert first.cancelled()
    assert second.cancelled()
    records.answer.set()
    assert await asyncio.gather(*others) == [{"key": "the value"}] * 8


async def test_a_failure_to_ask_is_not_remembered(clock: FakeClock) -> None:
    records = Held({"key": "the value"})
    records.error = RuntimeError("broken")
    records.answer.set()
    opened = vault(records, clock)
    with pytest.raises(RuntimeError):
        await opened.secrets()
    records.error = None
    assert await opened.secrets() == {"key": "the value"}


async def test_what_was_read_while_a_secret_was_set_is_not_kept(clock: FakeClock) -> None:
    records = Held({})
    asked = vault(records, clock)
    [early] = await asking(asked, 1)
    asked.forget()
    records.answer.set()
    assert await early == {}
    records.found = Held({"key": "the value"}).found
    assert await asked.secrets() == {"key": "the value"}

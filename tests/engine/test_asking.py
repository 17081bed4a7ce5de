"""A store that is away for a while: what a run asks of it is asked again."""

from __future__ import annotations

from typing import Any

from stepwell import Stepwell
from stepwell.engine.vault import Vault
from stepwell.errors import StoreUnavailable
from stepwell.kernel.sealing import Keyring, new_key
from stepwell.testing.clock import FakeClock
from tests.conftest import World
from tests.engine.support import flowing, until


def away(target: Any, verb: str, times: int) -> None:
    """Let a verb fail the first times as if the store were away."""
    real, left = getattr(target, verb), iter(range(times))

    async def unreliable(*args: Any) -> Any:
        if next(left, None) is not None:
            raise StoreUnavailable("The store is away.")
        return await real(*args)

    setattr(target, verb, unreliable)


async def gated(sw: Stepwell, config: dict[str, Any]) -> Any:
    node = {"id": "gate", "type": "approval", "config": {"prompt": "Now?", **config}}
    return await sw.start_document({"name": "gated", "nodes": [node], "output": "@gate.approved"})


async def test_a_gate_opens_and_expires_though_the_store_was_away(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw, sw.worker():
        away(sw.store.records, "open_gate", 9)
        away(sw.store.records, "change_gate", 9)
        async with flowing(clock):
            run = await gated(sw, {"timeout": "5s", "on_deny": "continue"})
            await until(sw, run.id, "completed", "failed")
            assert await run.result() is False


async def test_a_node_gets_its_secrets_though_the_store_was_away(
    world: World, clock: FakeClock
) -> None:
    async with world() as sw, flowing(clock):
        away(sw.store.records, "secrets", 9)
        keyring = Keyring.read(new_key(), "the test")
        assert await Vault(sw.store.records, "default", keyring, clock).secrets() == {}

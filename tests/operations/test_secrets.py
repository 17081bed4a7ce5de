"""Secrets: sealed with the operator's key, replaced, rotated, and never moved."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepwell import Stepwell
from stepwell.app.keys import keyring_for
from stepwell.errors import InvalidInput, InvalidName, SecretKeyInvalid, SecretNotFound
from stepwell.kernel.sealing import Keyring, new_key
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.conftest import World, new_database
from tests.engine.support import until
from tests.operations.support import definition, node

READ = definition(node("read", "transform", value={"size": "{{secrets.key}}"}))


async def test_a_secret_is_listed_by_name_replaced_and_deleted(world: World) -> None:
    async with world(settings=Settings(secret_key=new_key())) as sw:
        await sw.secrets.set("key", "first value")
        await sw.secrets.set("key", "second value")
        [found] = await sw.secrets.list()
        assert found.name == "key"
        assert "value" not in str(found)
        await sw.secrets.delete("key")
        assert await sw.secrets.list() == []
        with pytest.raises(SecretNotFound):
            await sw.secrets.delete("key")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "ü", "-a", "x" * 101])
async def test_a_name_that_no_reference_could_have_is_refused(world: World, name: str) -> None:
    async with world(settings=Settings(secret_key=new_key())) as sw:
        with pytest.raises(InvalidName):
            await sw.secrets.set(name, "some value")


async def test_a_secret_too_short_to_be_masked_is_refused(world: World) -> None:
    async with world(settings=Settings(secret_key=new_key())) as sw:
        with pytest.raises(InvalidInput, match="masked"):
            await sw.secrets.set("pin", "123")


async def test_rotation_seals_everything_with_the_first_key(world: World) -> None:
    old, new = new_key(), new_key()
    async with world(settings=Settings(secret_key=old)) as sw:
        await sw.secrets.set("key", "the value")
    async with world(settings=Settings(secret_key=f"{new},{old}")) as sw:
        assert await sw.secrets.rotate() == 1
        assert await sw.secrets.rotate() == 0
    async with world(settings=Settings(secret_key=old)) as sw:
        with pytest.raises(SecretKeyInvalid, match="sealed with the key"):
            await sw.secrets.rotate()


async def test_rotation_keeps_what_is_set_and_deleted_meanwhile(world: World) -> None:
    old, new = new_key(), new_key()
    async with world(settings=Settings(secret_key=old)) as sw:
        for name in ("key", "gone", "still"):
            await sw.secrets.set(name, "the old value")
        async with world(settings=Settings(secret_key=f"{new},{old}")) as rotating:
            records, meanwhile = rotating.store.records, [True]
            read = records.secrets

            async def slowly(workspace_id: str) -> Any:
                found = await read(workspace_id)
                if meanwhile and meanwhile.pop():
                    await sw.secrets.set("key", "the new value")
                    await sw.secrets.delete("gone")
                return found

            records.secrets = slowly  # type: ignore[method-assign]
            assert await rotating.secrets.rotate() == 2
        found = {each.name: each for each in await sw.store.records.secrets("default")}
    keyring = Keyring.read(new, "the test")
    opened = {
        name: keyring.open(each.sealed, each.key_id, f"default/{name}")
        for name, each in found.items()
    }
    assert opened == {"key": "the new value", "still": "the old value"}


async def test_a_sealed_value_cannot_be_moved_to_another_name(world: World) -> None:
    async with world(settings=Settings(secret_key=new_key())) as sw:
        await sw.secrets.set("harmless", "the value")
        [record] = await sw.store.records.secrets("default")
        moved = msgspec.structs.replace(record, name="key")
        await sw.store.records.put_secret("default", moved)
        async with sw.worker():
            run = await sw.start_document(READ)
            ended = await until(sw, run.id, "completed", "failed")
        assert ended.error is not None
        assert ended.error.type == "secret_key_invalid"


async def test_a_secret_that_cannot_be_opened_fails_only_who_refers_to_it(world: World) -> None:
    key, lost = new_key(), new_key()
    others = definition(node("read", "transform", value="{{secrets.other}}"))
    none = definition(node("read", "transform", value="no secret"))
    async with world(settings=Settings(secret_key=lost)) as sw:
        await sw.secrets.set("key", "sealed with a key that was lost")
    async with world(settings=Settings(secret_key=key)) as sw, sw.worker():
        await sw.secrets.set("other", "some value")
        assert await (await sw.start_document(none)).result(30) == "no secret"
        assert await (await sw.start_document(others)).result(30) == "•••"
        ended = await until(sw, (await sw.start_document(READ)).id, "failed")
    assert ended.error is not None
    assert ended.error.type == "secret_key_invalid"
    assert "'key' was sealed with the key" in ended.error.message


async def test_a_malformed_key_fails_only_who_refers_to_a_secret(world: World) -> None:
    async with world(settings=Settings(secret_key=new_key())) as sw:
        await sw.secrets.set("key", "the value")
    async with world(settings=Settings(secret_key="no key")) as sw, sw.worker():
        none = definition(node("read", "transform", value="no secret"))
        assert await (await sw.start_document(none)).result(30) == "no secret"
        ended = await until(sw, (await sw.start_document(READ)).id, "failed")
    assert ended.error is not None
    assert ended.error.type == "secret_key_invalid"


@pytest.mark.parametrize("sealed", ["", "AAAA", "no base64!", "ü"])
def test_what_was_never_sealed_cannot_be_opened(sealed: str) -> None:
    keyring = Keyring.read(new_key(), "the test")
    with pytest.raises(SecretKeyInvalid, match="changed in the store"):
        keyring.open(sealed, keyring.key_id, "default/key")


def test_who_makes_a_key_at_the_same_time_gets_the_same_one(tmp_path: Path) -> None:
    def key_of(number: int) -> str:
        url = f"sqlite:///{tmp_path}/{number // 8}/stepwell.db"
        found = keyring_for(Settings(), url, make=True)
        assert found is not None
        return found.key_id

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(key_of, range(400)))
    assert all(len(set(ids[start : start + 8])) == 1 for start in range(0, 400, 8))
    assert {path.name for path in tmp_path.glob("*/*")} == {"secret.key"}


async def test_a_missing_secret_fails_the_step_and_names_it(world: World) -> None:
    async with world(settings=Settings(secret_key=new_key())) as sw, sw.worker():
        run = await sw.start_document(READ)
        ended = await until(sw, run.id, "completed", "failed")
        assert ended.error is not None
        assert ended.error.type == "missing_path"
        assert "secrets.key" in ended.error.message


async def test_a_file_store_makes_itself_a_key_for_its_owner_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/.stepwell/stepwell.db"
    async with Stepwell(url, settings=Settings()) as sw:
        await sw.secrets.set("key", "the value")
    path = tmp_path / ".stepwell" / "secret.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name(".gitignore").read_text() == "*\n"  # with the store, it gives all away
    async with Stepwell(url, settings=Settings()) as sw, sw.worker():
        run = await sw.start_document(READ)
        assert await run.result(30) == {"size": "•••"}


async def test_postgres_wants_a_key_that_all_workers_share(
    postgres_server: str, clock: FakeClock
) -> None:
    async with Stepwell(await new_database(postgres_server), settings=Settings()) as sw:
        with pytest.raises(SecretKeyInvalid, match="STEPWELL_SECRET_KEY"):
            await sw.secrets.set("key", "the value")


@pytest.mark.parametrize("key", ["short", "", "not base64 at all!", "QUJD"])
def test_a_malformed_key_is_refused(key: str) -> None:
    with pytest.raises(SecretKeyInvalid):
        Keyring.read(key, "STEPWELL_SECRET_KEY")


async def test_saving_warns_of_secrets_that_are_not_there(world: World) -> None:
    wanted = definition(
        node("known", "shell", command="x {{secrets.key}}"),
        node("missing", "shell", command="x {{secrets.keys}}"),
        node("covered", "shell", command='x {{secrets.other ? "none"}}'),
    )
    async with world(settings=Settings(secret_key=new_key())) as sw:
        await sw.secrets.set("key", "some value")
        found = await sw.definitions.publish(wanted)
        checked = await sw.definitions.validate(wanted)
    assert found.created
    [warning] = found.problems
    assert (warning.path, warning.code, warning.severity) == (
        "nodes[1]", "unknown_secret", "warning",
    )  # fmt: skip
    assert "'keys'" in warning.message
    assert warning.hint == "Did you mean 'key'?"
    assert checked.problems == found.problems

"""Opening stores: URLs, schemas that are too old or too new, files that are no database."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from stepwell import Stepwell
from stepwell.catalog import store_for
from stepwell.errors import (
    InvalidInput,
    SchemaTooNew,
    SchemaTooOld,
    StepwellError,
    StoreUnavailable,
    StoreUrlInvalid,
)
from stepwell.settings import Settings
from stepwell.stores import migrations as real
from stepwell.testing.clock import FakeClock


@pytest.mark.parametrize(
    "url",
    ["", "nowhere", "mysql://host/db", "sqlite://", "sqlite:///", "sqlite:relative.db", "://"],
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreUrlInvalid) as refused:
        Stepwell(url)
    assert refused.value.code == "store_url_invalid"


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://u:secret@h/d", "postgresql://u:se#cret@h/d", "u:secret@h/d"]
)
def test_a_url_that_is_refused_is_shown_without_its_password(url: str) -> None:
    with pytest.raises(StoreUrlInvalid) as refused:
        Stepwell(url)
    assert "cret" not in refused.value.message
    assert "postgresql" in refused.value.message


def test_a_bad_url_from_the_environment_is_told_to_come_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEPWELL_STORE", "mysql://u:secret@h/d")
    with pytest.raises(StoreUrlInvalid, match=r"^STEPWELL_STORE: 'mysql://u:\*\*\*@h/d' is not"):
        Stepwell()
    Stepwell("sqlite:///x.db")  # does not look at it


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing like a database " * 100)
    with pytest.raises(StoreUnavailable):
        async with Stepwell(f"sqlite:///{tmp_path}/notes.txt"):
            pass
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        async with Stepwell(f"sqlite:///{tmp_path}/file/below/store.db"):
            pass


def _later(store: str) -> list[real.Migration]:
    """The migrations of a Stepwell to come."""
    return [*real.migrations(store), real.Migration(9999, "9999_later", "SELECT 1")]


async def test_a_schema_that_is_too_old_or_too_new_is_named(
    store_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "sqlite" if store_url.startswith("sqlite") else "postgres"
    module: Any = importlib.import_module(
        "stepwell.stores.sqlite.store" if name == "sqlite" else "stepwell.stores.postgres.schema"
    )
    first = store_for(store_url, clock)
    await first.open()
    await first.close()
    with monkeypatch.context() as later:
        later.setattr(module, "migrations", _later)
        old = store_for(store_url, clock)
        with pytest.raises(SchemaTooOld) as refused:
            await old.open()
        assert "stepwell migrate" in str(refused.value)
        await old.close()
        upgraded = store_for(store_url, clock)
        assert await upgraded.migrate() == ["9999_later"]
        assert await upgraded.migrate() == []
        await upgraded.open()
        await upgraded.close()
    behind = store_for(store_url, clock)
    with pytest.raises(SchemaTooNew):
        await behind.open()
    await behind.close()


def test_settings_come_from_the_environment_and_are_checked() -> None:
    read = Settings.read(
        {
            "STEPWELL_STORE": "sqlite:///x.db",
            "STEPWELL_MAX_RETENTION": "90d",
            "STEPWELL_MAX_RESULT_BYTES": "1000",
        }
    )
    assert (read.store, read.max_retention_seconds, read.max_result_bytes) == (
        "sqlite:///x.db", 90 * 86_400, 1000,
    )  # fmt: skip
    for name, value in [("STEPWELL_MAX_RETENTION", "long"), ("STEPWELL_MAX_RESULT_BYTES", "-1")]:
        with pytest.raises(InvalidInput) as refused:
            Settings.read({name: value})
        assert name in str(refused.value)
        assert isinstance(refused.value, StepwellError)


async def test_the_engines_own_folder_is_for_its_owner_and_for_no_repository(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "project" / ".stepwell"
    for _ in range(2):
        async with Stepwell(f"sqlite:///{folder}/stepwell.db"):
            pass
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"
    async with Stepwell(f"sqlite:///{tmp_path}/elsewhere/stepwell.db"):
        pass
    assert not (tmp_path / "elsewhere" / ".gitignore").exists()

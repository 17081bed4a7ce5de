"""Passwords: how long they are, how they are compared, and when they are hashed anew."""

from __future__ import annotations

import pytest
from argon2 import PasswordHasher

from stepwell.errors import PasswordInvalid
from stepwell.kernel import passwords
from stepwell.kernel.passwords import Verdict, compared, hashed

PASSWORD = "correct horse battery"


async def test_a_password_fits_its_hash_and_no_other() -> None:
    hash = await hashed(PASSWORD)
    assert hash.startswith("$argon2id$")
    assert PASSWORD not in hash
    assert await compared(PASSWORD, hash) == Verdict(True)
    assert await compared(PASSWORD + "!", hash) == Verdict(False)
    assert await compared(PASSWORD, "no hash") == Verdict(False)


@pytest.mark.parametrize("password", ["", "x" * 11, "x" * 1025])
async def test_a_password_too_short_or_too_long_is_refused(password: str) -> None:
    with pytest.raises(PasswordInvalid, match="12 to 1,024"):
        await hashed(password)
    assert not (await compared(password, None)).right


async def test_a_password_is_the_same_from_every_keyboard() -> None:
    hash = await hashed("gar\u00e7on gar\u00e7on")
    assert (await compared("garc\u0327on garc\u0327on", hash)).right


async def test_a_hash_made_in_an_older_way_is_known_to_be() -> None:
    old = PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(PASSWORD)
    assert await compared(PASSWORD, old) == Verdict(True, outdated=True)
    assert await compared("another password", old) == Verdict(False)


async def test_nobody_costs_as_much_as_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[str] = []

    class Watched(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> bool:
            worked.append(str(hash))
            return bool(super().verify(hash, password))

    monkeypatch.setattr(passwords, "_hasher", Watched())
    assert await compared(PASSWORD, None) == Verdict(False)
    assert await compared("nobody", None) == Verdict(False), "not even what is compared with"
    assert len(worked) == 2
    assert worked[0].startswith("$argon2id$v=19$m=65536,t=3,p=4$")

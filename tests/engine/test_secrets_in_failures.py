"""Secrets in errors: masked in all that is recorded and logged, wherever the error holds them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stepwell import NonRetryable
from stepwell.errors import RequestRefused
from stepwell.kernel.sealing import new_key
from stepwell.settings import Settings
from tests.conftest import World
from tests.engine.support import until
from tests.operations.support import definition, node
from tests.stores.everything import everything

SECRET = 'sesam "öffne" dich'
calls: list[int] = []


class Held(msgspec.Struct):
    """A result that is no plain data."""

    key: str


def in_a_group(value: str) -> Any:
    inner = ExceptionGroup(f"inner {value}", [KeyError(value), ValueError(value)])
    raise ExceptionGroup("several", [inner, RuntimeError(value)])


def in_a_note(value: str) -> Any:
    error = ValueError("nothing to see")
    error.add_note(f"the key was {value}")
    raise error


def in_a_cause(value: str) -> Any:
    try:
        raise RuntimeError(value)
    except RuntimeError as error:
        raise ValueError("nothing to see") from error


def in_what_came_before(value: str) -> Any:
    try:
        raise RuntimeError(value)
    except RuntimeError:
        raise ValueError(f"then {value}")  # noqa: B904


def in_details(value: str) -> Any:
    raise RequestRefused(f"no: {value}", body=value)


def in_bytes(value: str) -> Any:
    raise ValueError(value.encode(), {value: [value]})


def in_what_has_no_json(value: str) -> Any:
    return {value: {value: object()}}


def in_an_object(value: str) -> Any:
    return Held(value)


WAYS: list[Callable[[str], Any]] = [
    in_a_group, in_a_note, in_a_cause, in_what_came_before, in_details, in_bytes,
    in_what_has_no_json, in_an_object,
]  # fmt: skip


def calling(function: Callable[[str], Any]) -> dict[str, Any]:
    """A definition that hands the secret to a function, twice if it fails."""
    told = node("told", "python", function=function.__name__, input="{{secrets.key}}")
    return definition(told | {"retry": {"attempts": 2, "base": "0s"}})


@pytest.mark.parametrize("way", WAYS)
async def test_an_error_tells_no_secret_wherever_it_holds_it(
    world: World, store_url: str, caplog: pytest.LogCaptureFixture, way: Callable[[str], Any]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with world(settings=Settings(secret_key=new_key()), functions=[way]) as sw:
        await sw.secrets.set("key", SECRET)
        async with sw.worker():
            run = await sw.start_document(calling(way))
            ended = await until(sw, run.id, "completed", "failed")
        shown = str([ended, await sw.steps(run.id)])
    assert (ended.status == "completed") is (way is in_an_object)
    for place in (await everything(store_url), shown, caplog.text):
        for piece in ("sesam", "ffne", "dich"):
            assert piece not in place


def refuse(value: str) -> Any:
    calls.append(1)
    raise NonRetryable(value)


async def test_an_error_with_a_secret_still_decides_about_retries(world: World) -> None:
    calls.clear()
    async with world(settings=Settings(secret_key=new_key()), functions=[refuse]) as sw:
        await sw.secrets.set("key", SECRET)
        async with sw.worker():
            run = await sw.start_document(calling(refuse))
            ended = await until(sw, run.id, "failed")
    assert len(calls) == 1
    assert ended.error is not None
    assert (ended.error.type, ended.error.message) == ("NonRetryable", "•••")

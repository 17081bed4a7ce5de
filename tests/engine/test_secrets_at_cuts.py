"""Texts that are cut in the middle of a secret: what is left of it is masked as well."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pydantic
import pytest

from stepwell.kernel.sealing import new_key
from stepwell.settings import Settings
from tests.conftest import World
from tests.engine.support import until
from tests.nodes.web import reply, serving
from tests.operations.support import definition, node
from tests.stores.everything import everything

# Long enough that pydantic cuts it too.
SECRET = "zwitscherndes-kanarienvoegelchen-hinter-goldenem-gitter-am-fenster"
KEY = "{{secrets.key}}"
FILL = "head -c {} /dev/zero | tr '\\0' x"


def validate(value: str) -> int:
    return pydantic.TypeAdapter(int).validate_python(value)


def filled(before: int, after: int) -> str:
    """A command that writes the secret between so many other characters."""
    return f"{FILL.format(before)}; printf %s {KEY}; {FILL.format(after)}"


CUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "the message of a command": ("shell", {"command": filled(0, 1980) + "; exit 3"}),
    "the first half of an output": ("shell", {"command": filled(32_740, 40_000)}),
    "the second half of an output": ("shell", {"command": filled(40_000, 32_680)}),
    "a script": ("script", {"script": f"cat; {FILL.format(1980)}; exit 3", "input": KEY}),
    "the beginning of an answer": (
        "http", {"url": "URL/480", "method": "POST", "body": KEY}),
    "an answer of the longest": (
        "http", {"url": "URL/0", "method": "POST", "body": KEY, "max_bytes": 30}),
    "a URL": ("http", {"url": "URL/480/" + "x" * 130 + KEY}),
    "Python": ("code", {"code": "raise ValueError('x' * 1960 + input)", "input": KEY}),
    "JavaScript": ("code", {"code": "throw new Error('x'.repeat(1960) + input)",
                            "language": "javascript", "input": KEY}),
    "pydantic": ("python", {"function": "validate", "input": KEY}),
}  # fmt: skip


@pytest.mark.parametrize("place", CUTS)
async def test_a_cut_leaves_nothing_of_a_secret(
    world: World, store_url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path, place: str
) -> None:
    def answer(asked: Any) -> bytes:
        return reply(400, b"x" * int(asked.path.split("/")[1]) + asked.body)

    settings = Settings(
        secret_key=new_key(), http_allow_private=True, folder=str(tmp_path),
        environment={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    caplog.set_level(logging.DEBUG)
    kind, config = CUTS[place]
    async with serving(answer) as web, world(settings=settings, functions=[validate]) as sw:
        await sw.secrets.set("key", SECRET)
        if "url" in config:
            config = config | {"url": config["url"].replace("URL", web.url)}
        async with sw.worker():
            run = await sw.start_document(definition(node("cut", kind, **config)))
            ended = await until(sw, run.id, "completed", "failed")
        shown = str([ended, await sw.steps(run.id)])
    assert "•••" in shown
    pieces = [SECRET[start : start + 5] for start in range(len(SECRET) - 4)]
    for text in (await everything(store_url), shown, caplog.text):
        assert [piece for piece in pieces if piece in text] == []

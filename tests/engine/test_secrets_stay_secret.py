"""A canary: a secret that goes through every type of node is found nowhere afterwards."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stepwell.catalog import node_types
from stepwell.graph.documents import checked
from stepwell.kernel.sealing import new_key
from stepwell.settings import Settings
from tests.conftest import World
from tests.engine.support import until
from tests.nodes.web import reply, serving
from tests.stores.everything import everything

CANARY = 'kanarienvogel "1/2"+ü&zwölf'
NAME = "canary"
SECRET = "{{secrets.canary}}"
# One that may be taken for a number.
DIGITS = "73819264"
PIN = "{{secrets.pin}}"


def tell(value: Any) -> Any:
    return {"said": value, value: "as a key"}


def fail(value: Any) -> Any:
    raise ValueError(f"it was {value}") from RuntimeError(value)


def fail_together(value: Any) -> Any:
    error = KeyError("noted")
    error.add_note(f"it was {value}")
    raise ExceptionGroup("several", [error, ExceptionGroup("inner", [RuntimeError(value)])])


def nodes(url: str) -> list[dict[str, Any]]:
    """One of each type that acts, given the secret, and showing it in every way it can."""
    basic = {"type": "basic", "username": "me", "password": SECRET}
    configs: dict[str, tuple[str, dict[str, Any]]] = {
        "shell": ("shell", {
            "command": 'echo "$K"; printf %s "$K" | base64 -w0; printf "x%s" "$K" | base64 -w0; '
            'echo "{{secrets.canary}}" >&2', "env": {"K": SECRET}, "stdin": SECRET}),
        "shell_fails": ("shell", {"command": "printf %s \"$K\"; exit 3", "env": {"K": SECRET}}),
        "script": ("script", {"script": 'echo "$K"; cat', "env": {"K": SECRET}, "input": SECRET}),
        "code": ("code", {"code": "{'a': input, input: 1, 'l': [input[3:] + input]}",
                          "input": SECRET}),
        "code_fails": ("code", {"code": "raise ValueError(input)", "input": SECRET}),
        "javascript": ("code", {"language": "javascript", "input": SECRET,
                                "code": "export default (x) => { throw new Error(x) }"}),
        "transform": ("transform", {"value": {"deep": [SECRET, f"in {SECRET} text"]}}),
        "http": ("http", {"url": f"{url}/echo", "method": "POST", "query": {"q": SECRET},
                          "headers": {"x-key": "{{secrets.plain}}"}, "body": {"b": SECRET},
                          "auth": basic}),
        "http_fails": ("http", {"url": f"{url}/refuse", "method": "POST", "body": SECRET}),
        "python": ("python", {"function": "tell", "input": SECRET}),
        "python_fails": ("python", {"function": "fail", "input": SECRET}),
        "python_fails_together": ("python", {"function": "fail_together", "input": SECRET}),
        "number": ("code", {"code": "[int(input), {'x': int(input) * 10}]", "input": PIN}),
        "number_fails": ("code", {"code": "{}[int(input)]", "input": PIN}),
        "number_told": ("http", {"url": f"{url}/echo", "method": "POST", "body": PIN}),
        "shell_cut": ("shell", {"command": "head -c 32760 /dev/zero | tr '\\0' x; "
                                f'printf %s "{SECRET}"; head -c 40000 /dev/zero | tr "\\0" y'}),
        "shell_fails_cut": ("shell", {"command": f'printf %s "{SECRET}"; '
                                      'head -c 1990 /dev/zero | tr "\\0" x; exit 3'}),
        "notify": ("notify", {"channel": "webhook", "target": f"{url}/echo", "message": SECRET}),
        "notify_fails": ("notify", {"channel": "webhook", "target": f"{url}/refuse?k={SECRET}",
                                    "message": SECRET}),
    }  # fmt: skip
    return [
        {"id": node_id, "type": kind, "config": config, "retry": {"attempts": 2, "base": "0s"}}
        for node_id, (kind, config) in configs.items()
    ]


async def test_a_secret_that_goes_through_every_node_is_found_nowhere(
    world: World, store_url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def answer(asked: Any) -> bytes:
        if asked.path.startswith("/refuse"):
            return reply(400, b"no: " + asked.body)
        if asked.body == DIGITS.encode():
            return reply(200, {"number": int(DIGITS), "float": float(DIGITS)})
        return reply(200, {"path": asked.path, "headers": asked.headers,
                           "body": asked.body.decode()})  # fmt: skip

    settings = Settings(
        secret_key=new_key(), http_allow_private=True, folder=str(tmp_path),
        environment={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    caplog.set_level(logging.DEBUG)
    async with (
        serving(answer) as web,
        world(settings=settings, functions=[tell, fail, fail_together]) as sw,
    ):
        await sw.secrets.set(NAME, CANARY)
        await sw.secrets.set("pin", DIGITS)
        await sw.secrets.set("plain", "another-canary-bird")
        document = {"name": "leaky", "nodes": nodes(web.url)}
        assert {node["type"] for node in document["nodes"]} == {  # type: ignore[index]
            each.name for each in node_types().by_name.values() if each.acts
        }
        async with sw.worker():
            run = await sw.start_document(document)
            ended = await until(sw, run.id, "completed", "failed")
        shown = str([ended, await sw.steps(run.id)])
        assert [asked.body for asked in web.asked if CANARY.encode() in asked.body or
                b"zw\\u00f6lf" in asked.body]  # fmt: skip
    for place in (await everything(store_url), shown, caplog.text):
        assert "leaky" in place or place is caplog.text
        for form in (
            CANARY, CANARY.replace('"', '\\"'), quote(CANARY), "another-canary-bird",
            base64.b64encode(CANARY.encode()).decode()[:16], "kanarienvogel", CANARY[:6],
            DIGITS,
        ):  # fmt: skip
            assert form not in place
    assert "•••" in shown


@pytest.mark.parametrize(
    "node",
    [
        {"type": "delay", "config": {"duration": SECRET}},
        {"type": "emit", "config": {"event": "x", "payload": SECRET}},
        {"type": "approval", "config": {"prompt": SECRET}},
        {"type": "task", "config": {"title": SECRET}},
        {"type": "wait_event", "config": {"event": SECRET}},
        {"type": "run", "config": {"definition": "x", "input": SECRET}},
        {"type": "return", "config": {"value": SECRET}},
        {"type": "transform", "config": {}, "when": "secrets.canary == 'x'"},
        {"type": "transform", "config": {"value": 1}, "for_each": {"items": SECRET}},
    ],
    ids=lambda node: "-".join(str(node[key])[:12] for key in node if key != "config"),
)
def test_what_would_be_journaled_cannot_be_given_a_secret(node: dict[str, Any]) -> None:
    found = checked({"name": "x", "nodes": [{"id": "a", **node}]}, node_types())
    assert not found.ok
    assert any("secret" in each.message for each in found.problems), found.problems

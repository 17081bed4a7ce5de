"""The notify node: webhooks, Slack, and whatever Apprise knows."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from stepwell.errors import AddressRefused, RequestFailed, RequestRefused
from stepwell.graph.problems import Problems
from stepwell.nodes import apprise_targets
from stepwell.nodes.notify import notify
from tests.nodes.support import Host, executed
from tests.nodes.web import reply, serving

# Apprise's plugins, which are loaded with the first target, ask for it up to Python 3.12.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")


async def test_a_webhook_gets_json_that_says_where_it_comes_from() -> None:
    async with serving(lambda _: reply(204)) as web:
        config = {
            "channel": "webhook", "target": f"{web.url}/hook", "message_template": "Done.",
            "title": "Build",
        }  # fmt: skip
        output = await executed(notify, config, run_id="r1", key="tell", idempotency_key="r1:tell")
    assert output == {"sent": 1}
    [asked] = web.asked
    assert (asked.method, asked.path) == ("POST", "/hook")
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["idempotency-key"] == "r1:tell"
    assert json.loads(asked.body) == {
        "title": "Build", "message": "Done.", "run_id": "r1", "step": "tell",
    }  # fmt: skip


@pytest.mark.parametrize(("title", "text"), [("", "Done."), ("Build", "*Build*\nDone.")])
async def test_slack_gets_text(title: str, text: str) -> None:
    async with serving(lambda _: reply(200, b"ok")) as web:
        config = {"channel": "slack", "target": web.url, "message": "Done.", "title": title}
        assert await executed(notify, config) == {"sent": 1}
    assert json.loads(web.asked[0].body) == {"text": text}


@pytest.mark.parametrize(("status", "error"), [(404, RequestRefused), (503, RequestFailed)])
async def test_the_url_of_a_webhook_is_not_shown_when_it_fails(
    status: int, error: type[Exception]
) -> None:
    async with serving(lambda _: reply(status, b"no_service", Retry_After="7")) as web:
        config = {"channel": "slack", "target": f"{web.url}/T0/B0/token", "message": "m"}
        with pytest.raises(error) as raised:
            await executed(notify, config)
    assert type(raised.value) is error
    assert (
        str(raised.value) == f"The slack notification was answered with {status} Said: no_service"
    )


async def test_a_webhook_on_a_private_host_is_refused() -> None:
    async with serving(lambda _: reply()) as web:
        config = {"channel": "webhook", "target": web.url, "message": "m"}
        with pytest.raises(AddressRefused):
            await executed(notify, config, host=Host(allow_private=False))
    assert web.asked == []


async def test_apprise_tells_every_target() -> None:
    async with serving(lambda _: reply()) as web:
        targets = [f"json://127.0.0.1:{web.port}/{each}" for each in "ab"]
        config = {"targets": targets, "message": "Done.", "title": "Build"}
        assert await executed(notify, config) == {"sent": 2}
    assert [each.path for each in web.asked] == ["/a", "/b"]
    said = json.loads(web.asked[0].body)
    assert (said["title"], said["message"]) == ("Build", "Done.")


async def test_a_failure_names_targets_without_their_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(lambda asked: reply(200 if asked.path == "/a" else 500)) as web:
        good, bad = (f"json://user:hunter2@127.0.0.1:{web.port}/{each}" for each in "ab")
        with pytest.raises(RequestFailed) as raised:
            await executed(notify, {"targets": [good, bad], "message": "m"})
    assert type(raised.value) is RequestFailed
    assert str(raised.value) == "1 of 2 targets could not be notified: target 2 (json://…)."
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("target", ["bogus://user:hunter2@x.test/", "json://"])
async def test_a_target_that_apprise_does_not_know_is_refused_without_its_secrets(
    target: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RequestRefused, match="Apprise knows: target 1") as raised:
        await executed(notify, {"targets": [target], "message": "m"})
    assert "hunter2" not in str(raised.value) + caplog.text


@pytest.mark.parametrize(
    "target",
    [
        "json://127.0.0.1:{port}/", "xml://localhost:{port}/", "gotify://[::1]:{port}/token",
        "mailto://user:pass@x.test:{port}?smtp=127.0.0.1",
    ],
)  # fmt: skip
async def test_targets_on_private_hosts_are_refused(target: str) -> None:
    async with serving(lambda _: reply()) as web:
        config = {"targets": [target.format(port=web.port)], "message": "m"}
        with pytest.raises(AddressRefused):
            await executed(notify, config, host=Host(allow_private=False))
    assert web.asked == []


async def test_targets_do_not_lead_on_to_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwell.nodes.addresses.is_public", lambda _: True)
    async with serving(lambda _: reply()) as secret:
        async with serving(lambda _: reply(302, b"", Location=secret.url)) as web:
            target = f"json://127.0.0.1:{web.port}/?redirect=yes"
            with pytest.raises(RequestFailed):
                await executed(
                    notify, {"targets": [target], "message": "m"}, host=Host(allow_private=False)
                )
    assert len(web.asked) == 1
    assert secret.asked == []


async def test_without_apprise_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(apprise_targets, "import_module", unavailable)
    with pytest.raises(RequestRefused, match=r"pip install 'stepwell\[notify\]'"):
        await executed(notify, {"targets": ["json://x.test"], "message": "m"})


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"message": "m", "targets": ["json://x.test"]}, []),
        ({"message": "m", "channel": "slack", "target": "https://x.test"}, []),
        ({"message": "m", "channel": "slack", "target": "{{secrets.hook}}"}, []),
        ({"message": "m", "targets": "{{input.all}}"}, []),
        ({"targets": ["json://x.test"]}, [("config.message", "missing_field")]),
        ({"message": "m"}, [("config", "bad_field")]),
        ({"message": "m", "channel": "slack"}, [("config", "bad_field")]),
        ({"message": "m", "targets": []}, [("config.targets", "bad_field")]),
        ({"message": "m", "targets": ["x", "a://b"]}, [("config.targets[0]", "bad_field")]),
        ({"message": "m", "targets": "{{a}}", "target": "{{b}}"}, [("config", "bad_field")]),
        (
            {"message": "m", "channel": "pigeon", "target": "x"},
            [("config.channel", "bad_field"), ("config.target", "bad_field")],
        ),
    ],
)
def test_a_config_is_checked(config: dict[str, Any], found: list[tuple[str, str]]) -> None:
    problems = Problems()
    notify.check(config, "config", problems)
    assert [(each.path, each.code) for each in problems.found] == found

"""Pages of runs and gates at a real server: where links lead that people are given."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from stepwell.kernel.access import MemberRecord
from stepwell.kernel.records import GateRecord
from tests.operations.support import definition, node
from tests.surfaces.agents import OLD, done
from tests.surfaces.serving import ELSEWHERE, Served, served

pytestmark = pytest.mark.anyio

HOSTILE = "<script>alert('ship')</script>"
FORM = {"content-type": "application/x-www-form-urlencoded"}


def gated(**config: Any) -> dict[str, Any]:
    asked = {"prompt": "Ship {{input.tag}}?", "subject": {"tag": "@input.tag"}, **config}
    return definition(node("ok", "approval", **asked), name="ship", output="@ok.note")


@pytest.fixture
async def server(store_url: str) -> AsyncIterator[Served]:
    async with served(store_url) as found:
        yield found


async def waiting(server: Served, document: dict[str, Any], workspace: str = "") -> GateRecord:
    """The gate of a run that waits for a decision about something hostile."""
    place = await server.host.workspace(workspace or server.host.first_id)
    await place.definitions.publish(document, enabled=True)
    run = await place.start("ship", {"tag": HOSTILE})
    while not (gates := await place.gates.list(run.id)):
        pass
    return gates[0]


async def browser(server: Served, user: str) -> None:
    """Let the client be somebody who has followed a login link."""
    link = await server.host.doorkeeper.new_link(user)
    assert (await server.http.get(f"/login/{link}")).status_code == 303


async def test_a_used_login_link_says_on_a_page_how_to_get_another(server: Served) -> None:
    link = await server.host.doorkeeper.new_link("member-1")
    assert (await server.http.get(f"/login/{link}")).status_code == 303
    asked = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = await server.http.get(f"/login/{link}", headers=asked)
    assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "stepwell users link NAME --store" in page.text
    problem = await server.http.get(f"/login/{link}")
    assert (problem.status_code, problem.json()["code"]) == (401, "unauthenticated")
    assert "stepwell users link NAME --store" in problem.json()["detail"]


def form_of(page: httpx2.Response) -> tuple[str, dict[str, str]]:
    """Where the form of a page leads, and what a browser sends when Approve is pressed."""
    [action] = re.findall(r'<form method="post" action="([^"]+)">', page.text)
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return unescape(action), {**dict(hidden), "decision": "approve"}


async def test_whoever_is_logged_in_decides_at_the_page_of_a_gate(server: Served) -> None:
    gate = await waiting(server, gated())
    await browser(server, "member-1")
    page = await server.http.get(f"/gates/{gate.id}")
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    # Else browsers say of a form that it comes from nowhere.
    assert '<meta name="referrer" content="same-origin">' in page.text
    action, fields = form_of(page)
    sent = {**fields, "note": "Fine & dandy: ü"}
    own = {"origin": server.url}
    answer = await server.http.post(action, data=sent, headers=own)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/gates/{gate.id}")
    decided = await server.http.get(answer.headers["location"])
    assert "approved" in decided.text
    assert "member-1: approve. Fine &amp; dandy: ü" in decided.text
    assert "<form" not in decided.text
    while not (run := await server.host.first.get_run(gate.run_id)).ended:
        pass
    assert run.output == "Fine & dandy: ü"
    shown = (await server.http.get(f"/runs/{gate.run_id}")).text
    assert "completed" in shown
    assert "Fine &amp; dandy: ü" in shown
    again = await server.http.post(action, data=sent, headers=own)
    assert again.status_code == 409
    assert "by member-1" in again.text
    audit = await server.host.first.store.access.audit(server.host.first_id, None, 10)
    changed = [(each.operation, each.actor) for each in audit if each.operation != "login"]
    assert changed == [("gates.decide", "member-1")]


async def test_what_a_page_shows_is_text(server: Served) -> None:
    gate = await waiting(server, gated(prompt=f"{HOSTILE} {{{{input.tag}}}}?"))
    for path in (f"/gates/{gate.id}", f"/runs/{gate.run_id}"):
        page = await server.ask("GET", path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert HOSTILE not in page.text
        assert "&lt;script&gt;" in page.text


async def test_a_page_of_another_workspace_is_not_found(server: Served) -> None:
    gate = await waiting(server, gated())
    for path in (f"/gates/{gate.id}", f"/runs/{gate.run_id}"):
        for at in ("", f"/@{server.host.first_id}", f"/@{ELSEWHERE}", "/@nowhere", "/nowhere"):
            answer = await server.ask("GET", at + path, role="stranger")
            assert answer.status_code == 404, at + path
            assert "Ship" not in answer.text
    sent = f"decision=approve&seen_hash={gate.subject_hash}"
    for at in ("", f"/@{server.host.first_id}", f"/@{ELSEWHERE}"):
        answer = await server.ask(
            "POST", f"{at}/gates/{gate.id}/decide", role="stranger", headers=FORM, content=sent
        )
        assert answer.status_code == 404
    assert (await server.host.first.gates.get(gate.id)).status == "open"


async def test_strangers_are_told_to_log_in(server: Served) -> None:
    gate = await waiting(server, gated())
    for path in (f"/gates/{gate.id}", f"/runs/{gate.run_id}", "/gates/none", "/@none/runs/none"):
        answer = await server.http.get(path)
        assert answer.status_code == 401
        assert "login link" in answer.text
        assert "Ship" not in answer.text


async def test_no_page_of_somebody_else_decides(server: Served) -> None:
    gate = await waiting(server, gated())
    await browser(server, "owner-1")
    sent = {"decision": "approve", "seen_hash": gate.subject_hash}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {}):
        answer = await server.http.post(f"/gates/{gate.id}/decide", data=sent, headers=headers)
        assert answer.status_code == 403
    assert (await server.host.first.gates.get(gate.id)).status == "open"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", 422),
        ("decision=approve", 409),
        ("decision=approve&seen_hash=0", 409),
        ("decision=perhaps&seen_hash={hash}", 422),
        ("decision=deny&seen_hash={hash}&note=" + "x" * 20_000, 422),
        ("decision=deny&seen_hash={hash}&note=%00", 422),
        ("&".join(f"a{number}=1" for number in range(20)), 400),
        ("ü", 400),
        ("x" * 200_000, 413),
    ],
)
async def test_a_form_that_is_not_the_one_shown_decides_nothing(
    tmp_path: Any, body: str, status: int
) -> None:
    async with served(f"sqlite:///{tmp_path}/stepwell.db") as server:
        gate = await waiting(server, gated())
        answer = await server.ask(
            "POST", f"/gates/{gate.id}/decide", headers=FORM,
            content=body.format(hash=gate.subject_hash).encode(),
        )  # fmt: skip
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html")
        assert (await server.host.first.gates.get(gate.id)).status == "open"


async def test_a_page_of_an_id_that_none_can_be_is_refused_in_words(server: Served) -> None:
    for method, path in [
        ("GET", "/runs/%00"), ("GET", "/gates/%00"), ("POST", "/gates/a%00b/decide"),
    ]:  # fmt: skip
        answer = await server.ask(method, path, headers=FORM)
        assert answer.status_code == 422, path
        assert "NUL" in answer.text


async def test_who_may_not_decide_is_shown_no_form_and_refused(server: Served) -> None:
    gate = await waiting(server, gated(approvers=["admin"]))
    for role, may in {"viewer": False, "member": False, "admin": True, "owner": True}.items():
        page = await server.ask("GET", f"/gates/{gate.id}", role=role)
        assert "admin may decide." in page.text
        assert ("<form" in page.text) is may
    sent = f"decision=approve&seen_hash={gate.subject_hash}"
    for role in ("viewer", "member"):
        answer = await server.ask(
            "POST", f"/gates/{gate.id}/decide", role=role, headers=FORM, content=sent
        )
        assert answer.status_code == 403


@pytest.mark.parametrize(("role", "at"), [("member", ""), ("stranger", f"/@{ELSEWHERE}")])
async def test_an_agent_that_cannot_be_asked_is_given_links_that_lead_there(
    server: Served, role: str, at: str
) -> None:
    await waiting(server, gated(), at[2:])
    headers = {"authorization": f"Bearer {server.tokens[role]}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport: Any = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=OLD, cache=None) as client:
            said = await done(client, "run_ship", tag="v1")
        [gate] = said["gates"]
        assert gate["link"] == f"{server.url}{at}/gates/{gate['id']}"
        assert said["link"] == f"{server.url}{at}/runs/{said['run_id']}"
        assert "Ship v1?" in (await http.get(gate["link"])).text
        assert gate["id"] in (await http.get(said["link"])).text


async def test_a_link_leads_into_the_right_one_of_several_workspaces(server: Served) -> None:
    gate = await waiting(server, gated(), ELSEWHERE)
    access = server.host.first.store.access
    user = await access.user_named("owner-1")
    assert user is not None
    both = msgspec.structs.replace(user, serial=user.serial + 1)
    await access.add_member(MemberRecord(ELSEWHERE, user.id, "member"), both)
    await browser(server, "owner-1")
    assert (await server.http.get(f"/gates/{gate.id}")).status_code == 404
    path = f"/@{ELSEWHERE}/gates/{gate.id}"
    action, fields = form_of(await server.http.get(path))
    answer = await server.http.post(action, data=fields, headers={"origin": server.url})
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert f'href="/@{ELSEWHERE}/runs/{gate.run_id}"' in (await server.http.get(path)).text

"""Logging in at a provider: who gets in, and that nobody comes back in somebody else's place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from stepwell.errors import InvalidInput
from stepwell.settings import Settings
from tests.surfaces.identity import CLIENT_ID, EMAIL, Browser, Identity, provider
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio

BACK = "/login/oidc/callback"


@pytest.fixture
async def identity() -> AsyncIterator[Identity]:
    async with provider() as found:
        yield found


@pytest.fixture
async def server(store_url: str, identity: Identity) -> AsyncIterator[Served]:
    async with served(
        store_url, worker=False, hosts=["steps.example"], proxies=["127.0.0.0/8"],
        settings=identity.settings,
    ) as found:  # fmt: skip
        identity.redirect_uris.append(found.url + BACK)
        await found.add_token(EMAIL, found.host.first_id, "member")
        yield found


@pytest.fixture
async def browser(server: Served) -> AsyncIterator[Browser]:
    async with Browser(server.url) as found:
        yield found


def problem(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_a_browser_is_logged_in_by_the_provider(browser: Browser, server: Served) -> None:
    answer = await browser.log_in()
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    session, journey = answer.headers.get_list("set-cookie")
    assert session.startswith("stepwell_session=")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(session.split("; "))
    assert journey.startswith("stepwell_oidc=; Path=/login/oidc; Max-Age=0")
    home = await browser.http.get("/")
    assert (home.status_code, EMAIL in home.text) == (200, True)
    assert (await browser.http.get("/api/runs")).status_code == 200
    out = await browser.http.post("/api/logout", headers={"origin": server.url})
    assert out.status_code == 204
    assert (await browser.http.get("/api/runs")).status_code == 401


async def test_the_way_there_says_what_the_provider_has_to_know(
    browser: Browser, server: Served, identity: Identity
) -> None:
    first, second = [await browser.http.get("/login/oidc") for _ in range(2)]
    asked = parse_qs(urlsplit(first.headers["location"]).query)
    assert first.headers["location"].startswith(f"{identity.web.url}/authorize?tenant=1&")
    assert {name: asked.pop(name) for name in list(asked)[:5]} == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": [CLIENT_ID],
        "redirect_uri": [server.url + BACK],
        "scope": ["openid email"],
    }
    assert asked.keys() == {"state", "nonce", "code_challenge", "code_challenge_method"}
    assert all(len(asked[name][0]) == 43 for name in ("state", "nonce", "code_challenge"))
    again = parse_qs(urlsplit(second.headers["location"]).query)
    assert all(asked[name] != again[name] for name in ("state", "nonce", "code_challenge"))
    kept = first.headers["set-cookie"].split("; ")[1:]
    assert set(kept) == {"Path=/login/oidc", "Max-Age=600", "HttpOnly", "SameSite=Lax"}


async def test_behind_a_proxy_with_tls_people_are_sent_back_to_its_name(browser: Browser) -> None:
    headers = {"host": "steps.example", "x-forwarded-proto": "https"}
    answer = await browser.http.get("/login/oidc", headers=headers)
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    assert asked["redirect_uri"] == [f"https://steps.example{BACK}"]
    assert answer.headers["set-cookie"].endswith("; Secure")


async def test_no_host_leads_people_elsewhere(browser: Browser) -> None:
    for host in (
        "evil.example", "localhost:1@evil.example", "127.0.0.1:80/x", "::1%@evil.example:80",
        "[::1%25@evil.example]", "localhost:", "localhost:123456",
    ):  # fmt: skip
        answer = await browser.http.get("/login/oidc", headers={"host": host})
        assert problem(answer) == (400, "host_unknown"), host


async def test_capitals_in_an_address_make_no_difference(
    browser: Browser, identity: Identity
) -> None:
    identity.claims["email"] = "Ada@Example.COM"
    assert (await browser.log_in()).status_code == 303


async def test_nobody_else_gets_in_and_nobody_is_made(
    browser: Browser, server: Served, identity: Identity
) -> None:
    access = server.host.first.store.access
    await server.add_token("kay@example.com", server.host.first_id, "member")
    await server.add_token("gone@example.com", server.host.first_id, "member")
    gone = await access.user_named("gone@example.com")
    assert gone is not None
    await access.remove_member(server.host.first_id, gone.id, 1)
    strangers = (
        "bob@example.com",  # nobody has made them
        "gone@example.com",  # somebody has taken them out
        "\uff41da@example.com",  # looks like ada
        "\u212aay@example.com",  # becomes kay in small letters
        "two words@example.com",
    )
    for email in strangers:
        identity.claims["email"] = email
        answer = await browser.log_in()
        assert problem(answer) == (403, "permission_denied")
        assert "Ask an owner" in answer.json()["detail"]
        assert email not in answer.text
        assert "stepwell_session" not in answer.headers["set-cookie"]
    assert await access.user_named("bob@example.com") is None
    assert (await browser.http.get("/")).status_code == 401


async def test_whom_the_provider_does_not_vouch_for_gets_not_in(
    browser: Browser, server: Served, identity: Identity
) -> None:
    for claims in (
        {"email_verified": False}, {"email_verified": None}, {"email_verified": "true"},
        {"email_verified": 1}, {"email": None}, {"email": ""}, {"email": "owner-1"},
    ):  # fmt: skip
        identity.claims = claims
        answer = await browser.log_in()
        assert problem(answer) == (403, "permission_denied"), claims
        assert "email_verified" in answer.json()["detail"]


async def test_a_login_that_another_browser_began_is_refused(
    browser: Browser, server: Served, identity: Identity
) -> None:
    theirs = await browser.back()
    async with Browser(server.url) as other:
        # Led here by somebody's link: without a journey, or on one of its own.
        assert problem(await other.http.get(theirs)) == (401, "unauthenticated")
        await other.back()
        refused = await other.http.get(theirs)
        assert problem(refused) == (401, "unauthenticated")
        assert refused.headers["set-cookie"].startswith("stepwell_oidc=; ")
        assert "stepwell_oidc" not in other.http.cookies
    assert identity.asked("/token") == 0
    assert (await browser.http.get(theirs)).status_code == 303


@pytest.mark.parametrize("state", ["", "wrong", "\u00e9", "%ff", "x" * 43])
async def test_a_state_that_was_not_given_is_refused(
    browser: Browser, identity: Identity, state: str
) -> None:
    await browser.back()
    answer = await browser.http.get(f"{BACK}?code=x&state={state}")
    assert problem(answer) == (401, "unauthenticated")
    assert identity.asked("/token") == 0


async def test_a_journey_that_says_nothing_is_none(browser: Browser, identity: Identity) -> None:
    for kept in ("", "..", "a.b.c", "x" * 131):
        headers = {"cookie": f"stepwell_oidc={kept}"}
        answer = await browser.http.get(f"{BACK}?code=x&state=", headers=headers)
        assert problem(answer) == (401, "unauthenticated")
    assert identity.asked("/token") == 0


async def test_a_login_cannot_be_repeated(browser: Browser, identity: Identity) -> None:
    url = await browser.back()
    journey = browser.http.cookies["stepwell_oidc"]
    assert (await browser.http.get(url)).status_code == 303
    assert problem(await browser.http.get(url)) == (401, "unauthenticated")
    assert identity.asked("/token") == 1
    # Whoever has kept the journey, too, is refused by the provider.
    again = await browser.http.get(url, headers={"cookie": f"stepwell_oidc={journey}"})
    assert problem(again) == (401, "unauthenticated")
    assert identity.asked("/token") == 2


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ("access_denied", 401, "unauthenticated"),
        ("invalid_scope", 401, "unauthenticated"),
        ("<script>", 401, "unauthenticated"),
        ("server_error", 503, "provider_unavailable"),
        ("temporarily_unavailable", 503, "provider_unavailable"),
    ],
)
async def test_what_the_provider_refuses_is_a_problem(
    browser: Browser, identity: Identity, error: str, status: int, code: str
) -> None:
    state = parse_qs(urlsplit(await browser.back()).query)["state"][0]
    answer = await browser.http.get(
        BACK, params={"error": error, "error_description": "their words", "state": state}
    )
    assert problem(answer) == (status, code)
    assert "their words" not in answer.text
    assert error not in answer.text
    assert "stepwell_oidc" not in browser.http.cookies
    assert identity.asked("/token") == 0


async def test_coming_back_without_a_code_is_a_problem(browser: Browser) -> None:
    state = parse_qs(urlsplit(await browser.back()).query)["state"][0]
    answer = await browser.http.get(BACK, params={"state": state})
    assert problem(answer) == (401, "unauthenticated")


async def test_attempts_are_limited_as_those_of_other_logins(
    browser: Browser, server: Served, identity: Identity
) -> None:
    for _ in range(30):
        assert (await browser.http.get(BACK)).status_code == 401
    answer = await browser.log_in()
    assert problem(answer) == (429, "rate_limited")
    assert "retry-after" in answer.headers
    assert identity.asked("/token") == 0
    given = {"name": "ada", "password": "a password"}
    assert (await server.http.post("/api/login", json=given)).status_code == 429


async def test_strangers_are_offered_the_provider(browser: Browser, identity: Identity) -> None:
    page = await browser.http.get("/")
    name = identity.web.url.removeprefix("http://")
    assert f'<a href="/login/oidc">Log in with {name}</a>' in page.text


async def test_where_there_is_no_provider_nothing_leads_to_one(store_url: str) -> None:
    async with served(store_url, worker=False) as server:
        assert "oidc" not in (await server.http.get("/")).text
        for path in ("/login/oidc", BACK):
            assert problem(await server.http.get(path)) == (404, "route_not_found")


ISSUER, ID, SECRET = (
    "STEPWELL_OIDC_ISSUER",
    "STEPWELL_OIDC_CLIENT_ID",
    "STEPWELL_OIDC_CLIENT_SECRET",
)


@pytest.mark.parametrize("missing", [ISSUER, ID, SECRET])
def test_settings_of_a_provider_are_given_all_or_not_at_all(missing: str) -> None:
    whole = {ISSUER: "https://id.example", ID: "stepwell", SECRET: "s3cret"}
    assert Settings.read(whole).oidc_client_id == "stepwell"
    assert Settings.read({}).oidc_issuer is None
    with pytest.raises(InvalidInput, match=f"without {missing}: set all three") as refused:
        Settings.read({**whole, missing: ""})
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("issuer", "taken"),
    [
        ("https://id.example/realms/main", True),
        ("https://id.example/", True),
        ("http://localhost:8080", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://[::1]:8080", True),
        ("http://id.example", False),
        ("http://localhost.id.example", False),
        ("http://127.0.0.1@id.example", False),
        ("https://id.example?tenant=1", False),
        ("https://id.example#main", False),
        ("https://id.example/\r\nx", False),
        ("https://", False),
        ("id.example", False),
    ],
)
def test_an_issuer_is_one_that_nobody_can_listen_to(issuer: str, taken: bool) -> None:
    given = {ISSUER: issuer, ID: "stepwell", SECRET: "s3cret"}
    if taken:
        assert Settings.read(given).oidc_issuer == issuer
    else:
        with pytest.raises(InvalidInput, match=f"{ISSUER} must be a URL with https://"):
            Settings.read(given)


async def test_without_the_extra_a_server_says_what_is_missing(
    store_url: str, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("stepwell.api.oidc.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(InvalidInput, match=r"extra `oidc`.*pip install '\.\[oidc\]'"):
        async with served(store_url, worker=False, settings=identity.settings):
            pass


def test_a_server_without_a_provider_does_not_load_the_library(python: str) -> None:
    look = "import sys, stepwell.api.app, stepwell.api.server; print('joserfc' in sys.modules)"
    done = subprocess.run([python, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

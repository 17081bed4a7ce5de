"""What a provider may say: tokens that must not be believed, and providers in trouble."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc.jwk import generate_key

from stepwell.api.oidc import provider as module
from stepwell.api.oidc.journey import Journey
from stepwell.api.oidc.provider import Provider
from stepwell.errors import ProviderUnavailable
from stepwell.settings import Settings
from stepwell.testing.clock import FakeClock
from tests.nodes.web import reply
from tests.surfaces.identity import (
    CLIENT_ID,
    CLIENT_SECRET,
    EMAIL,
    Browser,
    Identity,
    compact,
    key_for,
    provider,
)
from tests.surfaces.serving import served

pytestmark = pytest.mark.anyio

DISCOVERY = "/.well-known/openid-configuration"


@pytest.fixture
async def identity() -> AsyncIterator[Identity]:
    async with provider() as found:
        yield found


@asynccontextmanager
async def opened(folder: Path, identity: Identity) -> AsyncIterator[Browser]:
    """A browser before a server that has this provider."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            served(f"sqlite:///{folder}/stepwell.db", worker=False, settings=identity.settings)
        )
        identity.redirect_uris.append(f"{server.url}/login/oidc/callback")
        await server.add_token(EMAIL, server.host.first_id, "member")
        yield await stack.enter_async_context(Browser(server.url))


@pytest.fixture
async def browser(tmp_path: Path, identity: Identity) -> AsyncIterator[Browser]:
    async with opened(tmp_path, identity) as found:
        yield found


def is_refused(answer: httpx2.Response) -> bool:
    assert "stepwell_session" not in answer.headers["set-cookie"]
    return (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


def is_away(answer: httpx2.Response) -> bool:
    return (answer.status_code, answer.json()["code"]) == (503, "provider_unavailable")


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA", "Ed25519"])
async def test_signatures_of_every_kind_are_verified(tmp_path: Path, algorithm: str) -> None:
    async with provider(algorithm=algorithm) as identity, opened(tmp_path, identity) as browser:
        assert (await browser.log_in()).status_code == 303
        identity.token = lambda claims: tampered(identity.signed(claims))
        assert is_refused(await browser.log_in())


def tampered(token: str) -> str:
    """The token with another payload under the same signature."""
    head, payload, signature = token.split(".")
    return f"{head}.{payload[:-4]}{'AAAA' if payload[-4:] != 'AAAA' else 'BBBB'}.{signature}"


NOW = time.time()


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "another"}, "another login"),
        ({"nonce": None}, "lacks something"),
        ({"aud": "somebody-else"}, "somebody else"),
        ({"aud": []}, "somebody else"),
        ({"aud": None}, "lacks something"),
        ({"aud": [CLIENT_ID, "other"]}, "for several"),
        ({"aud": [CLIENT_ID, "other"], "azp": "other"}, "somebody else"),
        ({"azp": "other"}, "somebody else"),
        ({"iss": "https://id.example"}, "another issuer"),
        ({"iss": None}, "lacks something"),
        ({"exp": NOW - 100}, "expired"),
        ({"exp": None}, "lacks something"),
        ({"exp": "tomorrow"}, "lacks something"),
        ({"iat": NOW + 1_000_000}, "future"),
        ({"iat": None}, "lacks something"),
        ({"sub": None}, "lacks something"),
    ],
)
async def test_a_token_that_was_not_made_for_this_login_is_refused(
    browser: Browser, identity: Identity, claims: dict[str, Any], why: str
) -> None:
    identity.claims = claims
    answer = await browser.log_in()
    assert is_refused(answer)
    assert why in answer.json()["detail"]


async def test_a_token_for_several_says_who_has_asked_for_it(
    browser: Browser, identity: Identity
) -> None:
    identity.claims = {"aud": ["other", CLIENT_ID], "azp": CLIENT_ID}
    assert (await browser.log_in()).status_code == 303


def unsigned(identity: Identity, claims: Any) -> str:
    return compact({"alg": "none"}, claims, None)


def by_the_public_key(identity: Identity, claims: Any) -> str:
    public = identity.key.as_pem(private=False)
    return compact({"alg": "HS256", "kid": identity.kid}, claims, public)


def by_the_client_secret(identity: Identity, claims: Any) -> str:
    return compact({"alg": "HS256", "kid": identity.kid}, claims, CLIENT_SECRET.encode())


def by_an_unknown_key(identity: Identity, claims: Any) -> str:
    return compact({"alg": "ES256", "kid": "unknown"}, claims, key_for("ES256", "unknown"))


def by_an_unknown_key_of_a_known_name(identity: Identity, claims: Any) -> str:
    return compact({"alg": "ES256", "kid": identity.kid}, claims, key_for("ES256", "unknown"))


def by_an_unknown_key_without_a_name(identity: Identity, claims: Any) -> str:
    return compact({"alg": "ES256"}, claims, key_for("ES256", "unknown"))


def by_a_key_of_another_name(identity: Identity, claims: Any) -> str:
    return compact({"alg": "ES256", "kid": "unknown"}, claims, identity.key)


def by_a_key_of_its_own(identity: Identity, claims: Any) -> str:
    key = key_for("ES256", "unknown")
    return compact({"alg": "ES256", "jwk": key.as_dict(private=False)}, claims, key)


def by_an_algorithm_of_no_fit(identity: Identity, claims: Any) -> str:
    return compact({"alg": "RS256", "kid": identity.kid}, claims, key_for("RS256", identity.kid))


def critical(identity: Identity, claims: Any) -> str:
    header = {"alg": "ES256", "kid": identity.kid, "crit": ["odd"], "odd": 1}
    return compact(header, claims, identity.key)


def without_a_signature(identity: Identity, claims: Any) -> str:
    return identity.signed(claims).rpartition(".")[0] + "."


def in_two_parts(identity: Identity, claims: Any) -> str:
    return identity.signed(claims).rpartition(".")[0]


def no_token(identity: Identity, claims: Any) -> str:
    return "\u00e9.\u00e9.\u00e9"


def no_object(identity: Identity, claims: Any) -> str:
    return compact({"alg": "ES256", "kid": identity.kid}, ["alg"], identity.key)


@pytest.mark.parametrize(
    "made",
    [
        unsigned, by_the_public_key, by_the_client_secret, by_an_unknown_key,
        by_an_unknown_key_of_a_known_name, by_an_unknown_key_without_a_name, by_a_key_of_its_own,
        by_a_key_of_another_name, by_an_algorithm_of_no_fit, critical, without_a_signature,
        in_two_parts, no_token, no_object,
    ],
)  # fmt: skip
async def test_a_token_that_the_provider_has_not_signed_is_refused(
    browser: Browser, identity: Identity, made: Callable[[Identity, Any], str]
) -> None:
    identity.token = lambda claims: made(identity, claims)
    assert is_refused(await browser.log_in())
    identity.token = None
    assert (await browser.log_in()).status_code == 303


async def test_a_key_that_is_new_is_found(browser: Browser, identity: Identity) -> None:
    assert (await browser.log_in()).status_code == 303
    identity.kid = "second"
    assert (await browser.log_in()).status_code == 303
    assert identity.asked("/keys") == 2
    identity.token = lambda claims: compact(
        {"alg": "ES256", "kid": "first"}, claims, key_for("ES256", "first")
    )
    assert is_refused(await browser.log_in()), "the old key is the provider's no more"


async def test_a_key_without_a_name_is_found(browser: Browser, identity: Identity) -> None:
    identity.token = lambda claims: compact({"alg": "ES256", "more": 1}, claims, identity.key)
    assert (await browser.log_in()).status_code == 303


async def test_keys_for_other_uses_verify_nothing(browser: Browser, identity: Identity) -> None:
    public = identity.key.as_dict(private=False)
    for change in (
        {"use": "enc"},
        {"alg": "ES384"},
        {"x": "?"},
        {"x": 1},
        {"kty": "oct", "k": "x"},
    ):
        identity.said["/keys"] = reply(body={"keys": [{**public, **change}]})
        assert is_refused(await browser.log_in()), change


@pytest.mark.filterwarnings("ignore:Key size should be")
async def test_a_key_that_is_too_short_verifies_nothing(tmp_path: Path) -> None:
    short = generate_key("RSA", 1024, {"kid": "short"})
    async with provider() as identity, opened(tmp_path, identity) as browser:
        identity.said["/keys"] = reply(body={"keys": [short.as_dict(private=False)]})
        identity.token = lambda claims: compact({"alg": "RS256", "kid": "short"}, claims, short)
        assert is_refused(await browser.log_in())


GARBAGE = {
    "silence": None,
    "nothing": b"",
    "no HTTP": b"hello\r\n\r\n",
    "an error": reply(500, {"error": "their words"}),
    "a redirect": reply(302, location="/elsewhere"),
    "no JSON": reply(body=b"<html>their words"),
    "no object": reply(body=[1]),
    "other fields": reply(body={"their": "words"}),
    "other kinds": reply(body={"issuer": 1, "keys": 1, "id_token": 1}),
    "no text": reply(body=b'{"keys": "\xff"}'),
    "depth": reply(body=b"[" * 100_000),
    "too much": reply(body=b'{"x": "' + b"y" * 300_000 + b'"}'),
    "no zip": reply(body=b"zip", content_encoding="gzip"),
}


@pytest.mark.parametrize("path", [DISCOVERY, "/token", "/keys"])
@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE.keys())
async def test_a_provider_that_talks_nonsense_is_a_problem(
    browser: Browser, identity: Identity, monkeypatch: pytest.MonkeyPatch,
    path: str, said: bytes | None,
) -> None:  # fmt: skip
    if said is None:
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)
    identity.said[path] = said
    answer = await (browser.http.get("/login/oidc") if path == DISCOVERY else browser.log_in())
    assert is_away(answer), answer.text
    assert "their words" not in answer.text
    assert identity.asked("/elsewhere") == 0


async def test_a_provider_that_does_not_come_to_an_end_is_a_problem(
    browser: Browser, identity: Identity
) -> None:
    whole = reply(body={"keys": [identity.key.as_dict(private=False)]}).partition(b"\r\n\r\n")[2]
    identity.said["/keys"] = reply(body=whole + b" " * 300_000)
    assert is_away(await browser.log_in())


async def test_a_provider_that_is_away_is_a_problem(tmp_path: Path) -> None:
    async with provider() as identity:
        pass
    async with opened(tmp_path, identity) as browser:
        for _ in range(2):
            answer = await browser.http.get("/login/oidc")
            assert is_away(answer)


async def test_a_provider_that_goes_away_meanwhile_is_a_problem(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(provider())
        async with opened(tmp_path, identity) as browser:
            url = await browser.back()
            await stack.aclose()
            assert is_away(await browser.http.get(url))


@pytest.mark.parametrize(
    "description",
    [
        {"issuer": "https://id.example"},
        {"issuer": None},
        {"token_endpoint": "http://id.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "https://id.example/\r\nset-cookie: x=y"},
        {"authorization_endpoint": "https://id.example/#x"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_provider_that_describes_another_or_unsafe_ways_is_a_problem(
    browser: Browser, identity: Identity, description: dict[str, Any]
) -> None:
    identity.description = description
    answer = await browser.http.get("/login/oidc")
    assert is_away(answer)
    assert "set-cookie" not in answer.headers
    assert "id.example" not in answer.text


async def test_a_slash_more_is_another_issuer(identity: Identity) -> None:
    issuer = f"{identity.web.url}/"
    described = Provider(Settings(**{**identity.settings, "oidc_issuer": issuer}), FakeClock())
    with pytest.raises(ProviderUnavailable, match="with or without a slash"):
        await described.way_in(Journey.begin(), "http://localhost/back")


async def test_a_secret_that_the_provider_does_not_know_is_a_problem(
    tmp_path: Path, identity: Identity
) -> None:
    settings = {**identity.settings, "oidc_client_secret": "old"}
    url = f"sqlite:///{tmp_path}/stepwell.db"
    async with served(url, worker=False, settings=settings) as server, Browser(server.url) as found:
        identity.redirect_uris.append(f"{server.url}/login/oidc/callback")
        answer = await found.log_in()
        assert is_away(answer)
        assert "STEPWELL_OIDC_CLIENT_SECRET" in answer.json()["detail"]


async def test_nothing_that_is_secret_is_logged_or_said(
    browser: Browser, identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    said = []
    for token in (None, "their.secret.token"):
        identity.token = None if token is None else lambda _: "their.secret.token"
        url = await browser.back()
        said.append(url.partition("code=")[2].partition("&")[0])
        said.append((await browser.http.get(url)).text)
    identity.said["/token"] = reply(500, {"error": "their secret"})
    said.append((await browser.log_in()).text)
    code, _, *answers = said
    ours = "\n".join(each.getMessage() for each in caplog.records if "stepwell" in each.name)
    assert "provider answers with an error" in ours
    for secret in (code, CLIENT_SECRET, "their", EMAIL):
        assert secret not in ours
    for secret in (CLIENT_SECRET, "their", EMAIL):
        assert secret not in "".join(answers)


async def test_what_a_provider_says_of_itself_is_kept_for_an_hour(
    identity: Identity, clock: FakeClock
) -> None:
    asked = Provider(Settings(**identity.settings), clock)
    for _ in range(3):
        await asked.way_in(Journey.begin(), "http://localhost/back")
    assert identity.asked(DISCOVERY) == 1
    clock.advance("1h")
    await asked.way_in(Journey.begin(), "http://localhost/back")
    assert identity.asked(DISCOVERY) == 2


async def test_a_provider_in_trouble_is_left_alone_for_a_moment(
    identity: Identity, clock: FakeClock
) -> None:
    asked = Provider(Settings(**identity.settings), clock)
    identity.said[DISCOVERY] = reply(500)
    for _ in range(3):
        with pytest.raises(ProviderUnavailable):
            await asked.way_in(Journey.begin(), "http://localhost/back")
    assert identity.asked(DISCOVERY) == 1
    del identity.said[DISCOVERY]
    clock.advance(5)
    assert await asked.way_in(Journey.begin(), "http://localhost/back")

"""A small OpenID provider on loopback, which signs with real keys and can be made to misbehave."""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import httpx2
import msgspec
from joserfc.jwk import Key, generate_key
from joserfc.jws import JWSRegistry

from tests.nodes.web import Asked, Web, reply, serving

EMAIL = "ada@example.com"
# Both have what has to be quoted in a header.
CLIENT_ID, CLIENT_SECRET = "stepwell:test", "a+secret/of%41 client"
SHAPES: dict[str, tuple[Any, Any]] = {
    "RS": ("RSA", 2048), "PS": ("RSA", 2048), "ES": ("EC", "P-256"), "Ed": ("OKP", "Ed25519"),
}  # fmt: skip


@cache
def key_for(algorithm: str, kid: str) -> Key:
    kind, size = SHAPES[algorithm[:2]]
    return generate_key(kind, size, {"kid": kid, "use": "sig"})


def compact(header: dict[str, Any], claims: Any, key: Any) -> str:
    """A token signed with whatever algorithm the header names, `none` too; bytes are for HS256."""
    parts = [_base64(msgspec.json.encode(each)) for each in (header, claims)]
    said = ".".join(parts).encode()
    if isinstance(key, bytes):
        signature = hmac.digest(key, said, "sha256")
    else:
        signature = JWSRegistry.algorithms[header["alg"]].sign(said, key)
    return ".".join([*parts, _base64(signature)])


@dataclass
class Identity:
    """A provider, and what it does wrong, if anything."""

    web: Web
    algorithm: str = "ES256"
    kid: str = "first"
    # Where it sends people back to, whatever they ask for: nowhere else.
    redirect_uris: list[str] = field(default_factory=list)
    # What its ID tokens say in place of what they should; None: nothing.
    claims: dict[str, Any] = field(default_factory=dict)
    # Makes its tokens another way, of what they would say.
    token: Callable[[dict[str, Any]], str] | None = None
    # What it answers to a path in place of what it should: None is silence.
    said: dict[str, bytes | None] = field(default_factory=dict)
    # What it says of itself in place of what is true.
    description: dict[str, Any] = field(default_factory=dict)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "oidc_issuer": self.web.url,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": CLIENT_SECRET,
        }

    @property
    def key(self) -> Key:
        return key_for(self.algorithm, self.kid)

    def asked(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(urlsplit(each.path).path == path for each in self.web.asked)

    def answer(self, asked: Asked) -> bytes | None:
        path, query = urlsplit(asked.path).path, dict(parse_qsl(urlsplit(asked.path).query))
        if path in self.said:
            return self.said[path]
        if path == "/.well-known/openid-configuration":
            return reply(body=self._described())
        if path == "/keys":
            return reply(body={"keys": [{"kty": "new"}, self.key.as_dict(private=False)]})
        if path == "/authorize":
            return self._authorized(query)
        if path == "/token":
            return self._redeemed(asked)
        return reply(404)

    def _described(self) -> dict[str, Any]:
        url = self.web.url
        return {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize?tenant=1",
            "token_endpoint": f"{url}/token",
            "jwks_uri": f"{url}/keys",
            **self.description,
        }

    def _authorized(self, query: dict[str, str]) -> bytes:
        """Somebody has logged in here, and is sent back."""
        fit = (
            query["client_id"] == CLIENT_ID
            and query["redirect_uri"] in self.redirect_uris
            and query["response_type"] == "code"
            and query["code_challenge_method"] == "S256"
            and set(query["scope"].split()) == {"openid", "email"}
        )
        if not fit:
            return reply(400)
        code = f"code-{len(self._codes)}-{query['state'][:8]}"
        self._codes[code] = query
        back = urlencode({"code": code, "state": query["state"]})
        return reply(303, location=f"{query['redirect_uri']}?{back}")

    def _redeemed(self, asked: Asked) -> bytes:
        scheme, _, given = asked.headers["authorization"].partition(" ")
        name, _, secret = b64decode(given).decode().partition(":")
        who = scheme, unquote_plus(name), unquote_plus(secret)
        if who != ("Basic", CLIENT_ID, CLIENT_SECRET):
            return reply(401, {"error": "invalid_client"})
        form = dict(parse_qsl(asked.body.decode()))
        begun = self._codes.pop(form["code"], None)
        challenge = _base64(hashlib.sha256(form["code_verifier"].encode()).digest())
        fit = (
            begun is not None
            and form["grant_type"] == "authorization_code"
            and form["redirect_uri"] == begun["redirect_uri"]
            and challenge == begun["code_challenge"]
        )
        if begun is None or not fit:
            return reply(400, {"error": "invalid_grant"})
        now = time.time()
        says = {
            "iss": self.web.url, "sub": "u-1", "aud": CLIENT_ID, "iat": now, "exp": now + 300,
            "nonce": begun["nonce"], "email": EMAIL, "email_verified": True, **self.claims,
        }  # fmt: skip
        says = {name: value for name, value in says.items() if value is not None}
        token = (self.token or self.signed)(says)
        return reply(body={"access_token": "x", "token_type": "Bearer", "id_token": token})

    def signed(self, claims: dict[str, Any]) -> str:
        return compact({"alg": self.algorithm, "kid": self.kid}, claims, self.key)


@asynccontextmanager
async def provider(**fields: Any) -> AsyncIterator[Identity]:
    made: list[Identity] = []
    async with serving(lambda asked: made[0].answer(asked)) as web:
        made.append(Identity(web, **fields))
        yield made[0]


class Browser:
    """Somebody's browser, which goes where it is led, and keeps what it is told to."""

    def __init__(self, server_url: str) -> None:
        self.http = httpx2.AsyncClient(base_url=server_url, timeout=60)

    async def __aenter__(self) -> Browser:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def back(self) -> str:
        """Go to the provider, log in there, and get as far as the URL that leads back."""
        begun = await self.http.get("/login/oidc")
        assert begun.status_code == 303, begun.text
        sent = await self.http.get(begun.headers["location"])
        assert sent.status_code == 303, sent.text
        return str(sent.headers["location"])

    async def log_in(self) -> httpx2.Response:
        """Log in; what the server says in the end."""
        return await self.http.get(await self.back())


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()

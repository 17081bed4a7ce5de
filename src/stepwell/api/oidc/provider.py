"""The provider: what it says of itself, and whom it sends back.

Errors say nothing of what the provider has answered: that may hold what nobody should read.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlencode

import msgspec
from joserfc.jwk import Key

from stepwell.api.oidc.id_token import email_in, public_keys, signed
from stepwell.api.oidc.journey import Journey
from stepwell.api.oidc.kept import Kept
from stepwell.errors import AddressRefused, ProviderUnavailable, RequestFailed, Unauthenticated
from stepwell.kernel.clock import SECOND, Clock
from stepwell.kernel.urls import is_confidential
from stepwell.nodes.addresses import Guard
from stepwell.nodes.outgoing import Answer, Outgoing, exchange
from stepwell.settings import Settings

DISCOVERY = "/.well-known/openid-configuration"
SCOPE = "openid email"
# For each request to the provider, and each of its answers.
PATIENCE_SECONDS = 10.0
MAX_BYTES = 256 * 1024

T = TypeVar("T")


class _Description(msgspec.Struct):
    """What a provider says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


class _Tokens(msgspec.Struct):
    """What a code is redeemed for."""

    id_token: str


class Provider:
    """Tells who somebody is, for a server that it knows as its client."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        issuer, client_id = settings.oidc_issuer, settings.oidc_client_id
        secret = settings.oidc_client_secret
        assert issuer is not None
        assert client_id is not None
        assert secret is not None
        self._issuer, self._client_id, self._clock = issuer, client_id, clock
        # Both quoted, as RFC 6749 (2.3.1) has it: either may have a colon in it.
        credentials = f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()
        self._authorization = f"Basic {b64encode(credentials).decode()}"
        self._description = Kept(self._read_description, clock)
        self._keys = Kept(self._read_keys, clock)

    async def way_in(self, journey: Journey, redirect_uri: str) -> str:
        """Where a browser has to go to begin a journey."""
        endpoint = (await self._description.get()).authorization_endpoint
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": SCOPE,
            "state": journey.state,
            "nonce": journey.nonce,
            "code_challenge": journey.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def email(self, code: str, journey: Journey, redirect_uri: str) -> str:
        """The e-mail address of who came back with this code, which the provider vouches for."""
        payload = await self._signed(await self._redeemed(code, journey, redirect_uri))
        return email_in(
            payload, issuer=self._issuer, client_id=self._client_id, nonce=journey.nonce,
            now=self._clock.now() / SECOND,
        )  # fmt: skip

    async def _redeemed(self, code: str, journey: Journey, redirect_uri: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": journey.verifier,
        }
        endpoint = (await self._description.get()).token_endpoint
        headers = {
            "accept": "application/json",
            "authorization": self._authorization,
            "content-type": "application/x-www-form-urlencoded",
        }
        answer = await _asked(Outgoing("POST", endpoint, headers, urlencode(form).encode(), ""))
        if answer.status == 400:
            raise Unauthenticated("The provider says that this login is over. Log in again.")
        if answer.status == 401:
            raise ProviderUnavailable(
                "The provider does not accept STEPWELL_OIDC_CLIENT_ID with "
                "STEPWELL_OIDC_CLIENT_SECRET, sent as client_secret_basic."
            )
        return _understood(answer, _Tokens).id_token

    async def _signed(self, token: str) -> bytes:
        """What a token says that the provider has signed, perhaps with a key that is new."""
        for anew in (False, True):
            payload = signed(token, await self._keys.get(anew))
            if payload is not None:
                return payload
        raise Unauthenticated("The ID token is not signed with a key of the provider's.")

    async def _read_description(self) -> _Description:
        found = await _read(self._issuer.rstrip("/") + DISCOVERY, _Description)
        if found.issuer != self._issuer:
            raise ProviderUnavailable(
                "The provider calls itself otherwise than STEPWELL_OIDC_ISSUER does, which must be "
                "exactly its `issuer`, with or without a slash at its end."
            )
        for each in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            secret = each.startswith("https://") or self._issuer.startswith("http://")
            if not secret or not is_confidential(each):
                raise ProviderUnavailable("An endpoint of the provider is no URL with https://.")
        return found

    async def _read_keys(self) -> list[Key]:
        found = await _read((await self._description.get()).jwks_uri, _KeySet)
        return public_keys(found.keys)


async def _read(url: str, kind: type[T]) -> T:
    headers = {"accept": "application/json"}
    return _understood(await _asked(Outgoing("GET", url, headers, None, "")), kind)


async def _asked(request: Outgoing) -> Answer:
    # The operator has named the provider, which may well be in a private network.
    guard = Guard(allow_private=True)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            # No redirect is followed: what is sent along is for the provider alone.
            return await exchange(request, guard, max_bytes=MAX_BYTES, redirects=0)
    except (TimeoutError, RequestFailed, AddressRefused):
        raise ProviderUnavailable("The provider does not answer. Try again later.") from None


def _understood(answer: Answer, kind: type[T]) -> T:
    if answer.status != 200 or not answer.whole:
        raise ProviderUnavailable("The provider answers with an error, or too much.")
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProviderUnavailable("The provider's answer cannot be understood.") from None

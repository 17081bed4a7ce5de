"""ID tokens: whether the provider has signed one, and whom it vouches for in it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from joserfc import jws
from joserfc.errors import SecurityWarning, UnsupportedAlgorithmError
from joserfc.jwa import JWSAlgModel
from joserfc.jwk import Key, import_key

from stepwell.errors import PermissionDenied, Unauthenticated
from stepwell.kernel.access import fits, hash_of

# Signatures that only the provider can make: a public key verifies them. None of HMAC, for which
# the public key would do as a secret, and not `none`.
ALGORITHMS = frozenset({
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
    "EdDSA", "Ed25519",
})  # fmt: skip
KEY_TYPES = ("RSA", "EC", "OKP")
# How far the provider's clock may be from ours.
LEEWAY_SECONDS = 60


class _Signatures(jws.JWSRegistry):
    """What the library may verify; it would warn of EdDSA, which is Ed25519's older name."""

    def get_alg(self, name: str) -> JWSAlgModel:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError
        return self.algorithms[name]


# Headers that are unknown are ignored, as RFC 7515 has it, but for those that are critical.
_signatures = _Signatures(strict_check_header=False)


class _Claims(msgspec.Struct):
    """What an ID token says, as far as it matters here."""

    iss: str
    sub: str
    aud: str | list[str]
    exp: float
    iat: float
    nonce: str
    azp: str | None = None
    email: str | None = None
    email_verified: Any = None


def public_keys(found: Iterable[dict[str, Any]]) -> list[Key]:
    """The public keys of a set; it may have others, and of unknown kinds."""
    keys = []
    for each in found:
        if each.get("kty") not in KEY_TYPES:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error", SecurityWarning)  # a key too short is none, either
            try:
                keys.append(import_key(each))
            except Exception:  # whatever the library makes of garbage
                continue
    return keys


def signed(token: str, keys: Sequence[Key]) -> bytes | None:
    """What a token says, if one of the keys has signed it."""
    try:
        found = jws.extract_compact(token.encode(), registry=_signatures)
        kid = found.headers().get("kid")
    except Exception:  # whatever the library makes of garbage: nobody has signed that
        return None
    for key in keys:
        if kid in (None, key.kid) and _fits(found, key):
            return found.payload
    return None


def _fits(found: jws.CompactSignature, key: Key) -> bool:
    try:
        return jws.validate_compact(found, key, registry=_signatures)
    except Exception:  # a key for another use or algorithm, or an algorithm that is not allowed
        return False


def email_in(payload: bytes, *, issuer: str, client_id: str, nonce: str, now: float) -> str:
    """The e-mail address that a signed token vouches for, if it was made for this login."""
    try:
        claims = msgspec.json.decode(payload, type=_Claims)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _unfit("lacks something, or cannot be understood") from None
    audience = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if claims.iss != issuer:
        raise _unfit("is of another issuer")
    if client_id not in audience or claims.azp not in (None, client_id):
        raise _unfit("is for somebody else than this server")
    if len(audience) > 1 and claims.azp is None:
        raise _unfit("is for several, and does not say which of them asked for it")
    if claims.exp <= now - LEEWAY_SECONDS:
        raise _unfit("has expired")
    if claims.iat > now + LEEWAY_SECONDS:
        raise _unfit("is from the future: compare the clocks of both servers")
    if not fits(claims.nonce, hash_of(nonce)):
        raise _unfit("was made for another login")
    if claims.email_verified is not True or "@" not in (claims.email or ""):
        raise PermissionDenied(
            "The provider does not vouch for an e-mail address of yours: its ID token must have "
            "`email`, and `email_verified` must be true. Ask whoever runs the provider."
        )
    return claims.email or ""


def _unfit(why: str) -> Unauthenticated:
    return Unauthenticated(f"The provider's ID token {why}. Log in again.")

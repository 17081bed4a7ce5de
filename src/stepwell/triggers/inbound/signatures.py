"""Signatures of webhooks: whether a request comes from somebody who knows the secret.

Always over the body as it came, before anything unpacked or parsed it, and in constant time. Each
preset says what a request claims (`Claim`): the signatures it carries, when it says it was made,
and how such a signature is made with a key. Whatever is not exactly right is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

from stepwell.errors import SignatureInvalid
from stepwell.kernel.clock import SECOND
from stepwell.kernel.names import show
from stepwell.triggers.inbound.headers import Headers

TOLERANCE_SECONDS = 300
# The current secret and the one before it.
MAX_SECRETS = 2
MAX_HEADER = 8192
# `details["reason"]` of a refusal.
Reason = Literal[
    "missing_header", "repeated_header", "malformed", "no_match", "too_old", "from_future",
    "no_secret", "bad_config",
]  # fmt: skip

_SECONDS = re.compile("[0-9]{1,12}")
_HMAC = re.compile(
    r"(?:(sha256|sha512)=)?(?:([0-9a-f]+)|([0-9A-F]+)|([0-9A-Za-z+/]+={0,2}))", re.ASCII
)
# Algorithms by how many characters their signatures have.
_IN_HEX = {64: "sha256", 128: "sha512"}
_IN_BASE64 = {44: "sha256", 88: "sha512"}


class Claim(NamedTuple):
    """What a request says of itself."""

    signatures: Sequence[str]
    # The signature that it should have, by key.
    expected: Callable[[bytes], str]
    # Seconds since the epoch, if it says so.
    made_at: int | None = None


Reader = Callable[["_Request"], Claim]


class Preset(NamedTuple):
    """One way of signing."""

    read: Reader
    # The header that has the signature.
    header: str
    # Whether a trigger may name another one.
    any_header: bool = False
    # Whether the whole request is believed, since the secret came with it; else what it signs.
    whole: bool = False
    key: Callable[[str], bytes] = str.encode


class _Request(NamedTuple):
    preset: str
    headers: Headers
    body: bytes
    header: str

    @property
    def signature(self) -> str:
        return self.one(self.header)

    def one(self, name: str) -> str:
        """The value of a header that must be there, once, in plain characters."""
        values = self.headers.all(name)
        if not values or not any(values):
            raise self.refused("missing_header", f"The header {name} is missing or empty.")
        if len(values) > 1:
            raise self.refused("repeated_header", f"The header {name} came more than once.")
        if len(values[0]) > MAX_HEADER or not (values[0].isascii() and values[0].isprintable()):
            raise self.refused(
                "malformed", f"The header {name} is too long, or has characters beyond ASCII."
            )
        return values[0]

    def seconds(self, text: str, where: str) -> int:
        if not _SECONDS.fullmatch(text):
            raise self.refused("malformed", f"The time in {where} is not a number of seconds.")
        return int(text)

    def refused(self, reason: Reason, message: str) -> SignatureInvalid:
        return refused(self.preset, reason, message)


def verify(
    preset: str, headers: Headers, body: bytes, secrets: Sequence[str], now: int, *,
    tolerance_seconds: float = TOLERANCE_SECONDS, header: str | None = None,
) -> None:  # fmt: skip
    """Raise SignatureInvalid unless the request is signed with one of the secrets, and is recent.

    `now` is in microseconds. `header` names where to look, for presets that leave it open.
    """
    way = _preset(preset, header)
    keys = _keys(preset, way, secrets)
    request = _Request(preset, headers, body, header or way.header)
    claim = way.read(request)
    if not _matches(claim, keys):
        raise request.refused(
            "no_match", "The signature does not match: another secret, or a changed request."
        )
    # Only what is genuine is told that it is late.
    if claim.made_at is not None:
        _check_time(request, claim.made_at, now, tolerance_seconds)


def only_body_counts(preset: str | None) -> bool:
    """Whether headers, query and method may have been changed by somebody who cannot sign."""
    return preset is not None and not PRESETS[preset].whole


def refused(preset: str, reason: Reason, message: str) -> SignatureInvalid:
    return SignatureInvalid(message, reason=reason, preset=preset)


def _preset(preset: str, header: str | None) -> Preset:
    way = PRESETS.get(preset)
    if way is None:
        known = ", ".join(PRESETS)
        raise refused(
            preset, "bad_config", f"There is no preset {show(preset)}. There are {known}."
        )
    if header is not None and not way.any_header:
        raise refused(preset, "bad_config", f"The preset {preset} has its own header.")
    if header is not None and not header.strip():
        raise refused(preset, "bad_config", "The name of the header is empty.")
    return way


def _keys(preset: str, way: Preset, secrets: Sequence[str]) -> list[bytes]:
    given: Sequence[object] = secrets
    if isinstance(secrets, str) or len(secrets) > MAX_SECRETS:
        raise refused(preset, "bad_config", f"There may be a list of up to {MAX_SECRETS} secrets.")
    if not given or not all(isinstance(each, str) and each.strip() for each in given):
        raise refused(preset, "no_secret", "There is no secret to check the signature with.")
    try:
        keys = [way.key(each) for each in secrets]
    except ValueError:
        # Without the cause: it would show parts of the secret.
        raise refused(preset, "bad_config", "A secret does not have the preset's form.") from None
    if not all(keys):
        raise refused(preset, "no_secret", "A secret is empty.")
    return keys


def _matches(claim: Claim, keys: list[bytes]) -> bool:
    """Whether any signature is any key's; all are compared, so that time says nothing."""
    expected = [_blurred(claim.expected(key)) for key in keys]
    found = False
    for signature in map(_blurred, claim.signatures):
        for each in expected:
            found |= hmac.compare_digest(each, signature)
    return found


def _blurred(text: str) -> bytes:
    # Comparing hashes hides the length as well.
    return hashlib.sha256(text.encode()).digest()


def _check_time(request: _Request, made_at: int, now: int, tolerance_seconds: float) -> None:
    if not 0 <= tolerance_seconds < float("inf"):
        raise request.refused("bad_config", "The tolerance is not a number of seconds.")
    age, tolerance = now - made_at * SECOND, int(tolerance_seconds * SECOND)
    if age > tolerance:
        raise request.refused(
            "too_old", f"The request was signed more than {tolerance_seconds:g} seconds ago."
        )
    if -age > tolerance:
        raise request.refused(
            "from_future",
            f"The request was signed more than {tolerance_seconds:g} seconds in the future: "
            "one of the clocks is wrong.",
        )


def _digest(algorithm: str, content: bytes, key: bytes) -> bytes:
    return hmac.digest(key, content, algorithm)


def _hex(content: bytes, key: bytes, prefix: str = "", algorithm: str = "sha256") -> str:
    return prefix + _digest(algorithm, content, key).hex()


def _base64(content: bytes, key: bytes, prefix: str = "", algorithm: str = "sha256") -> str:
    return prefix + base64.b64encode(_digest(algorithm, content, key)).decode()


def _standard_webhooks(request: _Request) -> Claim:
    made_at = request.one("webhook-timestamp")
    signed = f"{request.one('webhook-id')}.{made_at}.".encode() + request.body
    signatures = [each for each in request.signature.split(" ") if each.startswith("v1,")]
    if not signatures:
        raise request.refused("malformed", f"There is no v1 signature in {request.header}.")
    return Claim(
        signatures,
        partial(_base64, signed, prefix="v1,"),
        request.seconds(made_at, "webhook-timestamp"),
    )


def _standard_webhooks_key(secret: str) -> bytes:
    text = secret.removeprefix("whsec_")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def _github(request: _Request) -> Claim:
    if not re.fullmatch("sha256=[0-9a-f]{64}", request.signature):
        raise request.refused("malformed", f"{request.header} is not sha256= and 64 digits.")
    return Claim([request.signature], partial(_hex, request.body, prefix="sha256="))


def _stripe(request: _Request) -> Claim:
    parts = [each.strip(" ").partition("=") for each in request.signature.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    signatures = [value for name, _, value in parts if name == "v1"]
    if len(times) != 1 or not signatures:
        raise request.refused("malformed", f"{request.header} is not one t= and at least one v1=.")
    made_at = request.seconds(times[0], request.header)
    return Claim(signatures, partial(_hex, f"{times[0]}.".encode() + request.body), made_at)


def _slack(request: _Request) -> Claim:
    made_at = request.one("x-slack-request-timestamp")
    signed = f"v0:{made_at}:".encode() + request.body
    return Claim(
        [request.signature],
        partial(_hex, signed, prefix="v0="),
        request.seconds(made_at, "x-slack-request-timestamp"),
    )


def _generic_hmac(request: _Request) -> Claim:
    match = _HMAC.fullmatch(request.signature)
    named, lower, upper, text = match.groups("") if match else ("",) * 4
    found = lower or upper or text
    algorithm = (_IN_BASE64 if text else _IN_HEX).get(len(found))
    if algorithm is None or named not in ("", algorithm):
        raise request.refused(
            "malformed", f"{request.header} is not an HMAC with SHA-256 or SHA-512, hex or base64."
        )
    make = partial(_base64 if text else _hex, request.body, algorithm=algorithm)
    return Claim([found], lambda key: make(key).upper() if upper else make(key))


def _plain_secret(request: _Request) -> Claim:
    return Claim([request.signature], bytes.decode)


PRESETS: Mapping[str, Preset] = {
    "standard-webhooks": Preset(
        _standard_webhooks, "webhook-signature", key=_standard_webhooks_key
    ),
    "github": Preset(_github, "x-hub-signature-256"),
    "stripe": Preset(_stripe, "stripe-signature"),
    "slack": Preset(_slack, "x-slack-signature"),
    "hmac": Preset(_generic_hmac, "x-webhook-signature", any_header=True),
    "header": Preset(_plain_secret, "x-webhook-secret", any_header=True, whole=True),
}

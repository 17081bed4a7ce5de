"""How senders sign, written down from their documentation and apart from what checks it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

NOW_SECONDS = 1_780_000_000
NOW = NOW_SECONDS * 1_000_000
SECRET = "a-secret-of-some-length"
WHSEC = "whsec_" + base64.b64encode(bytes(range(32))).decode()


class Signed(NamedTuple):
    """A request as its sender signed it."""

    preset: str
    secret: str
    pairs: list[tuple[str, str]]


def sha256(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def signed(preset: str, body: bytes, at: int = NOW_SECONDS, secret: str | None = None) -> Signed:
    """The headers with which a sender of that kind would send the body."""
    secret = secret or (WHSEC if preset == "standard-webhooks" else SECRET)
    key = secret.encode()
    match preset:
        case "standard-webhooks":
            raw = base64.b64decode(secret.removeprefix("whsec_"))
            digest = hmac.new(raw, b"msg_1.%d.%b" % (at, body), hashlib.sha256).digest()
            pairs = [
                ("Webhook-Id", "msg_1"),
                ("Webhook-Timestamp", str(at)),
                ("Webhook-Signature", f"v1,{base64.b64encode(digest).decode()}"),
            ]
        case "github":
            pairs = [("X-Hub-Signature-256", f"sha256={sha256(key, body)}")]
        case "stripe":
            value = f"t={at},v1={sha256(key, b'%d.%b' % (at, body))},v0=ignored"
            pairs = [("Stripe-Signature", value)]
        case "slack":
            pairs = [
                ("X-Slack-Request-Timestamp", str(at)),
                ("X-Slack-Signature", f"v0={sha256(key, b'v0:%d:%b' % (at, body))}"),
            ]
        case "hmac":
            pairs = [("X-Webhook-Signature", sha256(key, body))]
        case _:
            pairs = [("X-Webhook-Secret", secret)]
    return Signed(preset, secret, pairs)

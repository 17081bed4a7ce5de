"""What Slack sends beside events: whether an address is to be had for them."""

from __future__ import annotations

from typing import Any


def challenge_of(data: Any) -> str | None:
    """What Slack wants to hear before it sends events to an address; None if it does not ask."""
    if not isinstance(data, dict) or data.get("type") != "url_verification":
        return None
    challenge = data.get("challenge")
    return challenge if isinstance(challenge, str) else None

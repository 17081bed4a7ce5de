"""What the OpenAPI document shows by example: values of parameters, and answers.

Answers are recorded, by a walk through all operations: `make examples` writes `examples.json`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

RECORDED = "examples.json"

# By the name of the parameter, wherever the operation shows none of its own.
PARAMETERS: dict[str, Any] = {
    "a": "1.0.0",
    "b": "1.1.0",
    "count": 10,
    "cursor": "of the answer before",
    "definition": "hello",
    "event": "paid",
    "everyone": True,
    "gate_id": "06gu2b1q7k5vd3m9s0f8t4c6ag",
    "idempotency_key": "order-7",
    "if_match": "of what was edited",
    "limit": 20,
    "name": "tidy-up",
    "proposal_id": "06gu2b1q7k5vd3m9s0f8t4c6b0",
    "ref": "1.0.0",
    "run_id": "06gu2b1q7k5vd3m9s0f8t4c6bg",
    "session_id": "06gu2b1q7k5vd3m9s0f8t4c6c0",
    "since": "2026-11-01T00:00:00Z",
    "status": "failed",
    "step": "build",
    "token_id": "06gu2b1q7k5vd3m9s0f8t4c6cg",
    "trigger": "hello/nightly",
    "type": "order.paid",
    "until": "2026-12-01T00:00:00Z",
    "user_id": "ada@example.org",
    "wait": "wait=10",
    "workspace_id": "default",
}


@cache
def recorded() -> dict[str, Any]:
    """Answers by operation."""
    text = files("stepwell.api").joinpath(RECORDED).read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)["answers"]
    return found

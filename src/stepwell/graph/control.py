"""The nodes that the language itself has: what they do, and what they are configured with."""

from __future__ import annotations

from typing import Any

import msgspec

MAX_ITERATIONS = 100_000
DEFAULT_ITERATIONS = 100

_CONDITION = {
    "description": "CEL text, or {ref: …} with at most one of eq, neq, gt, lt.",
    "anyOf": [{"type": "string"}, {"type": "object"}],
}


class ControlType(msgspec.Struct, frozen=True):
    """A type of node that is control flow."""

    name: str
    title: str
    help: str
    # The JSON Schemas of the fields of its config, and those that there must be.
    fields: dict[str, dict[str, Any]] = {}
    required: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    group: str = "control"
    # It is no step, and takes as long as what is inside of it.
    acts: bool = False
    timeout: float | None = None
    max_timeout: float | None = None

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the config."""
        return {
            "type": "object",
            "properties": self.fields,
            "required": list(self.required),
            "additionalProperties": False,
        }


CONTROL = {
    each.name: each
    for each in (
        ControlType(
            "condition",
            "Condition",
            "Ask a question; the output is true or false. Its edges say by `condition` on which of "
            "both they go on.",
            {"expression": _CONDITION},
            required=("expression",),
            aliases=("control_condition",),
        ),
        ControlType(
            "loop",
            "Loop",
            "Execute its `body` again and again, until `until` holds after a turn, or for as long "
            "as `while` holds before one; the output is that of the last turn.",
            {
                "until": _CONDITION,
                "while": _CONDITION,
                "max_iterations": {
                    "description": "More turns than this fail the node.",
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_ITERATIONS,
                    "default": DEFAULT_ITERATIONS,
                },
                "delay": {
                    "description": "How long to wait between turns.",
                    "anyOf": [{"type": "string"}, {"type": "number"}],
                    "default": 0,
                },
            },
            aliases=("control_loop",),
        ),
        ControlType(
            "parallel",
            "Parallel",
            "Execute its `branches` beside each other; the output has theirs by their ids.",
        ),
        ControlType(
            "return",
            "Return",
            "End the run with success, from wherever it stands; what is left is given up.",
            {"value": {"description": "The output of the run.", "default": None}},
        ),
    )
}

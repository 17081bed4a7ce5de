"""The node type `code`: Python or JavaScript that turns an input into an output."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from stepwell.node import Call, NodeConfig, node
from stepwell.nodes.languages.javascript import run_javascript
from stepwell.nodes.languages.limits import Limits
from stepwell.nodes.languages.python import run_python

_LANGUAGES = {"python": run_python, "javascript": run_javascript}
_SHORT = {"py": "python", "js": "javascript"}
_MOST = Limits(seconds=60)


class Config(NodeConfig):
    """What to execute, and what it is given."""

    language: Literal["python", "javascript"] = Field("python", description="Of the code.")
    code: str = Field(
        description="Python defines `main(input)`, JavaScript exports a default function or "
        "defines `main(input)`; without, the last expression is the output."
    )
    input: Any = Field(default_factory=dict, description="What the code is called with.")

    @field_validator("language", mode="before")
    @classmethod
    def _in_full(cls, given: Any) -> Any:
        return _SHORT.get(given, given) if isinstance(given, str) else given


@node(
    "code", title="Code", group="data", config=Config, verbatim=["code"], timeout="10s",
    max_timeout=_MOST.seconds,
)  # fmt: skip
async def code(config: Config, call: Call) -> Any:
    """Compute an output from an input, in Python or JavaScript.

    The code reaches no files, no network and no environment, and may use 64 MB of memory. What
    it prints goes nowhere, and sleeping takes no time. JavaScript is plain, without types.
    """
    return await _LANGUAGES[config.language](config.code, config.input, _MOST)

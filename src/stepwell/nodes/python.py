"""The node type `python`: a call of a Python function that the worker has registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field, model_validator

from stepwell.errors import FunctionUnknown
from stepwell.node import Call, NodeConfig, node


class Config(NodeConfig):
    """Which function, and what it is given."""

    function: str = Field(description="The name that the function was registered under.")
    args: dict[str, Any] = Field(default_factory=dict, description="Its arguments, by name.")
    input: Any = Field(None, description="Its only argument, instead of `args`.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Config:
        if {"args", "input"} <= self.model_fields_set:
            raise ValueError("Give either args or input.")
        return self


@node("python", title="Python function", group="action", config=Config)
async def python(config: Config, call: Call) -> Any:
    """Call a Python function of yours; the output is what it returns."""
    function = _found(config.function, call.host.functions)
    args = [config.input] if "input" in config.model_fields_set else []
    if inspect.iscoroutinefunction(function):
        return await function(*args, **config.args)
    result = await call.in_thread(function, *args, **config.args)
    return await result if inspect.isawaitable(result) else result


def _found(name: str, functions: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if name in functions:
        return functions[name]
    there = f"It has {', '.join(sorted(functions))}" if functions else "It has none"
    raise FunctionUnknown(
        f"This worker has no Python function {name!r}. {there}. Functions are registered with "
        "Stepwell(functions=[…]), or in the module that `stepwell worker MODULE` or "
        "`stepwell run --with MODULE` names.",
        function=name,
    )

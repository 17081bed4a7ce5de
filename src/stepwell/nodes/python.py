"""The node type `python`: a call of a Python function that the worker has registered."""

from __future__ import annotations

import asyncio
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
    if "input" in config.model_fields_set:
        return await _called(function, config.input)
    return await _called(function, **config.args)


def _found(name: str, functions: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if name in functions:
        return functions[name]
    there = f"It has {', '.join(sorted(functions))}" if functions else "It has none"
    raise FunctionUnknown(
        f"This worker has no Python function {name!r}. {there}. Functions are registered with "
        "Stepwell(functions=[…]), or in the module that `stepwell worker MODULE` or "
        "`stepwell run --with MODULE` names."
    )


async def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a coroutine function here, and any other in a thread with the same context variables."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)

    def call_it() -> Any:
        try:
            return function(*args, **kwargs)
        except StopIteration as error:
            # A future cannot hold it: whoever awaits that would wait forever.
            raise RuntimeError(f"StopIteration was raised: {error}") from error

    result = await asyncio.to_thread(call_it)
    return await result if inspect.isawaitable(result) else result

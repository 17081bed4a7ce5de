"""The node type `python`: calls of functions that the worker has registered."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest

from stepwell.errors import ConfigInvalid, FunctionUnknown, NonRetryable
from stepwell.nodes.python import python
from tests.nodes.support import Host, executed


def add(a: int, b: int = 1) -> int:
    return a + b


async def add_later(a: int, b: int = 1) -> int:
    await asyncio.sleep(0)
    return a + b


class Adder:
    async def __call__(self, a: int, b: int = 1) -> int:
        return a + b


async def called(function: Any, **config: Any) -> Any:
    host = Host(functions={"it": function})
    return await executed(python, {"function": "it", **config}, host=host)


@pytest.mark.parametrize("function", [add, add_later, Adder(), functools.partial(add_later, b=1)])
async def test_a_function_gets_arguments_by_name_or_one_input(function: Any) -> None:
    assert await called(function, args={"a": 1, "b": 2} if function is add else {"a": 2}) == 3
    assert await called(function, input=41) == 42


async def test_an_input_of_null_is_given_too() -> None:
    def taken(*args: Any) -> Any:
        return list(args)

    assert await called(taken, input=None) == [None]
    assert await called(taken) == []


async def test_args_and_input_exclude_each_other() -> None:
    with pytest.raises(ConfigInvalid, match="either args or input"):
        await called(add, args={"a": 1}, input=1)


async def test_a_plain_function_has_a_thread_and_the_variables_of_its_caller() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def seen() -> Any:
        return variable.get(), threading.current_thread() is threading.main_thread()

    assert await called(seen) == ("set", False)


async def test_an_unknown_function_is_reported_with_those_there_are() -> None:
    host = Host(functions={"load": add, "add": add})
    with pytest.raises(FunctionUnknown, match="no Python function 'sub'") as e:
        await executed(python, {"function": "sub"}, host=host)
    assert "It has add, load." in str(e.value)
    assert "Stepwell(functions=[…])" in str(e.value)
    assert "stepwell worker MODULE" in str(e.value)
    with pytest.raises(FunctionUnknown, match="It has none"):
        await executed(python, {"function": "sub"})


class Final(NonRetryable):
    """An error of the user's own."""


@pytest.mark.parametrize("error", [Final("never"), ValueError("bad")])
async def test_errors_pass_through_untouched(error: Exception) -> None:
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        raise error

    for function in (fail, fail_later):
        with pytest.raises(type(error)) as caught:
            await called(function)
        assert caught.value is error


async def test_stop_iteration_does_not_hang() -> None:
    def fail() -> Any:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await called(fail)

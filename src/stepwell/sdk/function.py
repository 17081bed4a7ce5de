"""Python functions that nodes of graphs call: the decorator, and finding them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from stepwell.errors import DuplicateDefinition, InvalidInput
from stepwell.kernel.names import check_text
from stepwell.sdk.workflow import Workflow

F = TypeVar("F", bound=Callable[..., Any])
_NAME = "__stepwell_function__"


@overload
def function(decorated: F, /) -> F: ...


@overload
def function(decorated: None = None, /, *, name: str | None = None) -> Callable[[F], F]: ...


def function(decorated: Any = None, /, *, name: str | None = None) -> Any:
    """Let nodes of type `python` call a function, async or plain, by its `name`.

    `name` is the function's own unless said. The function itself stays as it is.
    """

    def decorate(found: F) -> F:
        given: object = found
        if not callable(given) or isinstance(given, Workflow):
            raise InvalidInput(f"@function decorates functions, not {given!r}.")
        own = getattr(found, "__name__", None) if name is None else name
        setattr(found, _NAME, check_text(own, "A function's name"))
        return found

    return decorate if decorated is None else decorate(decorated)


def function_name(value: Any) -> str | None:
    """The name by which nodes call it; None if they cannot."""
    name = getattr(value, _NAME, None) if callable(value) else None
    return name if isinstance(name, str) else None


def functions_by_name(
    functions: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    """Functions that nodes may call; those without a name given have their own."""
    named: list[tuple[str, Any]]
    if isinstance(functions, Mapping):
        named = [(str(name), each) for name, each in functions.items()]
    else:
        named = [
            (function_name(each) or str(getattr(each, "__name__", "")), each) for each in functions
        ]
    found: dict[str, Callable[..., Any]] = {}
    for name, each in named:
        if not callable(each) or isinstance(each, Workflow):
            raise InvalidInput(f"functions takes functions, not {each!r}.")
        check_text(name, "A function's name")
        if name in found and found[name] is not each:
            raise DuplicateDefinition(f"Two functions are called {name!r}.")
        found[name] = each
    return found

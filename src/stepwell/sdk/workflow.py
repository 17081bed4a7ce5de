"""Workflows written in Python: the decorator, and what it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, overload

from stepwell.errors import DuplicateDefinition, InvalidInput
from stepwell.kernel.durations import Duration, seconds
from stepwell.kernel.names import check_count, check_text
from stepwell.kernel.programs import code_program
from stepwell.kernel.retry import Retry
from stepwell.record import VersionRow


class Workflow:
    """A definition of kind `code`: a function and how its runs are to be treated."""

    def __init__(
        self, function: Callable[..., Any], *, name: str | None, version: int,
        retention: Duration | None, max_concurrent_runs: int | None, deadline: Duration | None,
        retry: Retry | None, max_queued_runs: int | None = None,
    ) -> None:  # fmt: skip
        if not callable(function):
            raise InvalidInput(f"@workflow decorates functions, not {function!r}.")
        if _yields(function):
            raise InvalidInput(
                f"{function!r} cannot be a workflow: it has `yield` and so returns a generator, "
                "which cannot be recorded. Let it return its output instead."
            )
        try:
            inspect.signature(function).bind(None, None)
        except TypeError as error:
            raise InvalidInput(
                f"{function!r} cannot be a workflow: it must take (ctx, input). {error}."
            ) from error
        except ValueError:
            pass  # some functions do not tell their signature
        self.function = function
        self.name = check_text(
            getattr(function, "__name__", None) if name is None else name, "A definition's name"
        )
        self.version = check_count(version, f"The version of {self.name!r}")
        self.retention_seconds = (
            None if retention is None else int(seconds(retention, f"retention of {self.name!r}"))
        )
        self.max_concurrent_runs = (
            None
            if max_concurrent_runs is None
            else check_count(max_concurrent_runs, f"max_concurrent_runs of {self.name!r}")
        )
        self.max_queued_runs = (
            None
            if max_queued_runs is None
            else check_count(max_queued_runs, f"max_queued_runs of {self.name!r}", least=0)
        )
        if max_queued_runs is not None and max_concurrent_runs is None:
            raise InvalidInput(
                f"max_queued_runs of {self.name!r} needs max_concurrent_runs, for whose slots they "
                "queue."
            )
        self.deadline_seconds = (
            None if deadline is None else seconds(deadline, f"deadline of {self.name!r}")
        )
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidInput(f"retry of {self.name!r} must be a Retry, not {retry!r}.")
        self.retry = retry
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    @property
    def program(self) -> str:
        """What a worker must have to execute runs of this."""
        return code_program(self.name, self.version)

    def row(self) -> VersionRow:
        """The workflow as a store registers it."""
        return VersionRow(
            name=self.name,
            version=self.version,
            kind="code",
            program=self.program,
            retention_seconds=self.retention_seconds,
            max_concurrent_runs=self.max_concurrent_runs,
            deadline_seconds=self.deadline_seconds,
            max_queued_runs=self.max_queued_runs,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as tests of it may want to."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workflow {self.name} version {self.version}>"


def _yields(function: Callable[..., Any]) -> bool:
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)
        for each in (function, getattr(function, "__call__", None))  # noqa: B004
    )


@overload
def workflow(function: Callable[..., Any], /) -> Workflow: ...


@overload
def workflow(
    function: None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    retention: Duration | None = None,
    max_concurrent_runs: int | None = None,
    max_queued_runs: int | None = None,
    deadline: Duration | None = None,
    retry: Retry | None = None,
) -> Callable[[Callable[..., Any]], Workflow]: ...


def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    retention: Duration | None = None,
    max_concurrent_runs: int | None = None,
    max_queued_runs: int | None = None,
    deadline: Duration | None = None,
    retry: Retry | None = None,
) -> Any:
    """Make a function `(ctx, input)`, async or plain, a workflow, to be started by its `name`.

    `name` is the function's unless said. Of several versions, new runs take the highest. At most
    `max_concurrent_runs` are active at once, parked ones included; when `max_queued_runs` wait for
    that, starts are refused. `retention` and `deadline` are defaults for its runs, `retry` for its
    steps. A plain function runs in a thread and calls `ctx` without `await`.
    """

    def decorate(decorated: Callable[..., Any]) -> Workflow:
        return Workflow(
            decorated,
            name=name,
            version=version,
            retention=retention,
            max_concurrent_runs=max_concurrent_runs,
            deadline=deadline,
            retry=retry,
            max_queued_runs=max_queued_runs,
        )

    return decorate if function is None else decorate(function)


def registry(workflows: Iterable[Workflow]) -> dict[tuple[str, int], Workflow]:
    """Workflows by name and version; no two may have the same."""
    if not isinstance(workflows, Iterable):
        raise InvalidInput(f"workflows takes a list of workflows, not {workflows!r}.")
    found: dict[tuple[str, int], Workflow] = {}
    for each in workflows:
        if not isinstance(each, Workflow):
            raise InvalidInput(f"workflows takes what @workflow made, not {each!r}.")
        key = (each.name, each.version)
        if key in found and found[key] is not each:
            raise DuplicateDefinition(
                f"Two workflows are called {each.name!r} version {each.version}. "
                "Give one of them another name or version."
            )
        found[key] = each
    return found

"""What tools answer: results and errors, as data for programs and as text for models."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from stepwell.errors import InvalidInput, RunEndedBadly, StepwellError
from stepwell.kernel.presenting import present

log = logging.getLogger("stepwell.mcp")

T = TypeVar("T", bound=msgspec.Struct)


def answer(value: Any) -> types.CallToolResult:
    """The answer of a tool that has done what it was asked to."""
    data = _plain(value)
    text = "Done." if data is None else _text(data)
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=data)


def refusal(error: Exception) -> types.CallToolResult:
    """The answer of a tool that could not do it: code, message and details, as elsewhere."""
    data = {"error": _described(error)}
    content: list[types.ContentBlock] = [types.TextContent(text=_text(data))]
    return types.CallToolResult(content=content, structured_content=data, is_error=True)


@contextmanager
def failing() -> Iterator[None]:
    """Let what goes wrong inside become an error of the protocol, of what is no call of a tool."""
    try:
        yield
    except Exception as error:
        said = _described(error)
        raise MCPError(types.INTERNAL_ERROR, said["message"], said) from error


def _described(error: Exception) -> dict[str, Any]:
    """An error as data; of one that is not Stepwell's own, nothing but that there was one."""
    if not isinstance(error, StepwellError):
        log.error("A request failed.", exc_info=error)
        message = "Something went wrong inside Stepwell; its log says what."
        return {"code": "internal_error", "message": message}
    said: dict[str, Any] = {"code": error.code, "message": error.message}
    details = error.shown_details
    if isinstance(error, RunEndedBadly):
        details |= {"run_id": error.run_id, "error": present(error.error)}
    found: dict[str, Any] = _plain({**said, "details": details} if details else said)
    return found


def read(given: Mapping[str, Any], kind: type[T]) -> T:
    """The arguments of a call, as the type that they have to be of."""
    try:
        return msgspec.convert(given, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        fields = ", ".join(kind.__struct_fields__) or "none"
        raise InvalidInput(
            f"The arguments do not fit: {error!s:.300}. There are: {fields}."
        ) from error


def schema_of(kind: type) -> dict[str, Any]:
    """The JSON Schema of arguments, complete in itself: not all models can follow references."""
    schema = msgspec.json.schema(kind)
    found: dict[str, Any] = _inlined({"$ref": schema["$ref"]}, schema["$defs"])
    found.pop("title")
    return found


def _inlined(schema: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, known) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(known[schema["$ref"].rpartition("/")[2]], known)
    return {name: _inlined(each, known) for name, each in schema.items()}


def _plain(value: Any) -> Any:
    """A value of what JSON knows alone."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


def _text(data: Any) -> str:
    return msgspec.json.encode(data).decode()

"""The OpenAPI document, made from the declarations of operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from stepwell.api.examples import PARAMETERS, recorded
from stepwell.api.headers import COMPONENTS, WORKSPACE, of_answer
from stepwell.api.other_paths import SECURITY, TAGS, other_paths
from stepwell.api.problems import ProblemDetails
from stepwell.api.refusals import BODIES, Refusals
from stepwell.catalog import operations
from stepwell.kernel.presenting import HIDDEN_MARK
from stepwell.operation import HEADERS, Operation, Parameter

VERSION = "3.1.0"
_VALUE = re.compile(r"\{\w+\}")
_REF = "#/components/schemas/{name}"
_TITLE = "Stepwell"
_ABOUT = """Durable workflows for people and agents.

Every answer that is no success is a problem (RFC 9457) with a stable `code`. Lists are `{"items": \
[…]}`, long ones with a `next_cursor`. Times are ISO 8601 in UTC. A method that a path does not \
take is answered with 405, and `Allow` says which it does. With a session, `Stepwell-Workspace` \
may name the workspace: 404 if it is none of yours, or not that of the token."""


@cache
def openapi() -> bytes:
    """The document, as JSON."""
    return msgspec.json.encode(openapi_document())


def openapi_document() -> dict[str, Any]:
    """The document, as plain data."""
    found = list(operations().values())
    schemas, refusals = Schemas(found), Refusals()
    paths: dict[str, dict[str, Any]] = {}
    shapes: dict[str, str] = {}
    for each in found:
        for path in (each.path, *each.also):
            # Two paths that differ in nothing but what a value is called are one.
            shown = shapes.setdefault(_VALUE.sub("{}", path), path)
            paths.setdefault(f"/api{shown}", {})[each.method.lower()] = _operation(
                each, path, shown, schemas, refusals
            )
    for path, item in other_paths(refusals).items():
        paths.setdefault(path, {}).update(item)
    return {
        "openapi": VERSION,
        "info": {"title": _TITLE, "version": "1", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{name: []} for name in SECURITY],
        "tags": [{"name": noun} for noun in dict.fromkeys((*map(_noun, found), *TAGS))],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": refusals.components,
            "headers": COMPONENTS,
            "securitySchemes": SECURITY,
        },
    }


class Schemas:
    """JSON Schemas of what operations take and give."""

    def __init__(self, found: Sequence[Operation]) -> None:
        bodies = {each.name: each.arguments("body") for each in found}
        self._bodies = {name: body for name, body in bodies.items() if body.__struct_fields__}
        self._results = {each.name: _shape(each.returns) for each in found}
        self._parameters = {
            (each.name, parameter.name): parameter.type
            for each in found
            for parameter in each.parameters.values()
        }
        groups = (self._bodies, self._results, self._parameters, {"problem": ProblemDetails})
        types = [kind for group in groups for kind in group.values()]
        listed, components = msgspec.json.schema_components(types, ref_template=_REF)
        by_type = iter(listed)
        self.bodies, self.results, self.parameters, self.problem = (
            {name: next(by_type) for name in group} for group in groups
        )
        given = {body.__name__ for body in self._bodies.values()}
        self.components = {
            name: schema if name in given else _as_shown(schema)
            for name, schema in components.items()
        }


def _shape(returns: Any) -> Any:
    """What a result is made of: of a list, what is in it."""
    if _is_list(returns):
        return list[get_args(returns)[0]]  # type: ignore[misc]
    return returns


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, Sequence) or getattr(kind, "__origin__", None) is Sequence


def _as_shown(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a record as surfaces show it: times as such, nothing that is hidden."""
    properties = schema.get("properties")
    if properties is None:
        return schema
    shown = {
        name: _time(each) if name.endswith("_at") else each
        for name, each in properties.items()
        if HIDDEN_MARK not in each
    }
    required = [name for name in schema.get("required", ()) if name in shown]
    return {**schema, "properties": shown, "required": required}


def _time(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") in ("integer", "string"):
        return {"type": "string", "format": "date-time"}
    if "anyOf" in schema:
        return {**schema, "anyOf": [_time(each) for each in schema["anyOf"]]}
    return schema


def _noun(operation: Operation) -> str:
    return operation.name.partition(".")[0]


def _operation(
    operation: Operation, path: str, shown: str, schemas: Schemas, refusals: Refusals
) -> dict[str, Any]:
    """What leads to an operation by a path, which is shown with these names in it."""
    names = dict(zip(_VALUE.findall(path), _VALUE.findall(shown), strict=True))
    given = [
        each
        for each in operation.parameters.values()
        if each.where != "body" or "{" + each.name + "}" in path
    ]
    # There are no words in OpenAPI for `input.x=1`: it is said in a sentence instead.
    fields = [each for each in given if _is_of_fields(each, path, operation, schemas)]
    said = "".join(f"\n\n`{each.name}` is given as `{each.name}.field=value`." for each in fields)
    found: dict[str, Any] = {
        "operationId": operation.name if path == operation.path else f"{operation.name}.nested",
        "summary": operation.summary,
        "description": operation.description + said,
        "tags": [_noun(operation)],
        "x-permission": operation.needs,
        "parameters": [
            _parameter(operation, each, names.get("{" + each.name + "}"), schemas)
            for each in given
            if each not in fields
        ]
        + [WORKSPACE],
        "responses": {**_answers(operation, schemas), **refusals.of(operation)},
    }
    if operation.method in BODIES:
        found["requestBody"] = _body(operation, path, schemas)
    return found


def _body(operation: Operation, path: str, schemas: Schemas) -> dict[str, Any]:
    body = {each.name: each for each in operation.parameters.values() if each.where == "body"}
    schema = schemas.bodies.get(operation.name, {"type": "object", "additionalProperties": False})
    shown = {name: value for name, value in operation.example.items() if name in body}
    content = {"schema": schema, "examples": {"example": {"value": shown}}}
    needed = any(each.required for each in body.values())
    return {"required": needed, "content": {"application/json": content}}


def _parameter(
    operation: Operation, parameter: Parameter, in_path: str | None, schemas: Schemas
) -> dict[str, Any]:
    schema = schemas.parameters[operation.name, parameter.name]
    found: dict[str, Any] = {
        "name": in_path[1:-1] if in_path else HEADERS.get(parameter.name, parameter.name),
        "in": "path" if in_path else parameter.where,
        "required": in_path is not None or parameter.required,
        "schema": {"type": "string"} if parameter.name == "wait" else _not_null(schema),
        "example": operation.example.get(parameter.name, PARAMETERS[parameter.name]),
    }
    if parameter.name == "wait":
        found["description"] = "`wait=10`: answer when the run has ended, or after so many seconds."
    if found["schema"].get("type") == "array":
        found |= {"explode": False, "example": [found["example"]]}
    return found


def _is_of_fields(parameter: Parameter, path: str, operation: Operation, schemas: Schemas) -> bool:
    schema = schemas.parameters[operation.name, parameter.name]
    maps = any(each.get("type") == "object" for each in (schema, *schema.get("anyOf", ())))
    return maps and parameter.where == "query" and "{" + parameter.name + "}" not in path


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What is left out has no value, and no text means null."""
    if "anyOf" not in schema:
        return {name: value for name, value in schema.items() if name != "default"}
    left = [each for each in schema["anyOf"] if each.get("type") != "null"]
    return left[0] if len(left) == 1 else {"anyOf": left}


def _answers(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    content, headers = _content(operation, schemas), of_answer(operation)
    return {
        str(status): {"description": operation.summary, "headers": headers, **content}
        for status in sorted(_successes(operation))
    }


def _successes(operation: Operation) -> set[int]:
    if operation.returns in (None, type(None)):
        return {204}
    if "wait" in operation.parameters:
        return {operation.status, 200, 202}
    # What was there already was not made.
    again = {200} if "created" in getattr(operation.returns, "__annotations__", ()) else set()
    return {operation.status} | again


def _content(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    if operation.returns in (None, type(None)):
        return {}
    schema = schemas.results[operation.name]
    named = "items" if _is_list(operation.returns) else operation.result
    if named != "result":
        schema = {"type": "object", "properties": {named: schema}, "required": [named]}
    examples = {"recorded": {"value": recorded().get(operation.name)}}
    return {"content": {"application/json": {"schema": schema, "examples": examples}}}

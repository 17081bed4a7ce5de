"""The OpenAPI document, made from the declarations of operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from stepwell.api.other_paths import OTHER_PATHS, SECURITY
from stepwell.api.problems import COMMON, MEDIA_TYPE, ProblemDetails, status_of
from stepwell.catalog import operations
from stepwell.kernel.presenting import HIDDEN_MARK
from stepwell.operation import HEADERS, Operation, Parameter

VERSION = "3.1.0"
_REF = "#/components/schemas/{name}"
_TITLE = "Stepwell"
_ABOUT = """Durable workflows for people and agents.

Every answer that is no success is a problem (RFC 9457) with a stable `code`. Lists are `{"items": \
[…]}`, long ones with a `next_cursor`. Times are ISO 8601 in UTC."""


@cache
def openapi() -> bytes:
    """The document, as JSON."""
    return msgspec.json.encode(openapi_document())


def openapi_document() -> dict[str, Any]:
    """The document, as plain data."""
    found = list(operations().values())
    schemas = Schemas(found)
    paths: dict[str, dict[str, Any]] = {}
    for each in found:
        for path in (each.path, *each.also):
            paths.setdefault(f"/api{path}", {})[each.method.lower()] = _operation(
                each, path, schemas
            )
    for path, item in OTHER_PATHS.items():
        paths.setdefault(path, {}).update(item)
    return {
        "openapi": VERSION,
        "info": {"title": _TITLE, "version": "1", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{name: []} for name in SECURITY],
        "tags": [{"name": noun} for noun in dict.fromkeys(map(_noun, found))],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {"Problem": _problem("A problem.", schemas)},
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


def _operation(operation: Operation, path: str, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name if path == operation.path else f"{operation.name}.nested",
        "summary": operation.summary,
        "description": operation.description,
        "tags": [_noun(operation)],
        "x-permission": operation.needs,
        "parameters": [
            _parameter(operation, each, path, schemas)
            for each in operation.parameters.values()
            if each.where != "body" or "{" + each.name + "}" in path
        ],
        "responses": _responses(operation, schemas),
    }
    if operation.method in ("POST", "PUT", "PATCH"):
        schema = schemas.bodies.get(
            operation.name, {"type": "object", "additionalProperties": False}
        )
        content: dict[str, Any] = {"schema": schema}
        names = {each.name for each in operation.parameters.values() if each.where == "body"}
        if example := {n: v for n, v in operation.example.items() if n in names}:
            content["examples"] = {"example": {"value": example}}
        needed = any(
            each.required and each.where == "body" for each in operation.parameters.values()
        )
        found["requestBody"] = {"required": needed, "content": {"application/json": content}}
    return found


def _parameter(
    operation: Operation, parameter: Parameter, path: str, schemas: Schemas
) -> dict[str, Any]:
    schema = schemas.parameters[operation.name, parameter.name]
    in_path = "{" + parameter.name + "}" in path
    found: dict[str, Any] = {
        "name": HEADERS.get(parameter.name, parameter.name),
        "in": "path" if in_path else parameter.where,
        "required": in_path or parameter.required,
        "schema": {"type": "string"} if parameter.name == "wait" else _not_null(schema),
    }
    if parameter.name == "wait":
        found["description"] = "`wait=10`: answer when the run has ended, or after so many seconds."
        found["example"] = "wait=10"
    if parameter.name in operation.example:
        found["example"] = operation.example[parameter.name]
    if found["in"] == "query" and _maps(schema):
        found |= {"style": "deepObject", "description": "As `name.field=value`, `name.a.b=value`."}
    return found


def _maps(schema: dict[str, Any]) -> bool:
    return any(each.get("type") == "object" for each in (schema, *schema.get("anyOf", ())))


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What is left out has no value, and no text means null."""
    if "anyOf" not in schema:
        return {name: value for name, value in schema.items() if name != "default"}
    left = [each for each in schema["anyOf"] if each.get("type") != "null"]
    return left[0] if len(left) == 1 else {"anyOf": left}


def _responses(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in _successes(operation):
        found[str(status)] = {"description": operation.summary, **_content(operation, schemas)}
    codes: dict[int, list[str]] = {status: [] for status in COMMON}
    for error in operation.raises:
        codes.setdefault(status_of(error), []).append(error.code)
        if error.code == "conflict" and "if_match" in operation.parameters:
            codes.setdefault(412, []).append(error.code)
    for status, named in sorted(codes.items()):
        found[str(status)] = (
            _problem(f"A problem: {', '.join(f'`{code}`' for code in named)}.", schemas)
            if named
            else {"$ref": "#/components/responses/Problem"}
        )
    return found


def _problem(said: str, schemas: Schemas) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": schemas.problem["problem"]}}
    return {"description": said, "content": content}


def _successes(operation: Operation) -> Iterable[int]:
    if operation.returns in (None, type(None)):
        return (204,)
    if "wait" in operation.parameters:
        return (operation.status, 200, 202)
    return (operation.status, 200) if operation.status == 201 else (operation.status,)


def _content(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    if operation.returns in (None, type(None)):
        return {}
    schema = schemas.results[operation.name]
    named = "items" if _is_list(operation.returns) else operation.result
    if named != "result":
        schema = {"type": "object", "properties": {named: schema}, "required": [named]}
    return {"content": {"application/json": {"schema": schema}}}

"""What is allowed in a document, and yet hardly meant: warnings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from stepwell.graph.complaints import STRING
from stepwell.graph.conditions import Condition, Expression
from stepwell.graph.definition import Definition, Graph
from stepwell.graph.inputs import closed_fields
from stepwell.graph.plan import Plan, PlanEdge, PlanNode
from stepwell.graph.problems import Problems
from stepwell.graph.refs import refs_in

# Keywords of JSON Schema whose values are objects.
_WITH_OBJECTS = frozenset(
    {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "items",
     "propertyNames", "dependentSchemas", "dependentRequired", "definitions", "$defs", "not", "if",
     "then", "else", "contains", "default", "const"}
)  # fmt: skip
# Those that say nothing about values, and all others.
_REMARKS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
     "$comment", "$schema", "$id", "$anchor"}
)  # fmt: skip
_KEYWORDS = _REMARKS | {
    "type", "enum", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains",
    "minContains", "maxProperties", "minProperties", "required", "prefixItems", "allOf", "anyOf",
    "oneOf", "format", "unevaluatedItems", "additionalItems", "dependencies", "$ref", "$dynamicRef",
    "contentEncoding", "contentMediaType", "contentSchema", "$vocabulary",
}  # fmt: skip
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
# A reference that says itself that it is one to the input.
_EXPLICIT = re.compile(r"^[{@\s]*inputs?\b")
_INPUT = re.compile(r"(?<![\w.])input\.([A-Za-z_]\w*)")


def doubt(
    definition: Definition, plan: Plan, problems: Problems, secrets: Collection[str] | None
) -> None:
    """Warn of nodes that are never executed, and of references that hardly lead anywhere.

    `secrets` are the names of those there are, as far as that is known.
    """
    _warn_unreachable(plan, definition.graph, problems)
    _warn_schema_of_nothing(definition.inputs or {}, problems)
    paths = {node.id: node.path for node in definition.graph.all_nodes()}
    fields = closed_fields(definition.inputs or {})
    for node, _ in plan.all_nodes():
        if fields is None:
            _warn_misspelled_steps(node, paths, problems)
        else:
            _warn_unknown_fields(node, paths, fields, problems)
        if node.type == "transform" and any(ref.root == "secrets" for ref in refs_in(node.config)):
            problems.warning(
                paths[node.id], "masked_secret",
                f"{node.id!r} makes a value of a secret, which is masked in what comes out.",
                "Refer to the secret in the node that needs it.",
            )  # fmt: skip
        if secrets is not None:
            _warn_unknown_secrets(node, paths, secrets, problems)


def _warn_unreachable(plan: Plan, graph: Graph, problems: Problems) -> None:
    """Nodes to which every way leads over a return that ends the run, or is skipped with them."""
    paths = {node.id: node.path for node in graph.nodes}
    reached: dict[str, bool] = {}
    for node_id in plan.order:
        node = plan.nodes[node_id]
        ways = [edge for edge in node.incoming if edge.drawn] or list(node.incoming)
        reached[node_id] = not ways or any(
            reached[edge.source] and _leads_on(edge, plan.nodes[edge.source]) for edge in ways
        )
        if not reached[node_id]:
            problems.warning(
                paths[node_id], "unreachable", f"{node_id!r} is never executed.",
                "Everything that leads to it returns before. Behind a return with `when`, write "
                "on_skip: continue on the edge.",
            )  # fmt: skip


def _leads_on(edge: PlanEdge, source: PlanNode) -> bool:
    """Whether anything can come after the source over this edge."""
    if source.type != "return" or edge.on_failure == "continue":
        return True
    return source.when is not None and edge.on_skip == "continue"


def _warn_schema_of_nothing(inputs: Mapping[str, Any], problems: Problems) -> None:
    """Fields that are written where keywords of JSON Schema are expected."""
    unknown = [key for key in inputs if key not in _WITH_OBJECTS]
    objects = all(isinstance(value, dict) for value in inputs.values())
    if not objects or len(unknown) < len(inputs):
        unknown = [key for key in inputs if key not in _KEYWORDS | _WITH_OBJECTS]
        if any(key in _KEYWORDS | _WITH_OBJECTS for key in inputs if key not in _REMARKS):
            return
    if unknown:
        given = inputs[unknown[0]]
        inner = f"{{type: {given}}}" if isinstance(given, str) and given in _TYPES else "…"
        problems.warning(
            "inputs", "bad_schema", "inputs is a JSON Schema, and this one says nothing.",
            "Did you mean properties? Fields stand below it: {type: object, properties: "
            f"{{{unknown[0]}: {inner}}}}}.",
        )  # fmt: skip


def _warn_unknown_fields(
    node: PlanNode, paths: Mapping[str, str], fields: list[str], problems: Problems
) -> None:
    for name in dict.fromkeys(_inputs_of(node)):
        if name not in fields:
            problems.warning(
                paths[node.id], "unknown_input",
                f"{node.id!r} looks at {name!r}, which is neither a step nor a field of the "
                "inputs.",
                problems.did_you_mean(name, [*fields, *paths])
                or f"The inputs are {', '.join(fields) or 'none'}.",
            )  # fmt: skip


def _warn_misspelled_steps(node: PlanNode, paths: Mapping[str, str], problems: Problems) -> None:
    """Any name may be a field of the input, if nobody says which there are."""
    for ref in refs_in(node.config):
        if ref.root != "input" or not ref.path or _EXPLICIT.search(ref.text):
            continue
        if hint := problems.did_you_mean(str(ref.path[0]), paths):
            problems.warning(
                paths[node.id], "unknown_step",
                f"{ref.text!r} is no step, so it is taken for a field of the input.",
                f"{hint} If it is meant so, write input.{ref.path[0]}.",
            )  # fmt: skip


def _warn_unknown_secrets(
    node: PlanNode, paths: Mapping[str, str], secrets: Collection[str], problems: Problems
) -> None:
    for ref in refs_in(node.config):
        if ref.root == "secrets" and ref.path[0] not in secrets and ref.default is None:
            problems.warning(
                paths[node.id], "unknown_secret",
                f"{ref.text!r}: there is no secret {ref.path[0]!r} yet.",
                problems.did_you_mean(str(ref.path[0]), secrets)
                or f"Store it: `stepwell secrets set {ref.path[0]}`.",
            )  # fmt: skip


def _inputs_of(node: PlanNode) -> Iterator[str]:
    """The fields of the input that a node looks at."""
    templates = [node.config, *([node.items] if node.items is not None else [])]
    for template in templates:
        for ref in refs_in(template):
            if ref.root == "input" and ref.path:
                yield str(ref.path[0])
    conditions: list[Condition | None] = [node.when, *node.conditions.values()]
    conditions += [edge.condition for edge in node.incoming]
    for condition in conditions:
        if isinstance(condition, Expression):
            yield from _INPUT.findall(re.sub(STRING, "", condition.text))
        elif condition is not None and condition.ref.root == "input" and condition.ref.path:
            yield str(condition.ref.path[0])

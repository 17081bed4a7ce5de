"""Steps of formulas put together: branches, expansions in the place of a step, aspects around it.

The order is that of the originals: branches and gates, the formula's own advice, the expansions
that steps ask for, those that `compose` asks for, and then aspects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from stepwell.graph.definition import MAX_NODES
from stepwell.graph.dialects.conversion import Losses
from stepwell.graph.dialects.formulas.family import Family, Formula
from stepwell.graph.dialects.formulas.shapes import Loop, Shapes, Step, TooMuch
from stepwell.kernel.names import show

_TARGET = re.compile(
    r"\{target(?:\.(?P<field>id|title|description))?\}"
    r"|(?<!\{)\{(?P<one>\w+)\}(?!\})|(?<!\{)\{\{(?P<two>\w+)\}\}(?!\})"
)
_STEP_NAME = re.compile(r"\{step(?:\.(?P<field>id|title))?\}")
_DONE = re.compile(r"(\w[\w-]*)\.status\s*==\s*(['\"]?)completed?\2")
# How often an expansion may ask for another, and how many rules of a kind there may be: each of
# them looks at all steps.
_MOST_EXPANSIONS = 5
_MOST_RULES = 200


class Weaver:
    """Puts the steps of one formula together."""

    def __init__(self, shapes: Shapes, losses: Losses, family: Family) -> None:
        self._shapes = shapes
        self._losses = losses
        self._family = family
        self._made = 0
        self._own: dict[str, Any] = {}

    # -- composing -----------------------------------------------------------------------

    def woven(self, formula: Formula) -> list[Step]:
        """The steps of a formula with all that its rules do to them."""
        steps, compose = formula.steps, formula.compose
        self._own = {
            **formula.variables,
            **self._shapes.table(formula.data.get("inputs"), "inputs"),
        }
        for key, rules in [*compose.items(), ("advice", formula.advice)]:
            if len(rules) > _MOST_RULES:
                self._losses.refuse(key, f"There are more than {_MOST_RULES} rules.")
                return steps
        self._arrange(steps, compose)
        self._advise(steps, formula.advice, "advice", formula.data)
        self._expand_inline(steps, 0)
        done: set[str] = set()
        for index, rule in enumerate(compose.get("expand", [])):
            self._expand(steps, rule, f"compose.expand[{index}]", "target", done)
        for index, rule in enumerate(compose.get("map", [])):
            self._expand(steps, rule, f"compose.map[{index}]", "select", done)
        for name in compose.get("aspects", []):
            aspect = self._family.sibling(name, "compose.aspects")
            if aspect is not None and self._is(aspect, "aspect", name, "compose.aspects"):
                self._advise(steps, aspect.advice, f"{name}: advice", aspect.data)
        return steps

    def _arrange(self, steps: list[Step], compose: dict[str, list[Any]]) -> None:
        """Branches and gates: steps that need others beside those that they name."""
        known = {step.id: step for _, step in _all(steps)}

        def add(path: str, step: str, need: str) -> None:
            for each in (step, need):
                if each not in known:
                    self._losses.refuse(path, f"There is no step {each!r}.")
                    return
            known[step].needs = list(dict.fromkeys([*known[step].needs, need]))

        for index, rule in enumerate(compose.get("branch", [])):
            at = f"compose.branch[{index}]"
            for each in self._shapes.texts(rule.get("steps"), f"{at}.steps"):
                add(at, each, self._shapes.text(rule.get("from"), f"{at}.from"))
                add(at, self._shapes.text(rule.get("join"), f"{at}.join"), each)
        for index, rule in enumerate(compose.get("gate", [])):
            at = f"compose.gate[{index}]"
            condition = self._shapes.text(rule.get("condition"), f"{at}.condition").strip()
            if found := _DONE.fullmatch(condition):
                add(at, self._shapes.text(rule.get("before"), f"{at}.before"), found[1])
            else:
                self._losses.refuse(
                    at, f"Nothing here waits until {show(condition)}; only until a step is done."
                )
        for index, _ in enumerate(compose.get("hooks", [])):
            self._losses.refuse(
                f"compose.hooks[{index}]", "What is attached by itself has no counterpart here."
            )
        if compose.get("bond_points"):
            self._losses.add("compose.bond_points", "There are no bond points; they are left out.")

    # -- expansions ----------------------------------------------------------------------

    def template(self, formula: Formula) -> list[Step]:
        """The steps of an expansion that is a formula of its own: it is its own target."""
        name = self._shapes.text(formula.data.get("formula"), "formula") or "main"
        title = self._shapes.text(formula.data.get("title"), "title") or name
        about = self._shapes.text(formula.data.get("description"), "description")
        found = self._shapes.steps(formula.data.get("template"), "template")
        given = {key: "{{" + key + "}}" for key in formula.variables}
        return [self._filled(each, Step("main", "", title, about), given) for each in found]

    def _expand_inline(self, steps: list[Step], depth: int) -> None:
        asking = [step for _, step in _all(steps) if step.expand]
        if not asking:
            return
        if depth >= _MOST_EXPANSIONS:
            self._losses.refuse(asking[0].path, f"It is expanded {depth} times, and not done.")
            return
        found = {
            id(step): inner for step in asking
            if (inner := self._inside(step, step.expand, step.expand_vars, step.path)) is not None
        }  # fmt: skip
        _replace(steps, found)
        for step in asking:
            step.expand = ""
        self._expand_inline(steps, depth + 1)

    def _expand(
        self, steps: list[Step], rule: dict[str, Any], path: str, key: str, done: set[str]
    ) -> None:
        self._losses.unknown(rule, (key, "with", "vars"), path)
        wanted = self._shapes.text(rule.get(key), f"{path}.{key}")
        name = self._shapes.text(rule.get("with"), f"{path}.with")
        given = self._shapes.values(rule.get("vars"), f"{path}.vars")
        self._check_pattern(wanted, f"{path}.{key}")
        if key == "target":
            targets = [step for _, step in _all(steps) if step.id == wanted]
            if not targets and wanted not in done:
                self._losses.refuse(path, f"There is no step {wanted!r} to expand.")
        else:
            targets = [step for full, step in _all(steps) if _matches(wanted, full)]
        found = {}
        for step in targets:
            inner = self._inside(step, name, given, path)
            if inner is None:
                return
            done.add(step.id)
            found[id(step)] = inner
        _replace(steps, found)

    def _inside(
        self, target: Step, name: str, given: dict[str, str], path: str
    ) -> list[Step] | None:
        """What an expansion makes of a step; it begins where the step began."""
        expansion = self._family.sibling(name, path)
        if expansion is None or not self._is(expansion, "expansion", name, path):
            return None
        template = self._shapes.steps(expansion.data.get("template"), f"{name}: template")
        if not template:
            self._losses.refuse(path, f"{name!r} has no template to expand by.")
            return None
        if target.inner() or target.on_complete:
            self._losses.refuse(path, f"{target.id!r} has steps of its own, which would be lost.")
        values = {**self._defaults(expansion, given, path), **given}
        inner = [self._filled(each, target, values) for each in template]
        own = {each.id for each in inner}
        for each in inner:
            if target.condition and each.condition not in ("", target.condition):
                self._losses.refuse(each.path, "Both this and what it expands have a condition.")
            each.condition = each.condition or target.condition
            if not own & set(each.needs):
                each.needs = list(dict.fromkeys([*each.needs, *target.needs]))
                each.gate = each.gate or target.gate
                each.waits_for = each.waits_for or target.waits_for
        return inner

    def _defaults(self, expansion: Formula, given: dict[str, str], path: str) -> dict[str, str]:
        found = {}
        for name, spec in expansion.variables.items():
            default = spec.get("default") if isinstance(spec, dict) else spec
            if default is not None:
                found[name] = self._shapes.text(default, f"{path}.vars.{name}")
            elif name not in given and isinstance(spec, dict) and spec.get("required"):
                self._losses.refuse(path, f"The expansion needs a value for {name!r}.")
        return found

    def _filled(self, step: Step, target: Step, given: dict[str, str]) -> Step:
        """A step of a template, with the target and the variables in their places."""
        about = {"id": target.id, "title": target.title or target.id,
                 "description": target.description}  # fmt: skip

        def value(match: re.Match[str]) -> str:
            if match["two"]:
                known = match["two"] in given and match["two"] not in self._own
                return given[match["two"]] if known else match[0]
            if match["one"] and match["one"] != "target":
                return given.get(match["one"], match[0])
            return about[match["field"] or "id"]

        return self._copied(step, _TARGET, value)

    def _copied(self, step: Step, pattern: re.Pattern[str], value: Any) -> Step:
        self._check_size(1)

        def filled(what: Any) -> Any:
            if isinstance(what, str):
                return self._shapes.filled(what, pattern, value)
            if isinstance(what, list):
                return [filled(each) for each in what]
            if isinstance(what, dict):
                return {key: each if key == "body" else filled(each) for key, each in what.items()}
            if isinstance(what, Loop):
                return Loop(what.path, filled(what.fields), filled(what.body))
            return self._copied(what, pattern, value) if isinstance(what, Step) else what

        fields = {name: filled(getattr(step, name)) for name in Step.__struct_fields__}
        return Step(**{**fields, "path": step.path})

    # -- aspects -------------------------------------------------------------------------

    def _advise(
        self, steps: list[Step], advice: list[dict[str, Any]], path: str, data: dict[str, Any]
    ) -> None:
        """Put steps before and after those that rules name, but not around what they put there."""
        cuts = self._shapes.tables(data.get("pointcuts"), "pointcuts")
        rules = [self._rule(rule, f"{path}[{index}]", cuts) for index, rule in enumerate(advice)]
        if rules:
            moved: dict[str, list[str]] = {}
            for step in self._surround(steps, rules, "", moved):
                step.needs = _rewired(step.needs, moved)

    def _rule(self, rule: dict[str, Any], path: str, cuts: list[dict[str, Any]]) -> Any:
        self._losses.unknown(rule, ("target", "before", "after", "around"), path)
        target = self._shapes.text(rule.get("target"), f"{path}.target")
        around = self._shapes.table(rule.get("around"), f"{path}.around")
        if not target and not cuts:
            self._losses.refuse(path, "The advice has no target.")
        self._check_pattern(target, f"{path}.target")

        def steps(key: str) -> list[Step]:
            own = self._shapes.tables(rule.get(key), f"{path}.{key}")
            more = self._shapes.tables(around.get(key), f"{path}.around.{key}")
            return [
                self._shapes.step({"id": f"{{step.id}}-{key}", **each}, f"{path}.{key}[{index}]")
                for index, each in enumerate([*own, *more])
            ]

        return ([{"glob": target}] if target else cuts), steps("before"), steps("after")

    def _surround(
        self, steps: list[Step], rules: list[Any], prefix: str, moved: dict[str, list[str]]
    ) -> list[Step]:
        """Those that may need something which is followed by something else now."""
        found: list[Step] = []
        waiting: list[Step] = []
        for step in steps:
            mine = [rule for rule in rules if _is_cut(rule[0], prefix + step.id, step)]
            before, after = (
                [self._beside(each, step) for rule in mine for each in rule[place]]
                for place in (1, 2)
            )
            needs = step.needs
            for each in [*before, step] if before else []:
                each.needs = needs
                needs = [each.id]
            for earlier, later in zip([step, *after], after, strict=False):
                later.needs = [earlier.id]
            if after:
                moved[step.id] = [after[-1].id]
            found += [*before, step, *after]
            inside = f"{prefix}{step.id}.iter1." if step.loop else prefix
            waiting += [*before, step, *self._surround(step.inner(), rules, inside, moved)]
        steps[:] = found
        return waiting

    def _beside(self, advice: Step, target: Step) -> Step:
        about = {"id": target.id, "title": target.title or target.id}
        return self._copied(advice, _STEP_NAME, lambda match: about[match["field"] or "id"])

    # -- limits and checks ---------------------------------------------------------------

    def _is(self, formula: Formula, kind: str, name: str, path: str) -> bool:
        if formula.data.get("type", kind) == kind:
            return True
        self._losses.refuse(path, f"{name!r} is no {kind}, but {show(formula.data['type'])}.")
        return False

    def _check_pattern(self, pattern: str, path: str) -> None:
        if re.search(r"\.iter\d", pattern):
            self._losses.refuse(path, f"{pattern!r} names one turn of a loop; here all are alike.")

    def _check_size(self, more: int) -> None:
        self._made += more
        if self._made > 2 * MAX_NODES:
            raise TooMuch(f"It would become more than {MAX_NODES:,} steps.")


def _all(steps: list[Step], prefix: str = "") -> Iterator[tuple[str, Step]]:
    """All steps, those inside of others too, with the names that patterns are compared with."""
    for step in steps:
        yield prefix + step.id, step
        yield from _all(step.inner(), f"{prefix}{step.id}.iter1." if step.loop else prefix)


def _replace(steps: list[Step], found: dict[int, list[Step]]) -> None:
    """Put others in the place of steps; who needed one of these needs what ends the others."""
    moved: dict[str, list[str]] = {}
    old = [step for _, step in _all(steps) if id(step) not in found]

    def put(level: list[Step]) -> None:
        for step in level:
            if id(step) in found:
                inner = found[id(step)]
                needed = {need for each in inner for need in each.needs}
                moved[step.id] = [each.id for each in inner if each.id not in needed]
            put(step.inner())
        level[:] = [each for step in level for each in found.get(id(step), [step])]

    put(steps)
    for step in old:
        step.needs = _rewired(step.needs, moved)
    for group in found.values():
        own = {each.id for each in group}
        others = {name: ends for name, ends in moved.items() if name not in own}
        for _, step in _all(group):
            step.needs = _rewired(step.needs, others)


def _rewired(needs: list[str], moved: dict[str, list[str]]) -> list[str]:
    return list(dict.fromkeys(each for need in needs for each in moved.get(need, [need])))


def _matches(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern.replace("[^", "[!"))


def _is_cut(cuts: list[dict[str, Any]], name: str, step: Step) -> bool:
    return any(
        cut and _matches(str(cut.get("glob", "*")), name)
        and cut.get("type", step.type) == step.type
        and ("label" not in cut or cut["label"] in step.labels)
        for cut in cuts
    )  # fmt: skip

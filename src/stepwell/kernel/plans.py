"""Plans: how much a workspace may have, from which every refusal can say what it was."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.errors import InvalidInput, QuotaExceeded


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a workspace; None is no limit."""

    name: str
    definitions: int | None = None
    runs_per_month: int | None = None
    # Of definitions that are data; code is the operator's own.
    steps_per_run: int | None = None
    tokens_per_step: int | None = None
    tokens_per_month: int | None = None
    # How far apart the times of a schedule have to be.
    schedule_seconds: int | None = None
    # For each definition.
    webhooks_per_minute: int | None = None
    concurrent_runs: int | None = None

    def facts(self, limit: str) -> dict[str, Any]:
        """What the details of every refusal by this plan have: the limit, its value, the plan."""
        return {"plan": self.name, "limit": limit, "value": getattr(self, limit)}

    def sentence(self, limit: str, what: str) -> str:
        """What is said to whoever wants more of this than the plan has."""
        return f"The plan {self.name!r} allows {getattr(self, limit):,} {what}, and has no more."

    def refusal(self, limit: str, what: str) -> QuotaExceeded:
        return QuotaExceeded(self.sentence(limit, what), **self.facts(limit))


NO_PLAN = Plan("unlimited")
PLANS = {
    plan.name: plan
    for plan in (
        Plan("free", 3, 50, 10, 4_000, 100_000, 3600, 5, 1),
        Plan("pro", 20, 1_000, 50, 16_000, 1_000_000, 300, 30, 5),
        Plan("enterprise", None, 10_000, 200, 64_000, 10_000_000, 60, 100, 20),
        NO_PLAN,
    )
}


def read_plan(text: str, what: str) -> Plan:
    """A plan by its name, or as JSON with limits of one's own."""
    return _plan(_json(text, what) if text.lstrip().startswith("{") else text, what)


def read_plans(text: str, what: str) -> dict[str, Plan]:
    """Plans by the workspaces that have them: a JSON object of names, or of plans in JSON."""
    return {key: _plan(value, f"{what}, {key}") for key, value in _json(text, what).items()}


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{what} is no JSON object: {error}.") from error


def _plan(given: Any, what: str) -> Plan:
    if isinstance(given, str) and given in PLANS:
        return PLANS[given]
    if not isinstance(given, dict):
        raise InvalidInput(
            f"{what}: there is no plan {given!r:.50}; there are {', '.join(PLANS)}, or JSON like "
            '{"runs_per_month": 500}.'
        )
    try:
        plan = msgspec.convert({"name": "custom"} | given, type=Plan)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{what} is no plan: {error}.") from error
    if plan.name in PLANS:
        raise InvalidInput(f"{what}: {plan.name!r} is a plan already; call yours otherwise.")
    for name in Plan.__struct_fields__[1:]:
        value = getattr(plan, name)
        if value is not None and value < 0:
            raise InvalidInput(f"{what}: {name} is not negative.")
    return plan

"""What bounds starts: settings of the operator, the workspace's plan, policies of definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepwell.errors import InvalidInput
from stepwell.graph.definition import Definition
from stepwell.graph.pacing import key_value
from stepwell.kernel.clock import SECOND, moment
from stepwell.kernel.durations import seconds
from stepwell.kernel.limits import STORE_LIMIT, plan_limit, user_limit, workspace_limit
from stepwell.kernel.names import bounded, check_text
from stepwell.kernel.pacing import FIELDS, Debounce, Quota, Throttle, faults_of, longest_wait
from stepwell.kernel.plans import NO_PLAN, Plan


class Bounds(msgspec.Struct, frozen=True):
    """What holds for every run that a process starts."""

    max_retention_seconds: float
    max_bytes: int
    plan: Plan = NO_PLAN
    max_runs: int | None = None
    max_runs_per_user: int | None = None
    max_runs_in_all: int | None = None

    def limits(self, workspace_id: str, definition: str, user: str | None) -> list[tuple[str, int]]:
        """Limits beside those of the definition, with how many are active at once."""
        found = []
        most = self.plan.concurrent_runs
        if most == 0:  # one that queued would do so for ever
            raise self.plan.refusal("concurrent_runs", "runs at the same time")
        if most is not None:
            found.append((plan_limit(workspace_id, definition), most))
        if user is not None:
            check_text(user, "user")
            if self.max_runs_per_user is not None:
                found.append((user_limit(workspace_id, user), self.max_runs_per_user))
        if self.max_runs is not None:
            found.append((workspace_limit(workspace_id), self.max_runs))
        if self.max_runs_in_all is not None:
            found.append((STORE_LIMIT, self.max_runs_in_all))
        return found

    def quota(self, workspace_id: str, now: int) -> Quota | None:
        """What every start of this month uses up."""
        most = self.plan.runs_per_month
        if most is None:
            return None
        month = f"{moment(now):%Y-%m}"
        said = self.plan.sentence("runs_per_month", f"runs in {month}")
        facts = self.plan.facts("runs_per_month")
        return Quota(f"runs:{workspace_id}/{month}", most, said, facts)


def with_policy(
    options: Mapping[str, Any], definition: Definition, current: Definition, input: Any,
    trigger: Any,
) -> Any:  # fmt: skip
    """The options of a start, with what the policy of its definition says of the others.

    How many begin or are active is what the `current` revision says, whichever the run is of.
    """
    found: dict[str, Any] = {}
    if definition.policy.priority:
        found["priority"] = definition.policy.priority
    if definition.policy.ttl is not None:
        found["ttl"] = definition.policy.ttl
    policy = current.policy
    if policy.concurrency is not None and options.get("concurrency_key") is None:
        found["concurrency_key"] = policy_key(current, input, trigger)
        found["concurrency_limit"] = policy.concurrency.limit
    for name in ("throttle", "debounce"):
        if (paced := getattr(policy, name)) is not None:
            fields = msgspec.structs.asdict(paced)
            found[name] = fields | {"key": key_value(paced.key, input, trigger)}
    return found | {name: options[name] for name in options if options[name] is not None}


def policy_key(definition: Definition, input: Any, trigger: Any) -> str | None:
    """The concurrency key that the policy of a definition gives to a run."""
    concurrency = definition.policy.concurrency
    if concurrency is None:
        return None
    return bounded(f"{definition.name}:{key_value(concurrency.key, input, trigger)}")


def read_throttle(given: Mapping[str, Any] | None, scope: str) -> Throttle | None:
    """A throttle as it is given to a start."""
    if given is None:
        return None
    key = _key("throttle", given, scope)
    return Throttle(key, given["limit"], _micros(given["per"]))


def read_debounce(given: Mapping[str, Any] | None, scope: str) -> Debounce | None:
    """A debounce as it is given to a start."""
    if given is None:
        return None
    key = _key("debounce", given, scope)
    return Debounce(key, _micros(given["wait"]), _micros(longest_wait(given)))


def _key(what: str, given: Any, scope: str) -> str:
    """The key of what is given, if nothing is wrong with it."""
    if not isinstance(given, Mapping) or not set(given) <= set(FIELDS[what]):
        raise InvalidInput(f"{what} is a mapping with {', '.join(FIELDS[what])}.")
    for fault in faults_of(what, given):
        raise InvalidInput(f"{what}.{fault.field}: {fault.message}")
    return bounded(f"{what}:{scope}:{given.get('key') or ''}")


def _micros(duration: Any) -> int:
    return int(seconds(duration) * SECOND)

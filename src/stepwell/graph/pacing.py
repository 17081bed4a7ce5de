"""How often and how many at once: the part of a policy that is about starting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepwell.errors import MissingPath
from stepwell.graph.definition import Concurrency, DebouncePolicy, ThrottlePolicy
from stepwell.graph.fields import Fields
from stepwell.graph.problems import Problems, below
from stepwell.graph.refs import Names, as_text, read_template, refs_in, resolve
from stepwell.graph.scope import Scope
from stepwell.kernel.durations import seconds
from stepwell.kernel.pacing import FIELDS, faults_of, faulty_priority, longest_wait

# The roots that are there before a run is.
_ROOTS = ("input", "trigger")
_NAMES = Names((), secrets=False)


class Pacing:
    """Reads the fields of a policy that say how its runs are started."""

    def __init__(self, fields: Fields, problems: Problems) -> None:
        self._fields = fields
        self._problems = problems

    def read(self, data: Mapping[str, Any], path: str) -> dict[str, Any]:
        """The fields of a Policy that are about starting."""
        throttle, debounce = self._throttle(data, path), self._debounce(data, path)
        if throttle is not None and debounce is not None:
            self._problems.error(
                below(path, "debounce"), "bad_field",
                "A policy has a throttle or a debounce: what waits to be quiet is slow already.",
            )  # fmt: skip
        timeout = self._fields.duration(data, "timeout", path)
        wait = 0 if debounce is None else seconds(debounce.wait)
        if debounce is not None and timeout is not None and seconds(timeout) <= wait:
            self._problems.error(
                below(path, "timeout"), "bad_field",
                "timeout is over before a debounced run begins; make it longer than its wait.",
            )  # fmt: skip
        most = self._fields.count(data, "max_concurrent_runs", path, None)
        queued = self._fields.count(data, "max_queued_runs", path, None, least=0)
        concurrency = self._concurrency(data, path)
        if queued is not None and data.get("max_concurrent_runs") is None and concurrency is None:
            self._problems.error(
                below(path, "max_queued_runs"), "bad_field",
                "max_queued_runs is for runs that wait for a slot, and here none has to.",
                "Write max_concurrent_runs, or concurrency, too.",
            )  # fmt: skip
        return {
            "max_concurrent_runs": most,
            "max_queued_runs": queued,
            "timeout": timeout,
            "concurrency": concurrency,
            "throttle": throttle,
            "debounce": debounce,
            "priority": self._priority(data, path),
            "ttl": self._fields.duration(data, "ttl", path),
        }

    def _concurrency(self, data: Mapping[str, Any], path: str) -> Concurrency | None:
        found, at = self._mapping(data, "concurrency", path, ("key", "limit"))
        if found is None:
            return None
        if "key" not in found:
            self._problems.error(
                below(at, "key"), "missing_field", "concurrency has a key.",
                'Like "@input.customer"; for all runs together write max_concurrent_runs.',
            )  # fmt: skip
        return Concurrency(self._key(found, at), self._fields.count(found, "limit", at, 1) or 1)

    def _throttle(self, data: Mapping[str, Any], path: str) -> ThrottlePolicy | None:
        found = self._paced(data, "throttle", path)
        return None if found is None else ThrottlePolicy(**found)

    def _debounce(self, data: Mapping[str, Any], path: str) -> DebouncePolicy | None:
        found = self._paced(data, "debounce", path)
        return None if found is None else DebouncePolicy(**found | {"max": longest_wait(found)})

    def _paced(self, data: Mapping[str, Any], what: str, path: str) -> dict[str, Any] | None:
        found, at = self._mapping(data, what, path, FIELDS[what])
        if found is None:
            return None
        faults = faults_of(what, found)
        for fault in faults:
            self._problems.error(below(at, fault.field), fault.code, fault.message)
        if not any(fault.field == "key" for fault in faults):
            self._key(found, at)
        return None if faults else {name: found[name] for name in FIELDS[what] if name in found}

    def _mapping(
        self, data: Mapping[str, Any], key: str, path: str, known: tuple[str, ...]
    ) -> tuple[dict[str, Any] | None, str]:
        at = below(path, key)
        found = self._fields.mapping(data, key, path)
        if found is not None:
            self._fields.known(found, known, at)
        return found, at

    def _priority(self, data: Mapping[str, Any], path: str) -> int:
        found = data.get("priority", 0)
        if (said := faulty_priority(found)) is not None:
            self._problems.error(below(path, "priority"), "bad_field", said)
            return 0
        return int(found)

    def _key(self, data: Mapping[str, Any], path: str) -> Any:
        key = data.get("key")
        if key is None:
            return None
        at = below(path, "key")
        if not isinstance(key, str):
            self._problems.error(at, "bad_field", 'key is a text, like "@input.customer".')
            return None
        for ref in refs_in(read_template(key, _NAMES, at, self._problems)):
            if ref.root not in _ROOTS:
                self._problems.error(
                    at, "bad_field", f"{ref.text} is not there yet when a run is started.",
                    "A key is made of the input.",
                )  # fmt: skip
        return key


def key_value(key: Any, input: Any, trigger: Any) -> str:
    """What a key is for this input, as text; what is missing is nothing."""
    if key is None:
        return ""
    template = read_template(key, _NAMES, "key", Problems())
    try:
        return as_text(resolve(template, Scope({"input": input, "trigger": trigger})))
    except MissingPath:
        return ""

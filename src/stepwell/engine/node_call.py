"""One execution of a node: what it is given, and what it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stepwell.engine.context import Context
from stepwell.engine.gates import Gates
from stepwell.engine.vault import Vault
from stepwell.graph.plan import PlanNode
from stepwell.graph.refs import Composed, Inserted, Text, as_text, look_up, resolve
from stepwell.graph.scope import Scope
from stepwell.kernel.clock import Clock
from stepwell.record import Records


class NodeHost:
    """What nodes may use of the process they are executed in."""

    def __init__(
        self, records: Records, vault: Vault, clock: Clock, workspace_id: str,
        functions: Mapping[str, Callable[..., Any]], *, allow_private: bool, folder: str,
        environment: Mapping[str, str], hidden: Sequence[str],
    ) -> None:  # fmt: skip
        self.gates = Gates(records, clock, workspace_id)
        self.vault = vault
        self.clock = clock
        self.functions = functions
        self.allow_private = allow_private
        self.folder = folder
        self.environment = environment
        self.hidden = hidden


class NodeCall:
    """One execution of a node: where it stands, and what its references see."""

    def __init__(
        self, context: Context, node: PlanNode, key: str, scope: Scope, host: NodeHost
    ) -> None:
        self.durably = context
        self.key = key
        self.host = host
        self._node = node
        self._scope = scope

    @property
    def run_id(self) -> str:
        return self.durably.run_id

    @property
    def attempt(self) -> int:
        return self.durably.attempt

    @property
    def idempotency_key(self) -> str:
        return self.durably.idempotency_key

    @property
    def traceparent(self) -> str | None:
        return self.durably.traceparent

    @property
    def revision(self) -> str:
        """The hash of the document that the run executes."""
        return self.durably.claimed.revision or ""

    @property
    def definition(self) -> str:
        return self.durably.claimed.definition

    @property
    def unattended(self) -> bool:
        """Whether nobody is there to do tasks: they count as done."""
        trigger = self.durably.claimed.trigger
        return trigger is not None and bool(msgspec.json.decode(trigger).get("auto_advance"))

    async def in_thread(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a plain function in a thread that nobody waits for in the end."""
        return await self.durably.in_thread(function, *args, **kwargs)

    def reveal(self, secrets: Mapping[str, str]) -> None:
        """Let references see secrets."""
        self._scope = Scope({"secrets": secrets}, self._scope)

    def config(self) -> dict[str, Any]:
        """The config with its references resolved."""
        found: dict[str, Any] = resolve(self._node.config, self._scope)
        return found

    def parts(self, field: str) -> list[str]:
        """The text of a field in parts; what references have put in is `Inserted`."""
        config = self._node.config
        fields: Any = config.value if isinstance(config, Composed) else {}
        template = fields.get(field)
        if not isinstance(template, Text):
            return [str(self.config()[field])]
        return [
            part if isinstance(part, str) else Inserted(as_text(look_up(part, self._scope)))
            for part in template.parts
        ]

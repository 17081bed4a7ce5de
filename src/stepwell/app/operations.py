"""Use cases by their nouns: `stepwell.definitions.publish(…)`, `stepwell.gates.decide(…)`."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from stepwell.app.keys import keyring_for
from stepwell.catalog import node_types, trigger_types
from stepwell.engine.crew import Crew
from stepwell.engine.firing import Firer
from stepwell.engine.observer import Observer
from stepwell.engine.starting import Starter
from stepwell.engine.tally import Tally
from stepwell.engine.vault import Vault
from stepwell.engine.writer import Writer
from stepwell.kernel.changes import Committed
from stepwell.kernel.ids import Ids
from stepwell.kernel.records import TriggerRecord
from stepwell.kernel.sealing import Keyring
from stepwell.operation import Engine, Noun, Workspace
from stepwell.operations.audit import Audit
from stepwell.operations.definitions import Definitions
from stepwell.operations.events import Events
from stepwell.operations.gates import Gates
from stepwell.operations.proposals import Proposals
from stepwell.operations.runs import Runs
from stepwell.operations.secrets import Secrets
from stepwell.operations.steps import Steps
from stepwell.operations.tokens import Tokens
from stepwell.operations.triggers import Triggers
from stepwell.operations.users import Users
from stepwell.operations.workers import Workers
from stepwell.operations.workspaces import Workspaces
from stepwell.settings import Settings
from stepwell.store import Store
from stepwell.telemetry import Telemetry, trace_at_hand


class Operations:
    """The operations of a workspace."""

    store: Store
    _workspace: str
    _ids: Ids
    _writer: Writer
    _crew: Crew
    _starter: Starter
    _observer: Observer
    _telemetry: Telemetry
    _settings: Settings
    _url: str | None

    @cached_property
    def definitions(self) -> Definitions:
        """Definitions that are data: drafts, revisions, what is current."""
        return Definitions(self._place)

    @cached_property
    def proposals(self) -> Proposals:
        """Changes of definitions that somebody suggests."""
        return Proposals(self._place)

    @cached_property
    def runs(self) -> Runs:
        """One durable execution of a definition each."""
        return Runs(self._place)

    @cached_property
    def gates(self) -> Gates:
        """What waits for a decision."""
        return Gates(self._place)

    @cached_property
    def secrets(self) -> Secrets:
        """Values that nodes may use and nobody can see."""
        return Secrets(self._place, self._keys, self._vault.forget)

    @cached_property
    def triggers(self) -> Triggers:
        """What starts runs by itself."""
        return Triggers(self._place)

    @cached_property
    def events(self) -> Events:
        """What happened in the workspace."""
        return Events(self._place)

    def noun(self, name: str) -> Noun:
        """What the operations of a noun are methods of."""
        return self._nouns[name]

    @cached_property
    def _nouns(self) -> dict[str, Noun]:
        found: tuple[Noun, ...] = (
            self.definitions, self.proposals, self.runs, Steps(self._place), self.gates,
            self.triggers, self.events, self.secrets, Workers(self._place), Workspaces(self._place),
            Users(self._place), Tokens(self._place), Audit(self._place),
        )  # fmt: skip
        return {each.noun: each for each in found}

    @cached_property
    def _place(self) -> Workspace:
        self._writer.check_open()
        return Workspace(
            self.store, self._workspace, self._ids, self.store.clock, node_types, self._changed,
            self._fire, self._tally.drained, self._settings.plan_of(self._workspace),
            cast("Engine", self),
        )  # fmt: skip

    @cached_property
    def _firer(self) -> Firer:
        return Firer(
            self.store, self._workspace, self._starter, self._ids, trigger_types, self._changed,
            self._observer.started,
        )  # fmt: skip

    @cached_property
    def _vault(self) -> Vault:
        return Vault(self.store.records, self._workspace, self._keyring, self.store.clock)

    @cached_property
    def _tally(self) -> Tally:
        return Tally(self.store, self._workspace)

    async def _fire(
        self, trigger: TriggerRecord, payload: Any, key: str | None, user: str | None
    ) -> tuple[str, bool]:
        """Start the run of a trigger that somebody fires by hand."""
        trace = trace_at_hand(self._telemetry)
        run_id, created = await self._firer.fire(trigger, payload, key, user, trace)
        if created:
            self._tally.fired(trigger, run_id)
        return run_id, created

    def _changed(self, committed: Committed) -> None:
        """An operation has written what workers, here or elsewhere, may want to hear of."""
        self.store.announce(committed)
        self._observer.ended(committed.ended)
        self._crew.claim_soon()
        if committed.firing:
            self._crew.fire_soon()

    def _keyring(self) -> Keyring | None:
        """The operator's keys, if there are any."""
        return keyring_for(self._settings, self._url)

    def _keys(self) -> Keyring:
        """The operator's keys; a SQLite store that has none is given one."""
        found = keyring_for(self._settings, self._url, make=True)
        assert found is not None
        return found

"""Use cases by their nouns: `stepwell.gates.decide(…)`, `stepwell.secrets.set(…)`.

Loaded when they are needed: node types come with a library of models, which takes its time.
"""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from stepwell.app.keys import keyring_for
from stepwell.catalog import node_types
from stepwell.engine.dispatcher import Dispatcher
from stepwell.kernel.changes import Committed
from stepwell.kernel.ids import Ids
from stepwell.kernel.sealing import Keyring
from stepwell.settings import Settings
from stepwell.store import Store

if TYPE_CHECKING:
    from stepwell.operation import Workspace
    from stepwell.operations.gates import Gates
    from stepwell.operations.secrets import Secrets


class Operations:
    """The operations of a workspace."""

    store: Store
    _workspace: str
    _ids: Ids
    _dispatcher: Dispatcher
    _settings: Settings
    _url: str | None

    @cached_property
    def gates(self) -> Gates:
        """What waits for a decision."""
        found: Gates = import_module("stepwell.operations.gates").Gates(self._place)
        return found

    @cached_property
    def secrets(self) -> Secrets:
        """Values that nodes may use and nobody can see."""
        module = import_module("stepwell.operations.secrets")
        found: Secrets = module.Secrets(self._place, self._keys)
        return found

    @cached_property
    def _place(self) -> Workspace:
        place: Workspace = import_module("stepwell.operation").Workspace(
            self.store, self._workspace, self._ids, self.store.clock, node_types, self._changed
        )
        return place

    def _changed(self, committed: Committed) -> None:
        """An operation has written what workers, here or elsewhere, may want to hear of."""
        self.store.announce(committed)
        self._dispatcher.claim_soon()

    def _keyring(self) -> Keyring | None:
        """The operator's keys, if there are any."""
        return keyring_for(self._settings, self._url)

    def _keys(self) -> Keyring:
        """The operator's keys; a SQLite store that has none is given one."""
        found = keyring_for(self._settings, self._url, make=True)
        assert found is not None
        return found

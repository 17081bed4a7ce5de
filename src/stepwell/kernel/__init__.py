"""The pure middle of Stepwell: records, states, changes, retries, time and names.

Nothing here reads or writes anything. A *run* moves through the states of `states.TRANSITIONS`;
everything that alters one is a *change* (`changes`), a plain value that the engine hands to
its writer and a store applies. `codec` is the one way values become JSON, `clock` the one
way anything learns the time, `ids` the one source of new ids.
"""

from __future__ import annotations

"""The trigger `manual`: somebody fires it."""

from __future__ import annotations

from stepwell.trigger import TriggerConfig, TriggerType


class Manual(TriggerType):
    """Fires when somebody says so, with what they give; the definition checks that."""

    name, title, config = "manual", "By hand", TriggerConfig
    aliases = ("trigger_manual",)


manual = Manual()

"""The trigger `manual`: somebody fires it."""

from __future__ import annotations

from stepwell.trigger import TriggerConfig, TriggerType


class Manual(TriggerType):
    """Fires when somebody says so, with what they give: what the definition's inputs allow."""

    name, title, config = "manual", "By hand", TriggerConfig
    aliases = ("trigger_manual",)

    # Whoever fires it means every word.
    loose = False

    def described(self, config: TriggerConfig) -> str:
        return "When somebody fires it."


manual = Manual()

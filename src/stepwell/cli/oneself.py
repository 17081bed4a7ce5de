"""Who uses the command line."""

from __future__ import annotations

import getpass
import os


def own_name() -> str:
    """Their name; containers have users that no list names, who are told by their number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"

"""The environment variables that the processes of nodes get."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from stepwell.errors import ConfigInvalid
from stepwell.kernel.masking import beginning

# Linux takes at most 128 KiB for one argument or variable.
MAX_BYTES = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def checked(variables: Mapping[str, str]) -> dict[str, str]:
    """The same variables, if a process can have them."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise ConfigInvalid(
                f"A variable cannot be named {name!r}: names have letters, digits and _."
            )
        if "\0" in value:
            raise ConfigInvalid(f"The variable {name!r} holds the character NUL.")
        if size(value) > MAX_BYTES:
            raise ConfigInvalid(
                f"The variable {name!r} has more than {MAX_BYTES:,} bytes; "
                "hand large texts over on the standard input."
            )
    return dict(variables)


def size(text: str) -> int:
    """How many bytes a text is for a process."""
    try:
        return len(os.fsencode(text))
    except UnicodeEncodeError:
        shown = beginning(text, 40)
        raise ConfigInvalid(f"{shown!r} holds half a character; no process takes it.") from None

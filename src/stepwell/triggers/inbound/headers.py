"""Headers of a request: asked for by name in any case, from pairs as an ASGI server has them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

# Names of headers that may carry a secret, or proof of one.
_SECRET = re.compile(
    r"secret|signature|token|passw|cookie|session|credential|authori[sz]ation|(api|access|private)-?key"
    r"|(^|-)(auth|cert|dpop|hmac|jwt|sig)(-|$)"
)


class Headers(Mapping[str, str]):
    """A mapping of lower-case names; a header that came several times is joined by commas."""

    def __init__(self, pairs: Iterable[tuple[str | bytes, str | bytes]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(_text(name).lower(), []).append(_text(value).strip(" \t"))

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values[name.lower()])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def all(self, name: str) -> list[str]:
        """Every value of a header, in the order in which they came."""
        return list(self._values.get(name.lower(), ()))

    def without_secrets(self, hidden: Collection[str] = ()) -> dict[str, str]:
        """The headers that may be shown and stored: `hidden` is left out, and what is secret."""
        names = {name.lower() for name in hidden}
        return {
            name: value
            for name, value in self.items()
            if name not in names and not _SECRET.search(name)
        }


def _text(value: str | bytes) -> str:
    # Bytes beyond ASCII have no agreed meaning in headers; this keeps them apart, one by one.
    return value if isinstance(value, str) else value.decode("latin-1")

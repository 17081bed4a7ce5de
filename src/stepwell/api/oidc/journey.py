"""What a browser keeps on its way to the provider and back."""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from typing import NamedTuple

from stepwell.kernel.access import fits, hash_of, new_secret

_FORM = re.compile(r"[A-Za-z0-9_-]{43}(?:\.[A-Za-z0-9_-]{43}){2}")


class Journey(NamedTuple):
    """Three texts that nobody can guess."""

    # Comes back with the browser: whoever is led here by somebody else has another one, or none.
    state: str
    # Comes back in the ID token, which was made for this journey then.
    nonce: str
    # Goes along with the code, of no use to those who have got hold of a code alone (PKCE).
    verifier: str

    @classmethod
    def begin(cls) -> Journey:
        return cls(new_secret(), new_secret(), new_secret())

    @classmethod
    def read(cls, text: str) -> Journey | None:
        """The journey that a cookie is about, if it is about one."""
        return cls(*text.split(".")) if _FORM.fullmatch(text) else None

    def written(self) -> str:
        return ".".join(self)

    def is_of(self, state: str) -> bool:
        """Whether who comes back with that state has begun this journey."""
        return fits(state, hash_of(self.state))

    @property
    def challenge(self) -> str:
        """What the provider is told of the verifier before it has to be shown."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return urlsafe_b64encode(digest).rstrip(b"=").decode()

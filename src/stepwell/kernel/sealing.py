"""Sealing secrets with a key, so that a store holds nothing that could be read without it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from stepwell.errors import SecretKeyInvalid

KEY_BYTES = 32
_NONCE_BYTES = 12


def new_key() -> str:
    """A fresh key, as it is written into files and variables."""
    return base64.b64encode(AESGCM.generate_key(8 * KEY_BYTES)).decode()


class Keyring:
    """Keys of an operator: the first one seals, any of them opens."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        assert keys
        self._keys = {_id(key): AESGCM(key) for key in keys}
        self.key_id = _id(keys[0])

    @classmethod
    def read(cls, text: str, what: str) -> Keyring:
        """Keys as base64 texts, apart by commas or line breaks."""
        keys = []
        for word in text.replace(",", "\n").split():
            try:
                key = base64.b64decode(word, validate=True)
            except (ValueError, binascii.Error):
                key = b""
            if len(key) != KEY_BYTES:
                raise SecretKeyInvalid(
                    f"{what} must hold keys of {KEY_BYTES} bytes in base64. Make one with "
                    "`stepwell secrets new-key`."
                )
            keys.append(key)
        if not keys:
            raise SecretKeyInvalid(f"{what} holds no key.")
        return cls(keys)

    def seal(self, value: str, about: str) -> str:
        """Encrypt a value; `about`, the secret's place, has to be the same when it is opened."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self.key_id].encrypt(nonce, value.encode(), about.encode())
        return base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str, key_id: str, about: str) -> str:
        """Decrypt what was sealed with one of these keys."""
        key = self._keys.get(key_id)
        if key is None:
            raise SecretKeyInvalid(
                f"The secret {about.rpartition('/')[2]!r} was sealed with the key {key_id}, which "
                f"is not among those given: {', '.join(self._keys)}. Add it to "
                "STEPWELL_SECRET_KEY, behind a comma."
            )
        try:
            raw = base64.b64decode(sealed)
            return key.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], about.encode()).decode()
        except (InvalidTag, ValueError):
            raise SecretKeyInvalid(
                f"The secret {about.rpartition('/')[2]!r} cannot be opened: it was changed in the "
                "store."
            ) from None


def _id(key: bytes) -> str:
    """A name for a key that says nothing about it."""
    return hashlib.sha256(b"stepwell key" + key).hexdigest()[:12]

"""The files by which commands on this machine find a server: where it is, and a token."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from stepwell.errors import InvalidInput
from stepwell.settings import DEFAULT_STORE
from stepwell.stores.folder import make_folder

# How long a server on this machine may take to be there.
PROBE_SECONDS = 2.0


class ServerFiles:
    """`url` and `token` in the engine's own folder."""

    def __init__(self, folder: Path) -> None:
        self._url = folder / "url"
        self.token_path = folder / "token"

    @property
    def url(self) -> str | None:
        """Where a server is, or was when it was killed."""
        return _read(self._url)

    @property
    def token(self) -> str | None:
        return _read(self.token_path)

    def keep_token(self, text: str) -> None:
        """Keep a token where only this user can read it."""
        _keep(self.token_path, text)

    @contextlib.contextmanager
    def naming(self, url: str) -> Iterator[None]:
        """Name the server meanwhile."""
        _keep(self._url, url)
        try:
            yield
        finally:
            if self.url == url:
                self._url.unlink(missing_ok=True)


def listens(url: str) -> bool:
    """Whether somebody is there at all."""
    try:
        parts = urlsplit(url)
        address = (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        socket.create_connection(address, PROBE_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def needs_store(what: str) -> InvalidInput:
    """What is said of something that no server does."""
    return InvalidInput(
        f"{what} needs a store itself, and a server is named in its place: by STEPWELL_URL, or "
        f"because one runs in this folder. Name the store, for instance: --store {DEFAULT_STORE}"
    )


def _keep(path: Path, text: str) -> None:
    make_folder(path.parent)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    # Made readable for nobody else before there is anything to read.
    beside.touch(0o600, exist_ok=False)
    beside.write_text(text + "\n")
    beside.replace(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None

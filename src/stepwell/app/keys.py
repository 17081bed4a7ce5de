"""Where the key comes from that secrets are sealed with."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from stepwell.catalog import is_sqlite, sqlite_path
from stepwell.errors import SecretKeyInvalid
from stepwell.kernel.sealing import Keyring, new_key
from stepwell.settings import Settings
from stepwell.stores.folder import make_folder


def own_files(settings: Settings, url: str | None) -> list[str]:
    """Files that hold the store and its key; nothing that is executed may read them."""
    found = [] if settings.secret_key_file is None else [settings.secret_key_file]
    if url is not None and is_sqlite(url):
        store = Path(sqlite_path(url)).absolute()
        found += [f"{store}{ending}" for ending in ("", "-wal", "-shm")]
        found.append(str(store.with_name("secret.key")))
    return found


def keyring_for(settings: Settings, url: str | None, *, make: bool = False) -> Keyring | None:
    """The operator's keys: from the environment, a file it names, or the file by the store.

    With `make`, a SQLite store that has none yet is given one, for its owner's eyes only.
    """
    if settings.secret_key is not None:
        return Keyring.read(settings.secret_key, "STEPWELL_SECRET_KEY")
    if settings.secret_key_file is not None:
        return _read(Path(settings.secret_key_file))
    if url is None or not is_sqlite(url):
        if make:
            raise SecretKeyInvalid(
                "Secrets need a key that all workers share. Make one with `stepwell secrets "
                "new-key` and give it to all of them as STEPWELL_SECRET_KEY."
            )
        return None
    path = Path(sqlite_path(url)).with_name("secret.key")
    if make and not path.exists():
        _write(path)
    return _read(path) if path.exists() else None


def _read(path: Path) -> Keyring:
    try:
        return Keyring.read(path.read_text("ascii"), f"The file {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise SecretKeyInvalid(f"The key file {path} cannot be read: {error}.") from error


def _write(path: Path) -> None:
    """Make a key file that only its owner can read; another process may be faster."""
    make_folder(path.parent)
    # Made under another name first: whoever finds the file by its own has to find all of it.
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for the owner only
    try:
        with os.fdopen(handle, "w") as file:
            file.write(new_key() + "\n")
            file.flush()
            os.fsync(handle)
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
    finally:
        Path(made).unlink()

"""The folder in which a store, its key and the files of a server are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from stepwell.kernel.names import STATE_FOLDER


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there; the engine's own is for its owner's eyes only."""
    if folder.name != STATE_FOLDER:
        folder.mkdir(parents=True, exist_ok=True)
        return
    folder.mkdir(0o700, parents=True, exist_ok=True)
    # Key and store together are as good as the secrets: they must not get into a repository.
    with suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
        file.write("*\n")

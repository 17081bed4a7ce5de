"""What a new store begins with, and what lets whoever runs the server in."""

from __future__ import annotations

import socket
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.errors import Unauthenticated
from stepwell.kernel.access import TokenRecord, UserRecord, hash_of, is_live, new_token

if TYPE_CHECKING:
    from stepwell.app.hosting import Host
    from stepwell.app.stepwell import Stepwell

AUTHOR = "stepwell"
# What the token is called that lies beside the store, before the names of machine and folder.
LOCAL = "local"


async def publish_samples(stepwell: Stepwell) -> None:
    """Publish definitions to look at, to run and to change, unless there are some already."""
    if await stepwell.definitions.list():
        return
    folder = files("stepwell.app.samples")
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.name.endswith(".yaml"):
            await stepwell.definitions.sync(each.read_text("utf-8"), author=AUTHOR)


async def login_link(host: Host) -> str | None:
    """A text that logs the first owner of the first workspace in, once."""
    owner = await first_owner(host)
    return None if owner is None else await host.doorkeeper.new_link(owner.name)


async def local_token(host: Host, known: str | None, folder: Path) -> str | None:
    """The token that is known, if it still opens; else a new one of an owner's.

    A new one takes the place of the one before in that folder: what was lost shall not open.
    """
    if known is not None:
        try:
            await host.doorkeeper.by_token(known)
        except Unauthenticated:
            pass
        else:
            return known
    owner = await first_owner(host)
    if owner is None:
        return None
    access, now, name = host.first.store.access, host.first.store.clock.now(), _name(folder)
    before = await access.tokens(host.first_id, owner.id)
    token_id = host.ids.new()
    text = new_token(token_id)
    await access.add_token(
        TokenRecord(token_id, host.first_id, owner.id, name, hash_of(text), "own", now)
    )
    for each in before:
        if each.name == name and is_live(each, now):
            await access.revoke_token(host.first_id, each.id, now)
    return text


def _name(folder: Path) -> str:
    """What the token is called: servers on several machines, or in several folders, have theirs."""
    return f"{LOCAL} {socket.gethostname()} {folder.resolve()}"


async def first_owner(host: Host) -> UserRecord | None:
    """The owner of the first workspace who has been there for longest."""
    found = await host.first.store.access.members(host.first_id)
    owners = [each for each in found if each[1].role == "owner" and not each[0].disabled_at]
    # Ids count up as well: of two who joined at once, the first.
    first = min(owners, key=lambda each: (each[1].joined_at, each[0].id), default=None)
    return None if first is None else first[0]

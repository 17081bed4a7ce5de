"""What a new store begins with, and what lets whoever runs the server in."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from stepwell.errors import Unauthenticated
from stepwell.kernel.access import TokenRecord, UserRecord, hash_of, new_token

if TYPE_CHECKING:
    from stepwell.app.hosting import Host
    from stepwell.app.stepwell import Stepwell

AUTHOR = "stepwell"
# What the token is called that lies beside the store.
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
    """A text that logs an owner of the first workspace in, once."""
    owner = await _owner(host)
    return None if owner is None else await host.doorkeeper.new_link(owner.name)


async def local_token(host: Host, known: str | None) -> str | None:
    """The token that is known, if it still opens; else a new one of an owner's."""
    if known is not None:
        try:
            await host.doorkeeper.by_token(known)
        except Unauthenticated:
            pass
        else:
            return known
    owner = await _owner(host)
    if owner is None:
        return None
    token_id, now = host.ids.new(), host.first.store.clock.now()
    text = new_token(token_id)
    await host.first.store.access.add_token(
        TokenRecord(token_id, host.first_id, owner.id, LOCAL, hash_of(text), "own", now)
    )
    return text


async def _owner(host: Host) -> UserRecord | None:
    found = await host.first.store.access.members(host.first_id)
    owners = (user for user, member in found if member.role == "owner" and not user.disabled_at)
    return next(owners, None)

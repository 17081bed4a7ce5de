"""The contract of access: workspaces, users and what lets them in, as a store keeps them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from stepwell.errors import RateLimited
from stepwell.kernel.access import (
    AuditRecord,
    LinkRecord,
    MemberRecord,
    SessionRecord,
    TokenRecord,
    UserRecord,
    WorkspaceRecord,
    hash_of,
)
from stepwell.kernel.clock import SECOND
from stepwell.kernel.names import bounded
from stepwell.record import Triggers


class Bearer(msgspec.Struct, frozen=True):
    """Whom a token or a session belongs to, and what they are."""

    user: UserRecord
    members: list[MemberRecord]


class Access(Protocol):
    """Who may come in. Changes raise Overtaken if they do not fit what is there by now."""

    # Counts the changes, made through this object, by which somebody may have lost something:
    # what was read before the last of them may be out of date.
    changes: int

    async def begin(self, workspace: WorkspaceRecord, owner: UserRecord, link: LinkRecord) -> bool:
        """Make the first user, unless there is one; the workspace if it is missing."""
        ...

    async def workspace(self, workspace_id: str) -> WorkspaceRecord | None: ...

    async def workspaces(self, user_id: str | None = None) -> list[WorkspaceRecord]:
        """All of them, or those of a user, by id."""
        ...

    async def workspace_ids(self) -> list[str]:
        """The ids of all of them: what a worker may know, too."""
        ...

    async def add_workspace(self, workspace: WorkspaceRecord, owner_id: str | None) -> None:
        """Make a workspace; nothing may have been started under its id."""
        ...

    async def rename_workspace(self, workspace_id: str, title: str) -> bool: ...

    async def user(self, user_id: str) -> UserRecord | None: ...

    async def user_named(self, name: str) -> UserRecord | None: ...

    async def change_user(self, user: UserRecord) -> None:
        """Write a user as they will be, with the serial they will have."""
        ...

    async def change_password(self, user: UserRecord, now: int, but: str | None = None) -> None:
        """The same, and end their sessions but that one, and links that were not used."""
        ...

    async def members(self, workspace_id: str) -> list[tuple[UserRecord, MemberRecord]]:
        """Who belongs to a workspace, by name."""
        ...

    async def memberships(self, user_id: str) -> list[MemberRecord]: ...

    async def add_member(
        self, member: MemberRecord, user: UserRecord, link: LinkRecord | None = None
    ) -> None:
        """Take a user in who does not belong there, and write the user: new, or the next serial.

        The workspace has a record then, too: it may have been used without one.
        """
        ...

    async def set_role(self, member: MemberRecord) -> None:
        """Give a member another role; some owner has to remain."""
        ...

    async def remove_member(self, workspace_id: str, user_id: str, now: int) -> None:
        """Take a member out, with their tokens; some owner has to remain.

        Who belongs to no workspace then is disabled, and logged out.
        """
        ...

    async def token(self, token_id: str) -> tuple[TokenRecord, Bearer] | None:
        """A token, with its user and what they are in its workspace."""
        ...

    async def tokens(self, workspace_id: str, user_id: str | None = None) -> list[TokenRecord]:
        """All tokens of a workspace, or those of a user, the newest first."""
        ...

    async def add_token(self, token: TokenRecord) -> None: ...

    async def revoke_token(self, workspace_id: str, token_id: str, now: int) -> bool:
        """Whether it was there and not revoked."""
        ...

    async def touch_token(self, token_id: str, now: int, since: int) -> None:
        """Say that a token was used now, unless it was `since` then."""
        ...

    async def prune_tokens(self, workspace_id: str, before: int) -> None:
        """Forget tokens that ended before then."""
        ...

    async def session(self, hash: str) -> tuple[SessionRecord, Bearer] | None:
        """A session, with its user and what they are in all of their workspaces."""
        ...

    async def sessions(self, user_id: str, now: int) -> list[SessionRecord]:
        """Sessions of a user that have not ended, the newest first."""
        ...

    async def add_session(self, session: SessionRecord, serial: int) -> None:
        """Log a user in who still has that serial: the password they came by is theirs, say.

        Sessions and links whose time is long up are forgotten along.
        """
        ...

    async def end_sessions(
        self, user_id: str, now: int, *, only: str | None = None, but: str | None = None
    ) -> bool:
        """End sessions of a user: all, only that one, or all but that one; whether any did."""
        ...

    async def add_link(self, link: LinkRecord, serial: int) -> None:
        """Let a link log a user in who still has that serial."""
        ...

    async def use_link(self, hash: str, now: int) -> UserRecord | None:
        """Whom a link logs in that was not used, as they were before; it is from now on."""
        ...

    async def write_audit(self, audit: AuditRecord) -> None: ...

    async def audit(
        self, workspace_id: str, before: str | None, limit: int
    ) -> Sequence[AuditRecord]:
        """What was changed in a workspace, the newest first."""
        ...


class Pace(NamedTuple):
    """How many attempts are allowed in which time."""

    limit: int
    seconds: int


# Somebody who mistypes a password is let in soon; who guesses needs years for a bad one.
PER_ACCOUNT_FROM_ADDRESS = Pace(10, 300)
# From everywhere together: as many as ten networks have, so that one cannot lock an account.
PER_ACCOUNT = Pace(100, 300)
PER_ADDRESS = Pace(30, 300)
# Nobody guesses a token or a cookie, but looking for it costs something.
UNKNOWN_PER_ADDRESS = Pace(60, 60)


async def attempt(triggers: Triggers, key: str, pace: Pace, now: int) -> None:
    """Count an attempt, in all processes together; raises if there were too many.

    To be called before anything is compared: else those that come at once would all be.
    """
    wait = await triggers.take(bounded(f"attempt:{key}"), pace.limit, pace.seconds * SECOND, now)
    if wait:
        raise too_many(wait)


def account_key(name: str, where: str = "anywhere") -> str:
    """What attempts to be a user from there are counted under, whether or not there is one."""
    return f"account:{hash_of(name)}:{where}"


def too_many(wait: int) -> RateLimited:
    """What is said to those who have to wait, so many microseconds."""
    seconds = wait / SECOND
    message = f"There were too many attempts. Try again in {math.ceil(seconds)} s."
    return RateLimited(message, retry_after=seconds)

"""Who may do what: workspaces, users, their roles, tokens and sessions, and what is written of it.

A user belongs to workspaces, in each with a role; a role is a permission. What opens a door — the
text of a token, of a session's cookie, of a login link — has 256 random bits and is stored as its
hash only.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec

from stepwell.errors import InvalidName, LastOwner
from stepwell.kernel.clock import SECOND
from stepwell.kernel.names import check_text, show
from stepwell.kernel.presenting import HIDDEN

# Each includes those before it: to look, to run, to build, to decide who may.
Permission = Literal["read", "run", "build", "own"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
Role = Literal["viewer", "member", "admin", "owner"]
ROLES: dict[Role, Permission] = {
    "viewer": "read",
    "member": "run",
    "admin": "build",
    "owner": "own",
}

SESSION_TIME = 30 * 86_400 * SECOND
LINK_TIME = 86_400 * SECOND

# The workspace that there always is.
FIRST_WORKSPACE = "default"

_SECRET_BYTES = 32
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
_TOKEN = re.compile(rf"sw_([0-9a-v]{{26}})_{_SECRET.pattern}")
_WORKSPACE = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_USER = re.compile(r"[^\s@/]+(@[^\s@/]+)?")


class WorkspaceRecord(msgspec.Struct, frozen=True):
    """Definitions, runs and all that belongs to them, apart from those of others."""

    id: str
    title: str
    created_at: int


class UserRecord(msgspec.Struct, frozen=True):
    """Somebody who can log in."""

    id: str
    # An e-mail address or a login name, in small letters.
    name: str
    # None for those who have only come by a link so far.
    password_hash: Annotated[str | None, HIDDEN]
    created_at: int
    # Since when no workspace has had them.
    disabled_at: int | None = None
    # Counts the changes of this record; a change says which one it was made from.
    serial: int = 1


class MemberRecord(msgspec.Struct, frozen=True):
    """What a user is in a workspace."""

    workspace_id: str
    user_id: str
    role: Role
    # Since when; no matter of changes that come later.
    joined_at: int = 0


class TokenRecord(msgspec.Struct, frozen=True):
    """What a program shows to act for a user, in one workspace and up to a permission."""

    id: str
    workspace_id: str
    user_id: str
    name: str
    hash: Annotated[str, HIDDEN]
    permission: Permission
    created_at: int
    expires_at: int | None = None
    # To the minute.
    last_used_at: int | None = None
    revoked_at: int | None = None


class SessionRecord(msgspec.Struct, frozen=True):
    """A browser in which a user is logged in."""

    hash: Annotated[str, HIDDEN]
    id: str
    user_id: str
    created_at: int
    expires_at: int
    revoked_at: int | None = None


class LinkRecord(msgspec.Struct, frozen=True):
    """What logs a user in, once."""

    hash: Annotated[str, HIDDEN]
    user_id: str
    expires_at: int
    used_at: int | None = None


class AuditRecord(msgspec.Struct, frozen=True):
    """Who changed what."""

    id: str
    workspace_id: str
    recorded_at: int
    # The name they had then, and who they are.
    actor: str
    user_id: str | None
    operation: str
    # What it was done to: the ids and names in its path.
    subject: str
    details: dict[str, Any]
    request_id: str | None = None


def allows(held: Permission, needed: Permission) -> bool:
    """Whether who has one permission may do what needs another."""
    return PERMISSIONS.index(held) >= PERMISSIONS.index(needed)


def lesser(one: Permission, other: Permission) -> Permission:
    """What both of them allow: a token gives no more than its user's role does by now."""
    return other if allows(one, other) else one


def is_live(door: TokenRecord | SessionRecord, now: int) -> bool:
    """Whether it still opens."""
    return door.revoked_at is None and (door.expires_at is None or now < door.expires_at)


def new_secret() -> str:
    """The text of a session's cookie, or of a login link."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def is_secret(text: str) -> bool:
    """Whether it can be such a text."""
    return _SECRET.fullmatch(text) is not None


def new_token(token_id: str) -> str:
    """The text of a token."""
    return f"sw_{token_id}_{new_secret()}"


def token_id_of(text: str) -> str | None:
    """The id of the token that has this text, if it can be one."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else found[1]


def hash_of(text: str) -> str:
    """What is stored of a text that opens something; it is too long to be guessed."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def fits(text: str, hash: str) -> bool:
    """Whether a text is the one with that hash; takes as long whichever it is."""
    return hmac.compare_digest(hash_of(text), hash)


def user_name(text: str) -> str:
    """A user's name as it is stored: the same however it was typed."""
    name = unicodedata.normalize("NFKC", check_text(text, "A user's name")).strip().lower()
    if not _USER.fullmatch(name) or name == "me":
        raise InvalidName(
            f"A user cannot be called {show(text)}: write an e-mail address, or a name without "
            "spaces and '/'."
        )
    return name


def check_workspace_id(text: str) -> str:
    """The id of a workspace that is to be made."""
    if not _WORKSPACE.fullmatch(check_text(text, "A workspace's id")):
        raise InvalidName(
            f"A workspace's id cannot be {show(text)}: it has 1 to 63 small letters, digits, '-' "
            "and '_', and begins and ends with a letter or a digit."
        )
    return text


def network_of(address: str) -> str:
    """What attempts from an address are counted under: whoever has one of IPv6 has 2^64."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def home_of(members: Sequence[MemberRecord]) -> MemberRecord:
    """Where somebody acts who does not say where: the workspace that they joined first.

    Never a newer one: whoever takes them in elsewhere must not draw their requests there.
    """
    return min(members, key=lambda each: (each.joined_at, each.workspace_id))


def check_owner_stays(members: Sequence[MemberRecord], user_id: str) -> None:
    """Raise unless somebody else owns the workspace too."""
    owners = [each.user_id for each in members if each.role == "owner"]
    if owners == [user_id]:
        raise LastOwner(
            "The workspace would have no owner left. Make somebody else an owner first."
        )


def may_act_for(own: Sequence[MemberRecord], theirs: Sequence[MemberRecord]) -> bool:
    """Whether they may set a user's password or log in as them.

    Whoever could would have the user's rights in all of their workspaces, so they have to be an
    owner of each.
    """
    owned = {each.workspace_id for each in own if each.role == "owner"}
    return {each.workspace_id for each in theirs} <= owned

"""Users: who belongs to the workspace, what they may do, their passwords and sessions."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from stepwell.access import PER_ACCOUNT_FROM_ADDRESS, account_key, attempt
from stepwell.errors import (
    LastOwner,
    Overtaken,
    PasswordInvalid,
    PermissionDenied,
    RateLimited,
    SessionNotFound,
    UserExists,
    UserNotFound,
)
from stepwell.kernel.access import (
    LINK_TIME,
    LinkRecord,
    MemberRecord,
    Permission,
    Role,
    SessionRecord,
    UserRecord,
    allows,
    check_owner_stays,
    hash_of,
    may_act_for,
    new_secret,
    user_name,
)
from stepwell.kernel.ids import is_id
from stepwell.kernel.passwords import compared, hashed
from stepwell.kernel.presenting import HIDDEN
from stepwell.operation import Caller, Noun, Workspace, operation

UserRef = Annotated[str, msgspec.Meta(description="The user's id or name, or `me`.")]


class Me(msgspec.Struct, frozen=True):
    """Who the caller is, and what they may do here."""

    # None for whoever has the store itself.
    id: str | None
    name: str
    role: Role
    permission: Permission
    workspace_id: str
    token_id: str | None


class UserInfo(msgspec.Struct, frozen=True):
    """Somebody who belongs to the workspace."""

    id: str
    name: str
    role: Role
    has_password: bool
    # Since when they have belonged to it; what they did elsewhere before is nobody's business.
    joined_at: int


class LoginLink(msgspec.Struct, frozen=True):
    """What logs a user in once; it is shown this once."""

    link: str
    expires_at: int


class Invitation(msgspec.Struct, frozen=True):
    """Somebody who belongs to the workspace now."""

    user: UserInfo
    # None if they have a password, or know their way in from another workspace.
    login: LoginLink | None

    @property
    def id(self) -> str:
        return self.user.id


class Users(Noun):
    """The users of a workspace."""

    noun = "users"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._access = workspace.store.access
        self._clock = workspace.clock

    @operation("GET /users/me", needs="read", caller={"caller": "itself"})
    async def me(self, caller: Caller) -> Me:
        """Who the caller is, and what they may do here."""
        return Me(
            caller.user_id, caller.name, caller.role, caller.permission, self._workspace.id,
            caller.token_id,
        )  # fmt: skip

    @operation("GET /users", needs="own")
    async def list(self) -> builtins.list[UserInfo]:
        """Who belongs to the workspace, by name."""
        return [_info(*each) for each in await self._access.members(self._workspace.id)]

    @operation(
        "POST /users", needs="own", status=201, caller={"caller": "itself"},
        raises=(UserExists, PasswordInvalid),
        example={"name": "ada@example.org", "role": "member"},
    )  # fmt: skip
    async def create(
        self, name: str, role: Role, password: Annotated[str | None, HIDDEN] = None, *,
        caller: Caller,
    ) -> Invitation:  # fmt: skip
        """Take somebody in: with a password, or by a link that logs them in once.

        Who belongs to other workspaces of the caller's keeps the password they have. Who belongs to
        somebody else's is refused: its owners may be able to log in as them.
        """
        name = user_name(name)
        hash = None if password is None else await hashed(password)
        while True:
            known = await self._access.user_named(name)
            theirs = [] if known is None else await self._access.memberships(known.id)
            if self._workspace.id in [each.workspace_id for each in theirs]:
                raise UserExists(f"{name!r} belongs to the workspace already.", name=name)
            if not await self._may_act(caller, theirs):
                raise UserExists(
                    f"There is a user {name!r} in a workspace that you do not own, and its owners "
                    "may be able to log in as them. Whoever operates the server can take them in, "
                    "on the store itself: for the workspace 'default' with `stepwell users create "
                    "--store`, for others with Python.",
                    name=name,
                )
            if theirs and hash is not None:
                raise UserExists(
                    f"There is a user {name!r} with a password of their own; leave it out.",
                    name=name,
                )
            user = self._new(name, hash) if known is None else _joining(known, bool(theirs), hash)
            login = None if theirs or hash is not None else self._new_link()
            member = MemberRecord(self._workspace.id, user.id, role, self._clock.now())
            try:
                await self._access.add_member(member, user, _stored(login, user.id))
            except Overtaken:
                continue
            return Invitation(_info(user, member), login)

    @operation(
        "PUT /users/{user_id}/role", needs="own", raises=(UserNotFound, LastOwner),
        example={"user_id": "ada@example.org", "role": "admin"},
    )  # fmt: skip
    async def set_role(self, user_id: UserRef, role: Role) -> UserInfo:
        """Give somebody another role; an owner has to remain."""
        while True:
            user, member, members = await self._find(user_id)
            if role != "owner":
                check_owner_stays(members, user.id)
            changed = replace(member, role=role)
            try:
                await self._access.set_role(changed)
            except Overtaken:
                continue
            return _info(user, changed)

    @operation(
        "DELETE /users/{user_id}", needs="own", destructive=True, raises=(UserNotFound, LastOwner)
    )
    async def remove(self, user_id: UserRef) -> None:
        """Take somebody out of the workspace, and end their tokens; an owner has to remain."""
        while True:
            user, member, members = await self._find(user_id)
            check_owner_stays(members, user.id)
            try:
                await self._access.remove_member(member.workspace_id, user.id, self._clock.now())
            except Overtaken:
                continue
            return

    @operation(
        "POST /users/{user_id}/link", needs="own", status=201, caller={"caller": "itself"},
        raises=(UserNotFound, PermissionDenied),
    )  # fmt: skip
    async def link(self, user_id: UserRef, caller: Caller) -> LoginLink:
        """A link that logs somebody in once, for those who have lost their password."""
        while True:
            user, _, _ = await self._find(user_id, caller)
            await self._check_acting(user, caller)
            login = self._new_link()
            link = LinkRecord(hash_of(login.link), user.id, login.expires_at)
            try:
                await self._access.add_link(link, user.serial)
            except Overtaken:
                continue
            return login

    @operation(
        "PUT /users/{user_id}/password", needs="read", personal=True, caller={"caller": "itself"},
        raises=(UserNotFound, PasswordInvalid, PermissionDenied, RateLimited),
        example={
            "user_id": "me",
            "password": "correct horse battery",
            "current": "incorrect horse battery",
        },
    )  # fmt: skip
    async def set_password(
        self, user_id: UserRef, password: Annotated[str, HIDDEN],
        current: Annotated[str | None, HIDDEN] = None, *, caller: Caller,
    ) -> None:  # fmt: skip
        """Set the caller's password, given the current one; an owner anybody's.

        All other sessions of the user end, and links that were not used.
        """
        hash = None
        while True:
            user, _, _ = await self._find(user_id, caller)
            if user.id == caller.user_id:
                await self._check_current(user, current, caller)
            else:
                await self._check_acting(user, caller)
            hash = hash or await hashed(password)
            changed = replace(user, password_hash=hash, serial=user.serial + 1)
            try:
                await self._access.change_password(changed, self._clock.now(), caller.session_id)
            except Overtaken:
                continue
            return

    @operation(
        "GET /users/{user_id}/sessions", needs="read", caller={"caller": "itself"},
        raises=(UserNotFound, PermissionDenied), example={"user_id": "me"},
    )  # fmt: skip
    async def sessions(self, user_id: UserRef, caller: Caller) -> builtins.list[SessionRecord]:
        """Where the caller is logged in, or an owner anybody; the newest first."""
        user, _, _ = await self._find(user_id, caller)
        if user.id != caller.user_id or caller.token_id is not None:
            await self._check_acting(user, caller)
        return await self._access.sessions(user.id, self._clock.now())

    @operation(
        "DELETE /users/{user_id}/sessions/{session_id}", needs="read", personal=True,
        destructive=True, caller={"caller": "itself"},
        raises=(UserNotFound, SessionNotFound, PermissionDenied),
    )  # fmt: skip
    async def revoke_session(self, user_id: UserRef, session_id: str, caller: Caller) -> None:
        """End a session at once: one of the caller's, or an owner anybody's."""
        user, _, _ = await self._find(user_id, caller)
        if user.id != caller.user_id or caller.token_id is not None:
            await self._check_acting(user, caller)
        now = self._clock.now()
        ended = is_id(session_id) and await self._access.end_sessions(user.id, now, only=session_id)
        if not ended:
            raise SessionNotFound(f"There is no session {session_id!r}.", session_id=session_id)

    async def _find(
        self, ref: str, caller: Caller | None = None
    ) -> tuple[UserRecord, MemberRecord, builtins.list[MemberRecord]]:
        """A user of this workspace, what they are, and all that belong to it."""
        found = await self._access.members(self._workspace.id)
        wanted = caller.user_id if ref == "me" and caller is not None else ref
        for user, member in found:
            if wanted in (user.id, user.name):
                return user, member, [each for _, each in found]
        raise UserNotFound(f"There is no user {ref!r} here.", user_id=ref)

    async def _check_current(self, user: UserRecord, current: str | None, caller: Caller) -> None:
        """Raise unless they know their password; somebody may have found their open browser."""
        if caller.token_id is not None:
            raise PermissionDenied(
                "A password opens more than a token does. Log in to change it.", needs="own"
            )
        if user.password_hash is None:
            return
        # Counted apart from logins: those who are not let in cannot fill it.
        key, now = account_key(user.name, "inside"), self._clock.now()
        await attempt(self._workspace.store.triggers, key, PER_ACCOUNT_FROM_ADDRESS, now)
        if not (await compared(current or "", user.password_hash)).right:
            raise PasswordInvalid("The current password is wrong.")

    async def _check_acting(self, user: UserRecord, caller: Caller) -> None:
        """Raise unless the caller may do what only the user could."""
        if not allows(caller.permission, "own"):
            raise PermissionDenied(
                "Only an owner does this for others, or without having logged in.", needs="own"
            )
        # A token is one of this workspace only.
        here = None if caller.token_id is None else self._workspace.id
        if not await self._may_act(caller, await self._access.memberships(user.id), here):
            raise PermissionDenied(
                f"{user.name!r} also belongs to workspaces that are not yours to decide about, or "
                "not with this token. Whoever operates the server can: on its store, `stepwell "
                f"users link {user.name} --store URL` gives a link.",
                needs="own",
            )

    async def _may_act(
        self, caller: Caller, theirs: Sequence[MemberRecord], only: str | None = None
    ) -> bool:
        """Whether the caller owns all of somebody's workspaces; with `only`, by that one alone."""
        if caller.user_id is None:  # has the store itself
            return True
        own = await self._access.memberships(caller.user_id)
        return may_act_for([each for each in own if only in (None, each.workspace_id)], theirs)

    def _new(self, name: str, hash: str | None) -> UserRecord:
        return UserRecord(self._workspace.ids.new(), name, hash, self._clock.now())

    def _new_link(self) -> LoginLink:
        return LoginLink(new_secret(), self._clock.now() + LINK_TIME)


def _joining(user: UserRecord, elsewhere: bool, hash: str | None) -> UserRecord:
    """Somebody whom the store knows, once they belong to one more workspace.

    Who belonged to none comes anew: whoever had them before may know their password.
    """
    kept = user.password_hash if elsewhere else hash
    return replace(user, password_hash=kept, disabled_at=None, serial=user.serial + 1)


def _stored(login: LoginLink | None, user_id: str) -> LinkRecord | None:
    return None if login is None else LinkRecord(hash_of(login.link), user_id, login.expires_at)


def _info(user: UserRecord, member: MemberRecord) -> UserInfo:
    has_password = user.password_hash is not None
    return UserInfo(user.id, user.name, member.role, has_password, member.joined_at)

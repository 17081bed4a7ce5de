"""The doorkeeper: finds out who somebody is, lets them in, and writes down what they changed.

Who was let in is remembered for a moment, so that a request costs no trip to the store; a change
that this process makes ends that at once, one that another makes is seen within two seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from stepwell.access import (
    PER_ACCOUNT,
    PER_ACCOUNT_FROM_ADDRESS,
    PER_ADDRESS,
    UNKNOWN_PER_ADDRESS,
    Bearer,
    account_key,
    attempt,
    too_many,
)
from stepwell.app.auditing import told
from stepwell.errors import (
    InvalidName,
    Overtaken,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    UserNotFound,
    WorkspaceNotFound,
)
from stepwell.kernel.access import (
    FIRST_WORKSPACE,
    LINK_TIME,
    ROLES,
    SESSION_TIME,
    AuditRecord,
    LinkRecord,
    MemberRecord,
    Permission,
    SessionRecord,
    UserRecord,
    WorkspaceRecord,
    fits,
    hash_of,
    home_of,
    is_live,
    is_secret,
    lesser,
    network_of,
    new_secret,
    token_id_of,
    user_name,
)
from stepwell.kernel.clock import SECOND, Clock
from stepwell.kernel.ids import Ids
from stepwell.kernel.passwords import compared, hashed
from stepwell.operation import Caller, Operation
from stepwell.store import Store

log = logging.getLogger("stepwell.access")

# What the first start makes.
WORKSPACE, OWNER = FIRST_WORKSPACE, "owner"

# What the audit log calls a login, which is no operation.
LOGIN = "login"

REMEMBERED = 2 * SECOND
MAX_REMEMBERED = 10_000
# How exactly it is known when a token was used last.
TOUCH_EVERY = 60 * SECOND


class Admission(NamedTuple):
    """Somebody who was let in, and where to."""

    workspace_id: str
    caller: Caller
    # When their token or session ends by itself.
    expires_at: int | None


class Login(Struct, frozen=True):
    """Somebody who has just logged in."""

    # What their browser has to show from now on.
    cookie: str
    session_id: str
    user: UserRecord
    expires_at: int


class _Remembered(NamedTuple):
    admission: Admission
    until: int
    # How many changes there had been when it was looked up.
    changes: int


class Doorkeeper:
    """Lets people and programs into the workspaces of a store; one for each process."""

    def __init__(self, store: Store, clock: Clock, ids: Ids) -> None:
        self._access = store.access
        self._triggers = store.triggers
        self._clock = clock
        self._ids = ids
        self._remembered: dict[tuple[str, str | None], _Remembered] = {}
        # Hashes of what has let nobody in of late: until when, and after how many changes.
        self._missed: dict[str, tuple[int, int]] = {}
        # Networks from which there were too many attempts, and until when.
        self._blocked: dict[str, int] = {}

    # -- being let in --------------------------------------------------------------------

    async def by_token(self, text: str, address: str | None = None) -> Admission:
        """Whom a token lets in; too many wrong ones from an address have to wait."""
        key = (hash_of(text), None)
        found = self._recalled(key)
        if found is None:
            changes, possible = self._access.changes, token_id_of(text) is not None
            if possible and not self._is_missed(key[0]):
                found = await self._token(text)
            if found is None:
                await self._failed(key[0] if possible else None, changes, address)
                raise Unauthenticated("The token is wrong, was revoked, or has expired.")
            self._remember(key, found, changes)
        return found

    async def _token(self, text: str) -> Admission | None:
        token_id = token_id_of(text)
        row = None if token_id is None else await self._access.token(token_id)
        if row is None:
            return None
        token, bearer = row
        now = self._clock.now()
        if not fits(text, token.hash) or not is_live(token, now) or not _may_enter(bearer):
            return None
        if token.last_used_at is None or now - token.last_used_at >= TOUCH_EVERY:
            await self._access.touch_token(token.id, now, now - TOUCH_EVERY)
        caller = _caller(bearer.user, bearer.members[0], token.permission, token_id=token.id)
        return Admission(token.workspace_id, caller, token.expires_at)

    async def by_session(
        self, cookie: str, workspace: str | None = None, address: str | None = None
    ) -> Admission:
        """Whom a session lets into a workspace of theirs: the one they joined first unless said."""
        key = (hash_of(cookie), workspace)
        found = self._recalled(key)
        if found is None:
            changes, possible = self._access.changes, is_secret(cookie)
            row = None
            if possible and not self._is_missed(key[0]):
                row = await self._access.session(key[0])
            if row is None or not is_live(row[0], self._clock.now()) or not _may_enter(row[1]):
                await self._failed(key[0] if possible else None, changes, address)
                raise Unauthenticated("The session has ended. Log in again.")
            session, bearer = row
            member = _chosen(bearer.members, workspace)
            caller = _caller(bearer.user, member, session_id=session.id)
            found = Admission(member.workspace_id, caller, session.expires_at)
            self._remember(key, found, changes)
        return found

    def _recalled(self, key: tuple[str, str | None]) -> Admission | None:
        found = self._remembered.get(key)
        if found is None:
            return None
        if found.changes == self._access.changes and self._clock.now() < found.until:
            return found.admission
        del self._remembered[key]
        return None

    def _remember(self, key: tuple[str, str | None], found: Admission, changes: int) -> None:
        until = self._clock.now() + REMEMBERED
        if found.expires_at is not None:
            until = min(until, found.expires_at)
        _make_room(self._remembered)
        self._remembered[key] = _Remembered(found, until, changes)

    def _is_missed(self, hash: str) -> bool:
        """Whether it is known to let nobody in."""
        until, changes = self._missed.get(hash, (0, 0))
        return self._clock.now() < until and changes == self._access.changes

    async def _failed(self, missed: str | None, changes: int, address: str | None) -> None:
        """Count what let nobody in, after it was looked for: what others try costs nobody a door.

        Of those who have to wait no more is counted: a flood is read for, never written for.
        """
        now = self._clock.now()
        if missed is not None and not self._is_missed(missed):
            _make_room(self._missed)
            self._missed[missed] = now + REMEMBERED, changes
        if address is None:
            return
        network = network_of(address)
        if now < (until := self._blocked.get(network, 0)):
            raise too_many(until - now)
        self._blocked.pop(network, None)
        try:
            await attempt(self._triggers, f"unknown:{network}", UNKNOWN_PER_ADDRESS, now)
        except RateLimited as error:
            _make_room(self._blocked)
            self._blocked[network] = now + int(error.details["retry_after"] * SECOND)
            raise

    # -- logging in and out --------------------------------------------------------------

    async def login(self, name: str, password: str, address: str) -> Login:
        """Log somebody in; each attempt counts, for the address and for the account."""
        try:
            name = user_name(name)
        except InvalidName:
            name = ""  # nobody's
        now = self._clock.now()
        await self.count_login(address)
        # Last for the account from everywhere: what a network has to wait for fills no other's.
        here = account_key(name, network_of(address))
        await attempt(self._triggers, here, PER_ACCOUNT_FROM_ADDRESS, now)
        await attempt(self._triggers, account_key(name), PER_ACCOUNT, now)
        while True:
            user = await self._access.user_named(name)
            verdict = await compared(password, None if user is None else user.password_hash)
            if user is None or not verdict.right or not await self._belongs(user):
                log.warning("A login from %s failed.", address)
                raise Unauthenticated("The name or the password is wrong.")
            try:
                if verdict.outdated:
                    hash = await hashed(password)
                    user = replace(user, password_hash=hash, serial=user.serial + 1)
                    await self._access.change_user(user)
                return await self._logged_in(user, way="password", address=address)
            except Overtaken:  # perhaps the password is another one by now
                continue

    async def login_with_link(self, text: str, address: str) -> Login:
        """Log in whom a link is for, once."""
        await self.count_login(address)
        user = await self._access.use_link(hash_of(text), self._clock.now())
        with suppress(Overtaken):  # what changed may have ended the link
            if user is not None and await self._belongs(user):
                return await self._logged_in(user, way="link", address=address)
        raise Unauthenticated(
            "The link was used already, or is too old. Ask an owner for a new one, or make one on "
            "the server's machine: stepwell users link NAME --store URL"
        )

    async def login_as(self, name: str, address: str) -> Login:
        """Log in whom somebody else vouches for; `count_login` comes before they are asked."""
        while True:
            user = None
            with suppress(InvalidName):
                # Letters that only look like others are other letters to who vouches: not folded.
                folded = user_name(name)
                if name.isascii() or name == folded:
                    user = await self._access.user_named(folded)
            if user is None or not await self._belongs(user):
                log.warning("A login from %s failed: the provider's user is nobody here.", address)
                raise PermissionDenied(
                    "Nobody here has your e-mail address as a name, or they belong to no "
                    "workspace. Ask an owner of a workspace to add you by that address."
                )
            with suppress(Overtaken):
                return await self._logged_in(user, way="oidc", address=address)

    async def count_login(self, address: str) -> None:
        """Count an attempt to log in from an address; raises RateLimited."""
        key = f"login:{network_of(address)}"
        await attempt(self._triggers, key, PER_ADDRESS, self._clock.now())

    async def _belongs(self, user: UserRecord) -> bool:
        """Whether there is a workspace that they can be let into."""
        return _may_enter(Bearer(user, await self._access.memberships(user.id)))

    async def _logged_in(self, user: UserRecord, **about: str) -> Login:
        """A session, and a row of it in the workspace that is theirs: others need not know.

        Raises Overtaken if the user was changed since they were read.
        """
        now, cookie, session_id = self._clock.now(), new_secret(), self._ids.new()
        session = SessionRecord(hash_of(cookie), session_id, user.id, now, now + SESSION_TIME)
        await self._access.add_session(session, user.serial)
        home = home_of(await self._access.memberships(user.id))
        await self._access.write_audit(
            AuditRecord(
                self._ids.new(), home.workspace_id, now, user.name, user.id, LOGIN, session_id,
                about,
            )
        )  # fmt: skip
        return Login(cookie, session_id, user, session.expires_at)

    async def new_link(self, name: str) -> str:
        """A text that logs a user in once, within a day."""
        text = new_secret()
        while True:
            user = await self._access.user_named(user_name(name))
            if user is None:
                raise UserNotFound(f"There is no user {name!r}.", name=name)
            with suppress(Overtaken):
                await self._access.add_link(self._link(text, user.id), user.serial)
                return text

    async def logout(self, cookie: str) -> None:
        """End the session, if it has not ended."""
        row = await self._access.session(hash_of(cookie))
        if row is not None:
            session, now = row[0], self._clock.now()
            await self._access.end_sessions(session.user_id, now, only=session.id)

    async def first_start(self) -> str | None:
        """Make a workspace and its owner if there is no user yet; a link that logs them in.

        Of several processes that start at once one has the link, and the others None.
        """
        now, text = self._clock.now(), new_secret()
        owner = UserRecord(self._ids.new(), OWNER, None, now)
        workspace = WorkspaceRecord(WORKSPACE, "Default", now)
        begun = await self._access.begin(workspace, owner, self._link(text, owner.id))
        return text if begun else None

    def _link(self, text: str, user_id: str) -> LinkRecord:
        return LinkRecord(hash_of(text), user_id, self._clock.now() + LINK_TIME)

    # -- what they changed ---------------------------------------------------------------

    async def record(
        self, admission: Admission, operation: Operation, arguments: Mapping[str, Any], *,
        result: Any = None, request_id: str | None = None,
    ) -> None:  # fmt: skip
        """Write down who has done what, and with what short arguments that are no secret."""
        subject, details = told(operation, arguments, result)
        caller = admission.caller
        if caller.token_id is not None:
            details["token_id"] = caller.token_id
        await self._access.write_audit(
            AuditRecord(
                self._ids.new(), admission.workspace_id, self._clock.now(), caller.name,
                caller.user_id, operation.name, subject, details, request_id,
            )
        )  # fmt: skip


def _caller(
    user: UserRecord, member: MemberRecord, at_most: Permission = "own", *,
    token_id: str | None = None, session_id: str | None = None,
) -> Caller:  # fmt: skip
    """What a user may do in a workspace by the role that they have there now."""
    permission = lesser(ROLES[member.role], at_most)
    return Caller(user.name, permission, member.role, user.id, token_id, session_id)


def _may_enter(bearer: Bearer) -> bool:
    return bool(bearer.members) and bearer.user.disabled_at is None


def _chosen(members: Sequence[MemberRecord], workspace: str | None) -> MemberRecord:
    if workspace is None:
        return home_of(members)
    for each in members:
        if each.workspace_id == workspace:
            return each
    raise WorkspaceNotFound(f"There is no workspace {workspace!r}.", workspace=workspace)


def _make_room(remembered: dict[Any, Any]) -> None:
    """Forget what has been there for longest, if there is too much."""
    if len(remembered) >= MAX_REMEMBERED:
        del remembered[next(iter(remembered))]

"""Workspaces, users and what lets them in, on any store that speaks SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepwell.access import Bearer
from stepwell.errors import Overtaken
from stepwell.kernel.access import (
    AuditRecord,
    LinkRecord,
    MemberRecord,
    SessionRecord,
    TokenRecord,
    UserRecord,
    WorkspaceRecord,
)
from stepwell.stores.statements import Statement, Statements, as_json

_WORKSPACE = ", ".join(WorkspaceRecord.__struct_fields__)
_AUDIT = ", ".join(AuditRecord.__struct_fields__)
_TOKEN = ", ".join(TokenRecord.__struct_fields__)
_SESSION = ", ".join(SessionRecord.__struct_fields__)
_LINK = ", ".join(LinkRecord.__struct_fields__)
_MEMBER = ", ".join(MemberRecord.__struct_fields__)
_USERS = len(UserRecord.__struct_fields__)
_TO_MEMBERS = _USERS + len(MemberRecord.__struct_fields__)

# Tables in which something may stand under a workspace's id though nobody has made it.
_USED = ("versions", "definitions", "documents", "secrets", "runs")

# That the member $2 of the workspace $1 is not the last who owns it.
_NOT_LAST_OWNER = """(role <> 'owner' OR EXISTS (
    SELECT 1 FROM members o WHERE o.workspace_id = $1 AND o.user_id <> $2 AND o.role = 'owner'))"""


# Those of the user $1: only $3 or all, but not $4.
_END_SESSIONS = """UPDATE sessions SET revoked_at = $2
    WHERE user_id = $1 AND revoked_at IS NULL AND expires_at > $2
      AND (CAST($3 AS text) IS NULL OR id = $3)
      AND (CAST($4 AS text) IS NULL OR id <> $4)"""


def _of(table: str, record: type[msgspec.Struct]) -> str:
    return ", ".join(f"{table}.{name}" for name in record.__struct_fields__)


class SqlAccess:
    """Access in tables of either store."""

    def __init__(self, statements: Statements) -> None:
        self._fetch = statements.fetch
        self._amend = statements.amend
        self.changes = 0

    async def _take_away(self, *statements: Statement) -> None:
        """Change something that others may have read; they look again once it is done."""
        try:
            await self._amend(statements)
        finally:
            self.changes += 1

    async def begin(self, workspace: WorkspaceRecord, owner: UserRecord, link: LinkRecord) -> bool:
        try:
            await self._amend(
                [
                    # Of several who begin at once all have the same name for the first user.
                    _user_of(owner, "NOT EXISTS (SELECT 1 FROM users)"),
                    _workspace_of(workspace),
                    _member_of(MemberRecord(workspace.id, owner.id, "owner", owner.created_at)),
                    _link_of(link),
                ]
            )
        except Overtaken:
            return False
        return True

    # -- workspaces ----------------------------------------------------------------------

    async def workspace(self, workspace_id: str) -> WorkspaceRecord | None:
        rows = await self._fetch(f"SELECT {_WORKSPACE} FROM workspaces WHERE id = $1", workspace_id)
        return WorkspaceRecord(*rows[0]) if rows else None

    async def workspaces(self, user_id: str | None = None) -> list[WorkspaceRecord]:
        rows = await self._fetch(
            f"""SELECT {_WORKSPACE} FROM workspaces w WHERE CAST($1 AS text) IS NULL OR EXISTS (
                    SELECT 1 FROM members m WHERE m.workspace_id = w.id AND m.user_id = $1)
                ORDER BY id""",
            user_id,
        )
        return [WorkspaceRecord(*row) for row in rows]

    async def workspace_ids(self) -> list[str]:
        return [row[0] for row in await self._fetch("SELECT id FROM workspaces ORDER BY id")]

    async def add_workspace(self, workspace: WorkspaceRecord, owner_id: str | None) -> None:
        unused = " AND ".join(
            f"NOT EXISTS (SELECT 1 FROM {table} WHERE workspace_id = $1)" for table in _USED
        )
        insert = f"""INSERT INTO workspaces SELECT $1, $2, $3 WHERE {unused}
                     ON CONFLICT DO NOTHING"""
        statements = [Statement(insert, msgspec.structs.astuple(workspace), must=True)]
        if owner_id is not None:
            owner = MemberRecord(workspace.id, owner_id, "owner", workspace.created_at)
            statements.append(_member_of(owner))
        await self._take_away(*statements)

    async def rename_workspace(self, workspace_id: str, title: str) -> bool:
        rename = "UPDATE workspaces SET title = $2 WHERE id = $1"
        return await self._has_changed(rename, workspace_id, title)

    # -- users ---------------------------------------------------------------------------

    async def user(self, user_id: str) -> UserRecord | None:
        return await self._user("id = $1", user_id)

    async def user_named(self, name: str) -> UserRecord | None:
        return await self._user("name = $1", name)

    async def _user(self, where: str, value: str) -> UserRecord | None:
        rows = await self._fetch(f"SELECT {_of('u', UserRecord)} FROM users u WHERE {where}", value)
        return UserRecord(*rows[0]) if rows else None

    async def change_user(self, user: UserRecord) -> None:
        await self._take_away(_user_of(user))

    async def change_password(self, user: UserRecord, now: int, but: str | None = None) -> None:
        # At once: whoever logs in meanwhile has the serial of before, or the new password.
        await self._take_away(
            _user_of(user),
            Statement(_END_SESSIONS, (user.id, now, None, but)),
            Statement("DELETE FROM links WHERE user_id = $1", (user.id,)),
        )

    async def members(self, workspace_id: str) -> list[tuple[UserRecord, MemberRecord]]:
        rows = await self._fetch(
            f"""SELECT {_of("u", UserRecord)}, {_of("m", MemberRecord)}
                FROM members m JOIN users u ON u.id = m.user_id
                WHERE m.workspace_id = $1 ORDER BY u.name""",
            workspace_id,
        )
        return [(UserRecord(*row[:_USERS]), MemberRecord(*row[_USERS:])) for row in rows]

    async def memberships(self, user_id: str) -> list[MemberRecord]:
        rows = await self._fetch(
            f"SELECT {_MEMBER} FROM members WHERE user_id = $1 ORDER BY workspace_id", user_id
        )
        return [MemberRecord(*row) for row in rows]

    async def add_member(
        self, member: MemberRecord, user: UserRecord, link: LinkRecord | None = None
    ) -> None:
        workspace = WorkspaceRecord(member.workspace_id, member.workspace_id, user.created_at)
        statements = [_workspace_of(workspace), _user_of(user), _member_of(member)]
        if link is not None:
            statements.append(_link_of(link))
        await self._take_away(*statements)

    async def set_role(self, member: MemberRecord) -> None:
        change = f"""UPDATE members SET role = $3 WHERE workspace_id = $1 AND user_id = $2
                     AND ($3 = 'owner' OR {_NOT_LAST_OWNER})"""
        values = (member.workspace_id, member.user_id, member.role)
        await self._take_away(_alone(member.workspace_id), Statement(change, values, must=True))

    async def remove_member(self, workspace_id: str, user_id: str, now: int) -> None:
        delete = f"""DELETE FROM members WHERE workspace_id = $1 AND user_id = $2
                     AND {_NOT_LAST_OWNER}"""
        tokens = """UPDATE tokens SET revoked_at = $3 WHERE workspace_id = $1 AND user_id = $2
                    AND revoked_at IS NULL"""
        nowhere = "NOT EXISTS (SELECT 1 FROM members m WHERE m.user_id = $1)"
        disable = f"""UPDATE users SET disabled_at = $2, serial = serial + 1
                      WHERE id = $1 AND {nowhere}"""
        log_out = f"""UPDATE sessions SET revoked_at = $2 WHERE user_id = $1
                      AND revoked_at IS NULL AND {nowhere}"""
        forget = f"DELETE FROM links WHERE user_id = $1 AND {nowhere}"
        await self._take_away(
            _alone(workspace_id),
            _waiting(user_id),  # two who remove them at once would both find them elsewhere
            Statement(delete, (workspace_id, user_id), must=True),
            Statement(tokens, (workspace_id, user_id, now)),
            Statement(disable, (user_id, now)),
            Statement(log_out, (user_id, now)),
            Statement(forget, (user_id,)),
        )

    # -- tokens --------------------------------------------------------------------------

    async def token(self, token_id: str) -> tuple[TokenRecord, Bearer] | None:
        rows = await self._fetch(
            f"""SELECT {_of("u", UserRecord)}, {_of("m", MemberRecord)}, {_of("t", TokenRecord)}
                FROM tokens t JOIN users u ON u.id = t.user_id
                LEFT JOIN members m ON m.workspace_id = t.workspace_id AND m.user_id = t.user_id
                WHERE t.id = $1""",
            token_id,
        )
        return (TokenRecord(*rows[0][_TO_MEMBERS:]), _bearer(rows)) if rows else None

    async def tokens(self, workspace_id: str, user_id: str | None = None) -> list[TokenRecord]:
        rows = await self._fetch(
            f"""SELECT {_TOKEN} FROM tokens WHERE workspace_id = $1
                   AND (CAST($2 AS text) IS NULL OR user_id = $2) ORDER BY id DESC""",
            workspace_id,
            user_id,
        )
        return [TokenRecord(*row) for row in rows]

    async def add_token(self, token: TokenRecord) -> None:
        add = f"""INSERT INTO tokens ({_TOKEN}) SELECT $1, $2, $3, $4, $5, $6,
                      CAST($7 AS bigint), CAST($8 AS bigint), CAST($9 AS bigint),
                      CAST($10 AS bigint)
                  WHERE EXISTS (SELECT 1 FROM members WHERE workspace_id = $2 AND user_id = $3)"""
        # Whoever is just being removed gets none: it would open again once they are back.
        await self._amend(
            [_waiting(token.user_id), Statement(add, msgspec.structs.astuple(token), must=True)]
        )

    async def revoke_token(self, workspace_id: str, token_id: str, now: int) -> bool:
        revoke = """UPDATE tokens SET revoked_at = $3 WHERE workspace_id = $1 AND id = $2
                    AND revoked_at IS NULL"""
        return await self._has_changed(revoke, workspace_id, token_id, now)

    async def touch_token(self, token_id: str, now: int, since: int) -> None:
        touch = """UPDATE tokens SET last_used_at = $2 WHERE id = $1
                   AND (last_used_at IS NULL OR last_used_at <= $3)"""
        await self._amend([Statement(touch, (token_id, now, since))])

    async def prune_tokens(self, workspace_id: str, before: int) -> None:
        delete = """DELETE FROM tokens WHERE workspace_id = $1
                    AND (revoked_at < $2 OR expires_at < $2)"""
        await self._amend([Statement(delete, (workspace_id, before))])

    # -- sessions and links --------------------------------------------------------------

    async def session(self, hash: str) -> tuple[SessionRecord, Bearer] | None:
        rows = await self._fetch(
            f"""SELECT {_of("u", UserRecord)}, {_of("m", MemberRecord)}, {_of("s", SessionRecord)}
                FROM sessions s JOIN users u ON u.id = s.user_id
                LEFT JOIN members m ON m.user_id = s.user_id
                WHERE s.hash = $1 ORDER BY m.workspace_id""",
            hash,
        )
        return (SessionRecord(*rows[0][_TO_MEMBERS:]), _bearer(rows)) if rows else None

    async def sessions(self, user_id: str, now: int) -> list[SessionRecord]:
        rows = await self._fetch(
            f"""SELECT {_SESSION} FROM sessions WHERE user_id = $1 AND revoked_at IS NULL
                   AND expires_at > $2 ORDER BY id DESC""",
            user_id,
            now,
        )
        return [SessionRecord(*row) for row in rows]

    async def add_session(self, session: SessionRecord, serial: int) -> None:
        add = f"INSERT INTO sessions ({_SESSION}) VALUES ($1, $2, $3, $4, $5, $6)"
        now = (session.created_at,)
        await self._amend(
            [
                _as_seen(session.user_id, serial),
                Statement(add, msgspec.structs.astuple(session)),
                Statement("DELETE FROM sessions WHERE expires_at < $1", now),
                Statement("DELETE FROM links WHERE expires_at < $1", now),
            ]
        )

    async def end_sessions(
        self, user_id: str, now: int, *, only: str | None = None, but: str | None = None
    ) -> bool:
        return await self._has_changed(_END_SESSIONS, user_id, now, only, but)

    async def add_link(self, link: LinkRecord, serial: int) -> None:
        await self._amend([_as_seen(link.user_id, serial), _link_of(link)])

    async def use_link(self, hash: str, now: int) -> UserRecord | None:
        use = """UPDATE links SET used_at = $2 WHERE hash = $1 AND used_at IS NULL
                 AND expires_at > $2"""
        # Read before: with a serial from after it, nobody would see what was changed meanwhile.
        user = await self._user("id = (SELECT l.user_id FROM links l WHERE l.hash = $1)", hash)
        return user if user and await self._has_changed(use, hash, now) else None

    # -- audit ---------------------------------------------------------------------------

    async def write_audit(self, audit: AuditRecord) -> None:
        add = f"INSERT INTO audit ({_AUDIT}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        values = [
            as_json(value) if name == "details" else value
            for name, value in msgspec.structs.asdict(audit).items()
        ]
        await self._amend([Statement(add, tuple(values))])

    async def audit(self, workspace_id: str, before: str | None, limit: int) -> list[AuditRecord]:
        rows = await self._fetch(
            f"""SELECT {_AUDIT} FROM audit WHERE workspace_id = $1
                   AND (CAST($2 AS text) IS NULL OR id < $2) ORDER BY id DESC LIMIT $3""",
            *(workspace_id, before, limit),
        )
        return [_audit(row) for row in rows]

    async def _has_changed(self, sql: str, *values: Any) -> bool:
        """Whether the row was there to be changed."""
        try:
            await self._take_away(Statement(sql, values, must=True))
        except Overtaken:
            return False
        return True


def _alone(workspace_id: str) -> Statement:
    """Whoever else changes the members of the workspace waits for this row, and then looks."""
    return Statement("UPDATE workspaces SET title = title WHERE id = $1", (workspace_id,))


def _waiting(user_id: str) -> Statement:
    """Whoever else changes where the user belongs waits for this row, and then looks."""
    return Statement("UPDATE users SET serial = serial WHERE id = $1", (user_id,))


def _as_seen(user_id: str, serial: int) -> Statement:
    """Whoever changes the user meanwhile waits for this row; who already has came first."""
    sql = "UPDATE users SET serial = serial WHERE id = $1 AND serial = $2"
    return Statement(sql, (user_id, serial), must=True)


def _workspace_of(workspace: WorkspaceRecord) -> Statement:
    sql = f"INSERT INTO workspaces ({_WORKSPACE}) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    return Statement(sql, msgspec.structs.astuple(workspace))


def _member_of(member: MemberRecord) -> Statement:
    sql = f"INSERT INTO members ({_MEMBER}) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
    return Statement(sql, msgspec.structs.astuple(member), must=True)


def _user_of(user: UserRecord, where: str = "true") -> Statement:
    """A user who is new, or who was changed from the serial before."""
    values = msgspec.structs.astuple(user)
    if user.serial == 1:
        sql = f"""INSERT INTO users SELECT $1, $2, CAST($3 AS text), $4, CAST($5 AS bigint), $6
                  WHERE {where} ON CONFLICT DO NOTHING"""
        return Statement(sql, values, must=True)
    sql = """UPDATE users SET name = $2, password_hash = $3, created_at = $4, disabled_at = $5,
                 serial = $6
             WHERE id = $1 AND serial = $6 - 1"""
    return Statement(sql, values, must=True)


def _link_of(link: LinkRecord) -> Statement:
    sql = f"INSERT INTO links ({_LINK}) VALUES ($1, $2, $3, $4)"
    return Statement(sql, msgspec.structs.astuple(link))


def _bearer(rows: Sequence[Sequence[Any]]) -> Bearer:
    found = [row[_USERS:_TO_MEMBERS] for row in rows]
    members = [MemberRecord(*row) for row in found if row[0] is not None]
    return Bearer(UserRecord(*rows[0][:_USERS]), members)


def _audit(row: Sequence[Any]) -> AuditRecord:
    found = dict(zip(AuditRecord.__struct_fields__, row, strict=True))
    found["details"] = msgspec.json.decode(found["details"])
    return AuditRecord(**found)

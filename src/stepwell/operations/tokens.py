"""Tokens: what programs show to act for a user, made, listed and revoked."""

from __future__ import annotations

import builtins
from typing import Annotated

import msgspec
from msgspec import Meta

from stepwell.errors import (
    Overtaken,
    PermissionDenied,
    QuotaExceeded,
    TokenNotFound,
    UserNotFound,
)
from stepwell.kernel.access import Permission, TokenRecord, allows, hash_of, new_token
from stepwell.kernel.clock import LAST, SECOND
from stepwell.kernel.durations import seconds
from stepwell.kernel.ids import is_id
from stepwell.kernel.names import check_text
from stepwell.operation import Caller, Noun, Workspace, operation

# How many a user has in a workspace, with those that have ended of late.
MAX_TOKENS = 1000
# How long tokens are listed that have ended.
ENDED_FOR = 30 * 86_400 * SECOND

Span = Annotated[str | float, Meta(description='Seconds, or a text such as "90s", "10m", "2d".')]


class NewToken(msgspec.Struct, frozen=True):
    """A token, with the text that is shown this once."""

    id: str
    name: str
    text: str
    permission: Permission
    user_id: str
    expires_at: int | None


class Tokens(Noun):
    """The tokens of a workspace."""

    noun = "tokens"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._access = workspace.store.access

    @operation("GET /tokens", needs="read", caller={"caller": "itself"}, raises=(PermissionDenied,))
    async def list(self, *, everyone: bool = False, caller: Caller) -> builtins.list[TokenRecord]:
        """The caller's tokens, or those of everyone, which is for owners; the newest first."""
        if everyone and not allows(caller.permission, "own"):
            raise PermissionDenied("Only an owner sees the tokens of everyone.", needs="own")
        if not everyone and caller.user_id is None:
            return []
        return await self._access.tokens(self._workspace.id, None if everyone else caller.user_id)

    @operation(
        "POST /tokens", needs="read", personal=True, status=201, caller={"caller": "itself"},
        raises=(PermissionDenied, UserNotFound, QuotaExceeded),
        example={"name": "ci", "permission": "read", "expires_in": "90d"},
    )  # fmt: skip
    async def create(
        self, name: str, permission: Permission, *,
        expires_in: Annotated[Span | None, Meta(description="For ever unless said.")] = None,
        user_id: Annotated[str | None, Meta(description="For somebody else: owners only.")] = None,
        caller: Caller,
    ) -> NewToken:  # fmt: skip
        """Make a token that allows at most what the caller may; its text is shown this once.

        It never allows more than the role of its user does when it is used. One that is made with
        a token ends no later than that.
        """
        check_text(name, "A token's name")
        if not allows(caller.permission, permission):
            raise PermissionDenied(
                f"You may {caller.permission}, and cannot make a token that may {permission}.",
                needs=permission,
            )
        now, place = self._workspace.clock.now(), self._workspace.id
        whose = await self._whose(user_id, caller)
        await self._access.prune_tokens(place, now - ENDED_FOR)
        if len(await self._access.tokens(place, whose)) >= MAX_TOKENS:
            raise QuotaExceeded(
                f"A user has at most {MAX_TOKENS:,} tokens, and those of the last 30 days count."
            )
        token_id = self._workspace.ids.new()
        text = new_token(token_id)
        ends = await self._ends_at(expires_in, caller, now)
        token = TokenRecord(token_id, place, whose, name, hash_of(text), permission, now, ends)
        try:
            await self._access.add_token(token)
        except Overtaken:
            raise UserNotFound("They do not belong to the workspace any more.") from None
        return NewToken(token_id, name, text, permission, whose, token.expires_at)

    @operation(
        "DELETE /tokens/{token_id}", needs="read", personal=True, destructive=True,
        caller={"caller": "itself"}, raises=(TokenNotFound,),
    )  # fmt: skip
    async def revoke(self, token_id: str, caller: Caller) -> None:
        """End a token at once: one of the caller's, or an owner anybody's."""
        row = await self._access.token(token_id) if is_id(token_id) else None
        place, now = self._workspace.id, self._workspace.clock.now()
        if row is None or not _may_revoke(row[0], caller):
            raise _not_found(token_id)
        if not await self._access.revoke_token(place, token_id, now):
            raise _not_found(token_id)

    async def _ends_at(self, expires_in: Span | None, caller: Caller, now: int) -> int | None:
        """When a new token ends: not after the one that it is made with."""
        row = None if caller.token_id is None else await self._access.token(caller.token_id)
        wanted = LAST if expires_in is None else int(now + seconds(expires_in) * SECOND)
        latest = LAST if row is None or row[0].expires_at is None else row[0].expires_at
        ends = min(wanted, latest)
        return None if ends == LAST else ends

    async def _whose(self, user_id: str | None, caller: Caller) -> str:
        """The user that a token is to be for, who belongs here."""
        wanted = user_id or caller.user_id
        if wanted is None:
            raise UserNotFound(
                "A token belongs to a user, and whoever has the store is none. Say whose it is, "
                "with user_id (--user-id); `stepwell users list` has the ids."
            )
        members = [user.id for user, _ in await self._access.members(self._workspace.id)]
        if wanted not in members:
            raise UserNotFound(f"There is no user {wanted!r} here.", user_id=wanted)
        if wanted != caller.user_id and not allows(caller.permission, "own"):
            raise PermissionDenied("Only an owner makes tokens for others.", needs="own")
        return wanted


def _may_revoke(token: TokenRecord, caller: Caller) -> bool:
    """Whether the caller may end a token; with another one only what allows no more than that."""
    if allows(caller.permission, "own"):
        return True
    if token.user_id != caller.user_id:
        return False
    with_it = caller.token_id in (None, token.id)
    return with_it or allows(caller.permission, token.permission)


def _not_found(token_id: str) -> TokenNotFound:
    return TokenNotFound(f"There is no token {token_id!r} to revoke.", token_id=token_id)

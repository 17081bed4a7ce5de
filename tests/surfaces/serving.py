"""A real server on a loopback port, with a token for each role and another workspace beside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from stepwell.api.app import Api
from stepwell.api.server import listen, serve
from stepwell.app.hosting import Host, Shape
from stepwell.kernel.access import (
    ROLES,
    MemberRecord,
    Role,
    TokenRecord,
    UserRecord,
    WorkspaceRecord,
    hash_of,
    new_token,
)
from stepwell.kernel.sealing import new_key
from stepwell.settings import Settings

# A workspace that nobody of the first one belongs to.
ELSEWHERE = "elsewhere"
UNBOUNDED = httpx2.Limits(max_connections=None)


@dataclass
class Served:
    """A server, and who can ask it."""

    host: Host
    url: str
    http: httpx2.AsyncClient
    # Texts of tokens by role; the stranger owns another workspace.
    tokens: dict[str, str] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, json: Any = None, *, role: str | None = "owner",
        **options: Any,
    ) -> httpx2.Response:  # fmt: skip
        headers = dict(options.pop("headers", {}))
        if role is not None:
            headers["authorization"] = f"Bearer {self.tokens[role]}"
        body = {} if json is None else {"json": json}
        return await self.http.request(method, path, headers=headers, **body, **options)

    async def add_token(self, name: str, workspace: str, role: Role) -> str:
        """A user of their own in a workspace, and their token."""
        access, ids, now = self.host.first.store.access, self.host.ids, self._now()
        user = UserRecord(ids.new(), name, None, now)
        await access.add_member(MemberRecord(workspace, user.id, role), user)
        token_id = ids.new()
        text = new_token(token_id)
        await access.add_token(
            TokenRecord(token_id, workspace, user.id, name, hash_of(text), ROLES[role], now)
        )
        return text

    def _now(self) -> int:
        return self.host.first.store.clock.now()


@asynccontextmanager
async def served(
    store_url: str, workflows: Sequence[Any] = (), *, worker: bool = True,
    hosts: Sequence[str] = (), proxies: Sequence[str] = (), grace_seconds: float = 1,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Served]:  # fmt: skip
    """A server for that store, stopped in order at the end."""
    shape = Shape(tuple(workflows), (), {"grace": 1} if worker else None)
    async with Host(store_url, shape, Settings(secret_key=new_key(), **settings or {})) as host:
        await host.begin()
        api, stop, listening = (
            Api(host, {"localhost", *hosts}),
            asyncio.Event(),
            listen("127.0.0.1", 0),
        )
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.create_task(serve(api, listening, stop, grace_seconds, proxies))
        async with httpx2.AsyncClient(base_url=url, timeout=60, limits=UNBOUNDED) as http:
            found = Served(host, url, http)
            for role in ROLES:
                found.tokens[role] = await found.add_token(f"{role}-1", host.first_id, role)
            access = host.first.store.access
            await access.add_workspace(WorkspaceRecord(ELSEWHERE, "Elsewhere", found._now()), None)
            found.tokens["stranger"] = await found.add_token("stranger", ELSEWHERE, "owner")
            try:
                yield found
            finally:
                stop.set()
                await serving

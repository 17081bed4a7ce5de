"""The server on standard input and output, for a client that starts it as its own process."""

from __future__ import annotations

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server

from stepwell.mcp.asking import Context
from stepwell.mcp.changes import changes, look
from stepwell.mcp.seat import Manner, Seat
from stepwell.mcp.server import server_of


async def serve_stdio(seat: Seat, manner: Manner | None = None) -> None:
    """Serve one client until it closes standard input; everybody else has to keep off both."""
    server = server_of(lambda _: seat, manner or Manner())
    sessions: list[ServerSession] = []
    before = await look(seat)

    async def remember(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            sessions[:] = [ctx.session]
        return await call_next(ctx)

    async def announce() -> None:
        # Clients of the newest protocol are not told so: they listen for it if they want to know.
        async for _ in changes(seat, before):
            for session in sessions:
                await session.send_tool_list_changed()

    server.middleware.append(remember)
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        tasks.start_soon(announce)
        await server.run(read, write, options)
        tasks.cancel_scope.cancel()

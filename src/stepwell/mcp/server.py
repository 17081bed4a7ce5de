"""The server of the protocol: lists tools, calls them, and tells of changes in the list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib.metadata import version

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from stepwell.graph.definition import SLUG
from stepwell.kernel.names import show
from stepwell.mcp import definitions
from stepwell.mcp.answers import answer, failing, refusal
from stepwell.mcp.asking import Answered, Context
from stepwell.mcp.changes import changes, look
from stepwell.mcp.molecules import molecule_offers
from stepwell.mcp.offers import Offer, operation_offers
from stepwell.mcp.seat import Manner, Seat

# How often one caller may listen for changes at a time; each costs a look now and then.
MOST_LISTENERS = 20
# How often it is asked whether they may go on listening.
KEPT_SECONDS = 0.25

INSTRUCTIONS = """\
Stepwell runs durable workflows. Each tool run_<name> runs one of them; runs go on by themselves,
whoever waits. If an answer has no output yet, it says what to do next: look with runs_get, find out
with runs_explain why a run does not go on, decide with gates_decide, do tasks and report them with
gt_mol_advance. Edits of definitions belong into drafts (drafts_save); publishing changes what runs.
Errors have a code, a message that says what to do, and details."""


class Tools:
    """The tools of a server, for whoever sits where a request comes from."""

    def __init__(self, seat_of: Callable[[Context], Seat], manner: Manner) -> None:
        self._seat_of = seat_of
        self._manner = manner
        self._offers: dict[str, Offer] = {**operation_offers(), **molecule_offers(manner)}
        self._listeners: Counter[str] = Counter()

    async def list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """The tools that are offered: those that are always the same on the first page."""
        seat = self._seat_of(context)
        cursor = None if params is None else params.cursor
        if cursor is not None and not SLUG.fullmatch(cursor):
            raise MCPError(types.INVALID_PARAMS, f"There is no page {show(cursor)}.")
        fixed = [each.tool for each in self._offers.values() if seat.may(each.needs)]
        with failing():
            found, more = await definitions.listed(seat, cursor)
        tools = found if cursor is not None else [*fixed, *found]
        return types.ListToolsResult(tools=tools, next_cursor=more)

    async def call(self, context: Context, params: types.CallToolRequestParams) -> Answered:
        """What a tool answers; whatever goes wrong in it is an answer, too."""
        seat = self._seat_of(context)
        offer = self._offers.get(params.name)
        if offer is not None and not seat.may(offer.needs):
            raise MCPError(
                types.INVALID_PARAMS,
                f"The tool {params.name} is not offered here: it needs the permission to "
                f"{offer.needs}.",
                {"code": "permission_denied", "details": {"needs": offer.needs}},
            )
        try:
            if offer is not None:
                return answer(await offer.call(seat, params.arguments or {}))
            record = await definitions.find(seat, params.name)
            if record is not None:
                manner = self._manner.at(seat.url)
                return await definitions.call(context, seat, record, params, manner)
        except Exception as error:
            return refusal(error)
        raise MCPError(
            types.INVALID_PARAMS,
            f"There is no tool {show(params.name)}; tools/list has all that are offered here.",
            {"code": "unknown_tool"},
        )

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell of changes in the list for as long as somebody listens."""
        seat, bus = self._seat_of(context), InMemorySubscriptionBus()
        who = seat.caller.name
        if self._listeners[who] >= MOST_LISTENERS:
            message = f"You listen {MOST_LISTENERS} times already; stop one of them first."
            raise MCPError(types.INVALID_REQUEST, message, {"code": "rate_limited"})
        with failing():
            before = await look(seat)

        handler = ListenHandler(bus)

        async def watch() -> None:
            async for _ in changes(seat, before):
                await bus.publish(ToolsListChanged())

        async def leave() -> None:
            while True:
                await anyio.sleep(KEPT_SECONDS)
                if not await seat.kept():
                    handler.close()
                    return

        self._listeners[who] += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                tasks.start_soon(leave)
                result = await handler(context, params)
                tasks.cancel_scope.cancel()
            return result
        finally:
            self._listeners[who] -= 1
            if not self._listeners[who]:
                del self._listeners[who]


def server_of(seat_of: Callable[[Context], Seat], manner: Manner) -> Server[dict[str, object]]:
    """A server whose requests come from where `seat_of` says."""
    tools = Tools(seat_of, manner)
    return Server(
        "stepwell",
        title="Stepwell",
        version=version("stepwell"),
        instructions=INSTRUCTIONS,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
        on_subscriptions_listen=tools.listen,
        # No argument is carried in a header, so none has to be compared with one.
        get_tool_input_schema=lambda _: None,
    )

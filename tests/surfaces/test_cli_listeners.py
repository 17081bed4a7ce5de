"""Hundreds who listen to `stepwell serve`: they hear all, and its memory stays as it is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.surfaces.test_cli_serving import serving

LISTENERS, OTHERS, ROUNDS = 500, 500, 4
AT_ONCE = 32
# A listener or a run that stayed would take more than this within the last two rounds.
MAX_GROWTH = 8 * 1024 * 1024

PATIENT = {
    "name": "patient",
    "nodes": [
        {"id": "go", "type": "wait_event", "config": {"event": "go"}},
        {"id": "say", "type": "transform", "config": {"value": "done"}},
    ],
}


@dataclass
class Server:
    """One to ask, with as little as that takes: a client for people is slower than the server."""

    url: str
    token: str

    async def request(
        self, method: str, path: str, body: Any = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        writer.write(head.encode() + data)
        return reader, writer

    async def post(self, path: str, body: Any) -> Any:
        reader, writer = await self.request("POST", path, body)
        head, _, found = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 20"), head
        return json.loads(found)

    async def listen(self, run_id: str, begun: asyncio.Queue[str]) -> None:
        """Return when the run is said to have ended."""
        reader, writer = await self.request("GET", f"/api/runs/{run_id}/events")
        await reader.readuntil(b"event: run.started")
        begun.put_nowait(run_id)
        await reader.readuntil(b"event: run.finished")
        writer.close()


async def one_round(server: Server) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def start(definition: str, input: Any = None) -> str:
        async with turns:
            found = await server.post(f"/api/definitions/{definition}/runs", {"input": input})
        run_id: str = found["id"]
        return run_id

    runs = await asyncio.gather(*(start("patient") for _ in range(LISTENERS)))
    begun: asyncio.Queue[str] = asyncio.Queue()
    listening = [asyncio.create_task(server.listen(run_id, begun)) for run_id in runs]
    assert {await begun.get() for _ in runs} == set(runs)
    await asyncio.gather(*(start("hello", {"name": "Ada"}) for _ in range(OTHERS)))
    await server.post("/api/events", {"type": "go", "payload": {}})
    await asyncio.gather(*listening)


async def memory_after_rounds(server: Server, pid: int) -> list[int]:
    await server.post("/api/definitions/publish", {"document": PATIENT})
    found = []
    for _ in range(ROUNDS):
        await one_round(server)
        found.append(resident_bytes(pid))
    return found


def resident_bytes(pid: int) -> int:
    _, _, after = Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")
    return int(after.split()[0]) * 1024


def test_memory_stays_flat_however_many_have_listened(tmp_path: Path) -> None:
    with serving(tmp_path, "--json") as (process, said):
        token = (tmp_path / ".stepwell" / "token").read_text().strip()
        server = Server(json.loads(said)["url"], token)
        used = asyncio.run(memory_after_rounds(server, process.pid))
    assert used[-1] - used[-3] < MAX_GROWTH, used

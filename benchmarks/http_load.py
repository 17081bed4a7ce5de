"""Load over HTTP: so many connections, each sending the next request when the last was answered.

A process of its own, so that what is measured does not share its loop. Requests are the same bytes
each time, but for a number that `{number}` in the body stands for.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from itertools import count
from typing import Any
from urllib.parse import urlsplit


async def load(
    url: str, headers: dict[str, str], body: str, seconds: float, connections: int
) -> dict[str, Any]:
    """Requests per second, how long they took, and how they were answered."""
    parts = urlsplit(url)
    numbers, taken, statuses = count(), list[float](), Counter[str]()
    fields = {"Host": parts.netloc, "Content-Type": "application/json", **headers}
    head = f"POST {parts.path} HTTP/1.1\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    until = time.perf_counter() + seconds

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while (began := time.perf_counter()) < until:
            data = body.replace("{number}", str(next(numbers))).encode()
            writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            _, _, length = answer.partition("content-length: ")
            await reader.readexactly(int(length.partition("\r\n")[0]))
            taken.append(time.perf_counter() - began)
            statuses[answer.split(" ", 2)[1]] += 1
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(connections)))
    whole = time.perf_counter() - began
    taken.sort()
    return {
        "requests": len(taken),
        "per_second": len(taken) / whole,
        "p50_ms": taken[len(taken) // 2] * 1000,
        "p99_ms": taken[len(taken) * 99 // 100] * 1000,
        "statuses": statuses,
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(load(**given))))

"""What a worker shows of itself: `/metrics`, and `/healthz`."""

from __future__ import annotations

from stepwell.api.exchange import Answer, Receive, Request, Scope, Send
from stepwell.telemetries.prometheus import CONTENT_TYPE, Prometheus


class Exposition:
    """Answers whoever reaches it: where it listens says who that is, and nothing can be changed."""

    def __init__(self, metrics: Prometheus) -> None:
        self._metrics = metrics

    def close(self) -> None:
        """Every answer has an end of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        request = Request(scope, receive, request_id="")
        answer = await self._answered(request.method, request.path)
        await answer.send(send, request)

    async def _answered(self, method: str, path: str) -> Answer:
        if path not in ("/metrics", "/healthz"):
            return Answer(404, b"There are /metrics and /healthz.\n", "text/plain")
        if method not in ("GET", "HEAD"):
            return Answer(405, b"GET it.\n", "text/plain", [("allow", "GET, HEAD")])
        if path == "/healthz":
            return Answer.json({"status": "ok"})
        return Answer(200, await self._metrics.render(), CONTENT_TYPE)

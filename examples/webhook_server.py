"""A web server of one's own that passes requests on to webhooks, as `stepwell serve` does.

It also is a worker, so what requests start is executed here:

    stepwell definitions publish examples/release-notes.yaml
    python -m examples.webhook_server 8080
    curl -d '{"version": "1.4.1"}' http://127.0.0.1:8080/release-notes

What matters: `sw.receive` is given the bytes of the body as they came, since those are signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stepwell import Stepwell, StepwellError
from stepwell.errors import InvalidInput

MAX_BODY = 1024 * 1024
# What to answer if a request is refused; docs/webhooks.md says why.
STATUS = {
    "body_invalid": 400, "event_invalid": 400, "request_unfit": 400, "signature_invalid": 401,
    "trigger_not_found": 404, "definition_disabled": 409, "trigger_disabled": 409,
    "body_too_large": 413, "input_too_large": 413, "body_unsupported": 415, "queue_full": 429,
    "quota_exceeded": 429, "rate_limited": 429, "store_unavailable": 503, "webhook_unready": 503,
    "input_invalid": 422, "missing_path": 422,
}  # fmt: skip


def handler(sw, loop):
    """The class that answers requests in its threads, by what `sw` says in its loop."""

    class Hooks(BaseHTTPRequestHandler):
        def do_POST(self):
            path, _, query = self.path.partition("?")
            size = self.headers.get("Content-Length", "0")
            if not size.isdecimal() or int(size) > MAX_BODY:
                return self.answer(413, {"error": {"code": "body_too_large"}})
            receiving = sw.receive(
                path, method=self.command, headers=self.headers.items(),
                body=self.rfile.read(int(size)), query=query,
            )  # fmt: skip
            try:
                found = asyncio.run_coroutine_threadsafe(receiving, loop).result()
            except StepwellError as error:
                status = STATUS.get(error.code, 422 if isinstance(error, InvalidInput) else 500)
                said = {"code": error.code, "message": error.message}
                return self.answer(status, {"error": said}, error.details.get("retry_after"))
            if found.challenge is not None:  # Slack asks whether somebody is there
                return self.answer(200, {"challenge": found.challenge})
            # `created` is False if this delivery came before.
            return self.answer(202, {"run_id": found.run_id, "created": found.created})

        do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815, their names there

        def answer(self, status, document, retry_after=None):
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if retry_after is not None:
                self.send_header("Retry-After", str(int(retry_after) + 1))
            self.end_headers()
            self.wfile.write(body)

    return Hooks


async def main(port):
    async with Stepwell() as sw, sw.worker():
        address = ("127.0.0.1", port)
        with ThreadingHTTPServer(address, handler(sw, asyncio.get_running_loop())) as server:
            print(f"Webhooks are below http://127.0.0.1:{server.server_port}/", flush=True)
            try:
                await asyncio.to_thread(server.serve_forever)
            finally:
                server.shutdown()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080))

"""`stepwell serve`: the server, a worker and housekeeping in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.arguments import as_json, read_duration, store_alone
from stepwell.cli.output import emit
from stepwell.cli.server_files import ServerFiles, listens
from stepwell.cli.session import store_url
from stepwell.cli.supervisor import catch_signals, keep_what_is_there
from stepwell.cli.targets import load_targets
from stepwell.kernel.durations import seconds
from stepwell.kernel.names import STATE_FOLDER, check_count
from stepwell.kernel.urls import is_loopback, shown_url
from stepwell.settings import Settings

if TYPE_CHECKING:
    from stepwell.app.hosting import Host

log = logging.getLogger("stepwell.server")

# Names of this machine for itself.
LOOPBACK = frozenset({"localhost"})


@click.command()
@click.argument("targets", metavar="[MODULE[:NAME]]...", nargs=-1)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8787, show_default=True)
@click.option("--no-link", is_flag=True, help="Print no login link; the output may be kept.")
@click.option("--no-worker", is_flag=True, help="Execute nothing; workers elsewhere do.")
@click.option("--concurrency", type=int, default=100, show_default=True, help="Runs at a time.")
@click.option(
    "--grace", default="10s", show_default=True, metavar="DURATION",
    help="When stopped, time for requests and steps in progress to finish, together.",
)  # fmt: skip
@store_alone
@as_json
def serve(
    targets: tuple[str, ...], host: str, port: int, no_link: bool, no_worker: bool,
    concurrency: int, grace: str, store: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Serve the API, and execute runs, until stopped by SIGTERM or Ctrl-C.

    Needs nothing but a file: on its first start it makes the store, an owner, and three small
    definitions. MODULE:NAME names workflows and functions, as for `stepwell worker`.

    On PostgreSQL any number of servers and workers share one store.

    \b
    Examples:
      stepwell serve
      stepwell serve app.jobs --port 8080
      stepwell serve --no-worker --host 0.0.0.0 --store postgresql://host/db
    """
    from stepwell.app.logs import configure_logs

    configure_logs(Settings.read().log_format, sys.stderr)
    loaded = load_targets(targets)
    stopping = seconds(read_duration(grace), "--grace")
    work = {"concurrency": check_count(concurrency, "--concurrency"), "grace": stopping}
    serving = _Serving(host, port, stopping, not no_link, as_json)
    asyncio.run(serving.run(store_url(store), loaded, None if no_worker else work))


class _Serving:
    """One server, from its first request to its last."""

    def __init__(
        self, address: str, port: int, grace: float, with_link: bool, as_json: bool
    ) -> None:
        self._address = address
        self._port = port
        self._grace = grace
        self._with_link = with_link
        self._as_json = as_json

    async def run(self, url: str, loaded: Any, work: dict[str, Any] | None) -> None:
        from stepwell.app.hosting import Host, Shape

        # By name: surfaces do not import each other, and this one starts another.
        server, api_of = import_module("stepwell.api.server"), import_module("stepwell.api.app").Api
        settings = Settings.read()
        stop = asyncio.Event()
        catch_signals(stop)
        listening = server.listen(self._address, self._port)
        with contextlib.closing(listening):
            shape = Shape(tuple(loaded.workflows), tuple(loaded.functions), work)
            async with Host(url, shape, settings) as host:
                await host.begin()
                api = api_of(host, {*LOOPBACK, self._address, *settings.hosts})
                base = f"http://{_named(self._address)}:{listening.getsockname()[1]}"
                files = ServerFiles(Path(STATE_FOLDER))
                # Commands in this folder talk to it if there is a token for them.
                local = is_loopback(f"http://{_written(self._address)}")
                first = local and _is_first(files)
                with files.naming(base) if first else contextlib.nullcontext():
                    await self._announce(host, files if first else None, local, base, url)
                    telling = asyncio.create_task(_tell(stop))
                    keep_what_is_there()
                    proxies = settings.trusted_proxies
                    await server.serve(api, listening, stop, self._grace, proxies)
                    telling.cancel()

    async def _announce(
        self, host: Host, files: ServerFiles | None, local: bool, base: str, url: str
    ) -> None:
        """Say where the server is and how to get in.

        Without `files` commands in this folder talk to no server, or to another one, whose token is
        there. Unless it is `local`, what it prints may be kept for others to read.
        """
        from stepwell.app.beginnings import first_owner, local_token, login_link

        login = path = None
        if files is not None:
            token = await local_token(host, files.token, files.token_path.parent)
            if token is not None:
                path = str(files.token_path)
                if token != files.token:
                    files.keep_token(token)
        if local and self._with_link and (link := await login_link(host)) is not None:
            login = f"{base}/login/{link}"
        owner = await first_owner(host)
        if self._as_json:
            emit({"url": base, "login": login, "token_file": path, "store": shown_url(url)})
            return
        click.echo(f"Stepwell serves {shown_url(url)} at {base}")
        if login is not None:
            click.echo(f"Log in with this link, once: {login}")
        elif owner is not None:
            click.echo(
                f"To log in, open {base}/login/TEXT, with what this prints on the same store: "
                f"stepwell users link {owner.name}"
            )
        if path is not None:
            click.echo(f"A token for programs is in {path}.")
        click.echo("Stop with Ctrl-C.")


def _is_first(files: ServerFiles) -> bool:
    """Whether commands in this folder have no other server to talk to, which they keep."""
    other = files.url
    if other is None or not is_loopback(other) or not listens(other):
        return True
    log.warning(
        "Another server of this folder is at %s; commands here go on talking to that one.", other
    )
    return False


async def _tell(stop: asyncio.Event) -> None:
    await stop.wait()
    log.info("Stopping; requests and steps in progress are given a moment.")


def _named(address: str) -> str:
    """How a browser on this machine names the address."""
    return "localhost" if address in ("0.0.0.0", "::") else _written(address)


def _written(address: str) -> str:
    """The address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address

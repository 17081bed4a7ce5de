"""Sending messages to whatever Apprise knows: mail, chats, telephones and so on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from stepwell.errors import AddressRefused, RequestFailed, RequestRefused
from stepwell.nodes.addresses import Guard

_WORD = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


async def push(targets: Sequence[str], title: str, message: str, guard: Guard) -> None:
    """Send a message to all targets; errors name them by their place, as URLs hold secrets."""
    library = await asyncio.to_thread(_library)
    services = await asyncio.to_thread(_services, library, targets)
    for index, service in enumerate(services):
        if not guard.allow_private and "://" in unquote(targets[index].partition("?")[2]):
            # Templates and key files: Apprise fetches them from wherever that is.
            raise AddressRefused(
                f"{_shown(targets, index)} names another address in its parameters, which is not "
                "followed unless the operator sets STEPWELL_HTTP_ALLOW_PRIVATE=1."
            )
        await _check(service, guard)
    # Nobody can stop a thread: what is on its way when the step is cancelled will arrive.
    outcomes = await asyncio.to_thread(_send, services, title, message)
    failed = [_shown(targets, index) for index, sent in enumerate(outcomes) if not sent]
    if failed:
        raise RequestFailed(
            f"{len(failed)} of {len(targets)} targets could not be notified: {', '.join(failed)}."
        )


def _library() -> Any:
    try:
        return import_module("apprise")
    except ModuleNotFoundError as error:
        if error.name != "apprise":
            raise
        raise RequestRefused(
            "Targets that are Apprise URLs need apprise, which comes with the extra `notify`: "
            "pip install 'stepwell[notify]'"
        ) from error


def _services(library: Any, targets: Sequence[str]) -> list[Any]:
    asset = library.AppriseAsset(app_id="Stepwell", app_desc="Stepwell", secure_logging=True)
    services = [library.Apprise.instantiate(target, asset=asset) for target in targets]
    unknown = [_shown(targets, index) for index, each in enumerate(services) if each is None]
    if unknown:
        raise RequestRefused(f"Not a URL that Apprise knows: {', '.join(unknown)}.")
    return services


async def _check(service: Any, guard: Guard) -> None:
    """Refuse a service of a private host, as well as it can be told.

    Apprise connects by itself and looks the name up again, so a host that changes its address in
    between gets through; to keep that out, targets must not come from strangers.
    """
    if guard.allow_private:
        return
    # A redirect would lead past this check.
    service.redirects = False
    host = (_host(service) or "").removeprefix("[").removesuffix("]")
    if host:
        try:
            await guard.addresses(host, service.port or 0)
        except RequestFailed:
            if not _WORD.fullmatch(host):
                raise
            # Not a host then, but the topic of a service that has none unless it is given.


def _host(service: Any) -> str | None:
    """The host that a service will connect to, if its URL says."""
    mail: str | None = getattr(service, "smtp_host", None)
    # Elsewhere the host of the URL is a token, which name servers must not get to see.
    named: str | None = service.host if "host" in service.template_tokens else None
    return mail or named


def _send(services: Sequence[Any], title: str, message: str) -> list[bool]:
    return [_sent(service, title, message) for service in services]


def _sent(service: Any, title: str, message: str) -> bool:
    try:
        return bool(service.notify(body=message, title=title or None))
    except Exception:  # of one service among two hundred; what it says may hold a token
        return False


def _shown(targets: Sequence[str], index: int) -> str:
    scheme, separator, _ = targets[index].partition("://")
    is_scheme = separator and scheme.isascii() and scheme.replace("+", "").isalnum()
    return f"target {index + 1} ({scheme}://…)" if is_scheme else f"target {index + 1}"

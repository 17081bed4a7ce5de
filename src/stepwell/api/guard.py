"""What every request has to pass, and every answer carries, whatever it is about."""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address

from stepwell.api.exchange import Request
from stepwell.errors import HeadersTooLarge, HostUnknown, OriginRefused, Unauthenticated

MAX_HEADER_BYTES = 32 * 1024
MAX_PATH_BYTES = 8 * 1024
# All that comes before a body: these, and the other words of the first line.
MAX_HEAD_BYTES = MAX_HEADER_BYTES + MAX_PATH_BYTES + 1024
# Methods that change nothing, so that no page of somebody else's can do harm with them.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

# A name or a number, and a port: what else may stand there would make a URL lead elsewhere.
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")

# An answer of the API is data: never a page, never kept, never read by other sites.
SECURITY_HEADERS: list[tuple[bytes, bytes]] = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


def given_id(pairs: Collection[tuple[bytes, bytes]]) -> str | None:
    """The request's id that the other side has chosen, if it is one that logs can show."""
    for name, value in pairs:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            return text if _REQUEST_ID.fullmatch(text) else None
    return None


def check_size(request: Request) -> None:
    """Refuse requests with more headers, or a longer path, than anybody needs."""
    # As they were sent: each with a colon, a space and the end of its line.
    size = sum(len(name) + len(value) + 4 for name, value in request.pairs)
    if size > MAX_HEADER_BYTES or len(request.path) + len(request.query) > MAX_PATH_BYTES:
        raise headers_too_large()


def headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"Headers are limited to {MAX_HEADER_BYTES:,} bytes, path and query to {MAX_PATH_BYTES:,}."
    )


def check_repeats(request: Request) -> None:
    """Refuse several where there can be one: a proxy may go by another of them than we do."""
    if len(request.headers) == len(request.pairs):  # as in nearly all requests
        return
    names = [name for name, _ in request.pairs]
    if names.count(b"host") > 1:
        raise HostUnknown("There are several headers Host; send one.")
    if names.count(b"authorization") > 1:
        raise Unauthenticated("There are several headers Authorization; send one.")


def check_host(request: Request, known: Collection[str]) -> None:
    """Refuse names that this server does not go by: a page may have made its own name lead here."""
    host = request.headers.get("host", "").lower()
    found = _HOST.fullmatch(host)
    if found is None or (found[1] not in known and not _is_address(found[1])):
        raise HostUnknown(
            f"This server does not go by {host or 'no name'!r:.200}. If it should, name it: "
            "STEPWELL_HOSTS, by commas."
        )


def _is_address(name: str) -> bool:
    """Whether it is a number: those lead where they lead, whatever a page would like."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def check_origin(request: Request) -> None:
    """Refuse what a page of another site makes a browser send along with our cookie."""
    if request.method in SAFE:
        return
    origin = request.headers.get("origin")
    if origin is not None:
        same = _is_own(origin, request)
    else:
        same = request.headers.get("sec-fetch-site") == "same-origin"
    if not same:
        raise OriginRefused(
            "A session can only be used by pages of this server. Programs use a token: "
            "`Authorization: Bearer …`."
        )


def check_no_other_site(request: Request) -> None:
    """Refuse what a page of another site sends, whatever it shows to be let in."""
    origin = request.headers.get("origin")
    if origin is not None and not _is_own(origin, request):
        raise OriginRefused(f"Nothing is answered here to pages of {origin!r:.200}.")


def _is_own(origin: str, request: Request) -> bool:
    """Whether pages from there are this server's.

    Over TLS that a proxy vouches for, they have come over it. Else there may be a proxy with TLS
    that nobody has named.
    """
    schemes = ("https",) if request.scope.get("scheme") == "https" else ("http", "https")
    host = request.headers.get("host", "").lower()
    return origin.lower() in [f"{scheme}://{host}" for scheme in schemes]

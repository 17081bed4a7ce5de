"""URLs of stores and servers: taken apart with care, and shown without their passwords."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, unquote_plus, urlsplit

from stepwell.errors import StoreUrlInvalid

_HOST = r"(?:\[[^\]]*\]|[^:,\[\]]*)(?::\d*)?"
_HOSTS = re.compile(f"{_HOST}(?:,{_HOST})*")
_PORT = re.compile(r":(\d+)(?=,|$)")
# Of a web server: a host, and nothing that cannot be sent as it is.
_WEB = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(?:[/?][!\"$-~]*)?")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:(?://)?")


def split_url(url: str, what: str = "The store's URL") -> SplitResult:
    """The parts of a URL; refused when some of a password may have got into another part."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or not _is_tidy(url, parts):
        raise StoreUrlInvalid(
            f"{what}: {_scheme_alone(url)!r} cannot be taken apart. Ports must be numbers below "
            "65536, and special characters in a user, password or option must be percent-encoded: "
            "# is %23, / is %2F, ? is %3F, @ is %40."
        )
    return parts


def _is_tidy(url: str, parts: SplitResult) -> bool:
    user, _, hosts = parts.netloc.rpartition("@")
    return (
        url.isprintable()
        and "#" not in url
        and "@" not in user + parts.path + parts.query
        and _HOSTS.fullmatch(hosts) is not None
        and all(int(port) < 65536 for port in _PORT.findall(hosts))
        and all("=" in option for option in parts.query.split("&") if option)
    )


def shown_url(url: str) -> str:
    """A URL as it may be shown: without passwords, and of an untidy one only the scheme."""
    head, mark, query = url.partition("?")
    if not url.startswith("sqlite:///"):  # a path may have any character, and has no password
        try:
            user = split_url(url).netloc.rpartition("@")[0]
        except StoreUrlInvalid:
            return _scheme_alone(url)
        name, _, password = user.partition(":")
        if password:
            head = head.replace(f"{user}@", f"{name}:***@", 1)
    return head + mark + "&".join(map(_shown_option, query.split("&")))


def _shown_option(option: str) -> str:
    name = option.partition("=")[0]
    return f"{name}=***" if "password" in unquote_plus(name).lower() else option


def _scheme_alone(url: str) -> str:
    found = _SCHEME.match(url)
    return f"{found[0] if found else ''}…"


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine, whoever says so."""
    host = ""
    try:
        host = urlsplit(url).hostname or ""
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_confidential(url: str) -> bool:
    """Whether nobody on the way to a web server can read along, or answer in its place."""
    if not _WEB.fullmatch(url):
        return False
    return url.startswith("https://") or is_loopback(url)

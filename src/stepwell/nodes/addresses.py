"""Which addresses requests may reach, and the guard that finds out where one would go."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from stepwell.errors import AddressRefused, RequestFailed

# What IANA keeps for private networks, single hosts, groups, tests and the future.
_SPECIAL = tuple(
    ip_network(each)
    for each in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip
# The only part of IPv6 that is public; loopback, fc00::/7, fe80::/10 and ff00::/8 lie outside.
_PUBLIC = ip_network("2000::/3")
# IPv6 addresses that lead to an IPv4 address, and how many bits stand behind it in them:
# mapped ones, those of NAT64, and those of 6to4.
_EMBEDDING = (
    (ip_network("::ffff:0:0/96"), 0),
    (ip_network("64:ff9b::/96"), 0),
    (ip_network("2002::/16"), 80),
)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


def is_public(address: str) -> bool:
    """Whether an address lies in the public internet; what cannot be read does not."""
    try:
        found = _embedded(ip_address(address))
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found not in _PUBLIC:
        return False
    return not any(found in network for network in _SPECIAL)


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address leads to, else the address itself."""
    for network, behind in _EMBEDDING:
        if address in network:
            return IPv4Address((int(address) >> behind) & 0xFFFF_FFFF)
    return address


def is_within(host: str, domains: Sequence[str]) -> bool:
    """Whether a host is one of these domains or below one; `*.x.test` means below it only."""
    name = host.lower().rstrip(".")
    for domain in domains:
        wanted = domain.lower().rstrip(".")
        if wanted.startswith("*."):
            wanted = wanted[1:]
        elif name == wanted:
            return True
        else:
            wanted = f".{wanted}"
        if name.endswith(wanted):
            return True
    return False


async def resolve_by_system(host: str, port: int) -> list[str]:
    """The addresses of a host, as this machine finds them, in the order to try them in."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


@dataclass(frozen=True)
class Guard:
    """Decides whether a request may go to a host, and to which of its addresses."""

    allow_private: bool
    # None: all of them.
    allowed_domains: Sequence[str] | None = None
    resolve: Resolve = resolve_by_system

    def check_domain(self, *names: str) -> None:
        """Refuse a host none of whose names is in an allowed domain."""
        domains = self.allowed_domains
        if domains is not None and not any(is_within(name, domains) for name in names):
            raise AddressRefused(
                f"The request would go to {names[0]}, which is not in allowed_domains "
                f"({', '.join(domains)}).",
                host=names[0],
            )

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Where to connect to: what was checked here must not be looked up again.

        A name could lead elsewhere the next time it is asked for, so that a check of the name
        alone would check nothing.
        """
        try:
            found = await self.resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise RequestFailed(f"The host {host} was not found: {error}.", host=host) from error
        if not found:
            raise RequestFailed(f"The host {host} has no address.", host=host)
        if not self.allow_private and not all(map(is_public, found)):
            raise AddressRefused(
                f"The host {host} is not public: it has a private, local or reserved address. "
                "The operator can allow such requests with STEPWELL_HTTP_ALLOW_PRIVATE=1.",
                host=host,
            )
        return found

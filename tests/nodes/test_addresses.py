"""Which addresses requests may reach."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stepwell.errors import AddressRefused, RequestFailed
from stepwell.nodes.addresses import Guard, is_public, is_within, resolve_by_system


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.8.8.8",
        "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1",
        "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255",
        "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::",
        "2002:c0a8:101::1", "2001:0:7f00:1::1", "2001:db8::1", "3fff::1", "100::1", "fc00::1",
        "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "not an address", "",
    ],
)  # fmt: skip
def test_an_address_that_is_not_of_the_public_internet_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1", "9.255.255.255", "100.63.255.255", "100.128.0.1", "172.32.0.1", "223.255.255.1",
        "2606:4700::1111", "2001:4860:4860::8888", "::ffff:1.1.1.1", "64:ff9b::101:101",
    ],
)  # fmt: skip
def test_other_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("host", "domain", "allowed"),
    [
        ("x.test", "x.test", True),
        ("a.b.x.test", "x.test", True),
        ("X.Test.", "x.test", True),
        ("x.test", "X.TEST.", True),
        ("a.x.test", "*.x.test", True),
        ("x.test", "*.x.test", False),
        ("ax.test", "x.test", False),
        ("ax.test", "*.x.test", False),
        ("x.test.evil.test", "x.test", False),
        ("test", "x.test", False),
        ("", "x.test", False),
    ],
)
def test_a_domain_allows_itself_and_what_is_below_it(host: str, domain: str, allowed: bool) -> None:
    assert is_within(host, [domain]) is allowed


def leading_to(*addresses: str) -> Guard:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return Guard(allow_private=False, resolve=resolve)


async def test_all_addresses_of_a_host_are_checked() -> None:
    assert await leading_to("1.1.1.1", "1.0.0.1").addresses("x.test", 80) == ("1.1.1.1", "1.0.0.1")
    with pytest.raises(AddressRefused, match=r"x\.test .*STEPWELL_HTTP_ALLOW_PRIVATE=1"):
        await leading_to("1.1.1.1", "10.0.0.1").addresses("x.test", 80)


async def test_a_host_without_addresses_may_have_some_later() -> None:
    with pytest.raises(RequestFailed, match=r"x\.test has no address"):
        await leading_to().addresses("x.test", 80)
    for host in ("a..b", "x" * 70):
        with pytest.raises(RequestFailed, match="was not found"):
            await Guard(allow_private=True).addresses(host, 80)


@pytest.mark.parametrize("written", ["127.1", "0x7f.1", "2130706433", "017700000001", "127.0.0.1"])
async def test_odd_ways_to_write_an_address_are_read_as_the_system_reads_them(written: str) -> None:
    assert await resolve_by_system(written, 80) == ["127.0.0.1"]

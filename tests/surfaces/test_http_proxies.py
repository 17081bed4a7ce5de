"""Behind a proxy: whom the server believes where a request came from."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from stepwell.api.server import seen_as
from stepwell.errors import InvalidInput
from stepwell.kernel.access import new_token
from stepwell.settings import Settings
from tests.surfaces.serving import Served, served

pytestmark = pytest.mark.anyio

FORWARDED = {"x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "https"}


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/stepwell.db"


async def blocked(server: Served) -> list[bool]:
    """Whether each of many unknown tokens was told to wait, and the next from elsewhere."""
    seen = []
    for address in [*["198.51.100.7"] * 62, "198.51.100.8"]:
        text = new_token(server.host.ids.new())
        given = {"x-forwarded-for": address, "authorization": f"Bearer {text}"}
        answer = await server.http.get("/api/runs", headers=given)
        seen.append(answer.status_code == 429)
    return seen


async def cookie(server: Served, headers: dict[str, str]) -> str:
    link = await server.host.doorkeeper.new_link("owner-1")
    entered = await server.http.get(f"/login/{link}", headers=headers)
    assert entered.status_code == 303
    return str(entered.headers["set-cookie"])


async def test_what_anybody_says_of_where_they_come_from_is_ignored(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    async with served(sqlite_url, worker=False) as server:
        assert (await blocked(server))[-1], "it is counted as what it is: the same address"
        assert "; Secure" not in await cookie(server, FORWARDED)


@pytest.mark.parametrize("proxies", [["127.0.0.1/32"], ["10.0.0.0/8", "127.0.0.0/8"]])
async def test_a_trusted_proxy_is_believed(sqlite_url: str, proxies: list[str]) -> None:
    async with served(sqlite_url, worker=False, proxies=proxies) as server:
        seen = await blocked(server)
        assert True in seen
        assert not seen[-1], "another address has its own attempts"
        assert "; Secure" in await cookie(server, FORWARDED)
        assert "; Secure" not in await cookie(server, {})


async def test_over_tls_a_session_acts_only_for_pages_that_came_over_it(sqlite_url: str) -> None:
    async with served(sqlite_url, worker=False, proxies=["127.0.0.1/32"]) as server:
        session = (await cookie(server, FORWARDED)).partition(";")[0]
        server.http.cookies.clear()
        for scheme, forwarded, status in [
            ("https", "https", 202), ("http", "https", 403), ("http", "http", 202),
        ]:  # fmt: skip
            headers = {
                "origin": server.url.replace("http", scheme), "cookie": session,
                "x-forwarded-for": "198.51.100.7", "x-forwarded-proto": forwarded,
            }  # fmt: skip
            sent = {"type": "ping"}
            answer = await server.ask("POST", "/api/events", sent, role=None, headers=headers)
            assert answer.status_code == status, (scheme, forwarded)


async def test_others_than_the_trusted_proxy_are_not_believed(sqlite_url: str) -> None:
    async with served(sqlite_url, worker=False, proxies=["192.0.2.0/24"]) as server:
        assert (await blocked(server))[-1]
        assert "; Secure" not in await cookie(server, FORWARDED)


def test_proxies_are_addresses_or_networks() -> None:
    read = Settings.read({"STEPWELL_TRUSTED_PROXIES": "10.1.2.3/8, 192.0.2.1,::1,"})
    assert read.trusted_proxies == ("10.0.0.0/8", "192.0.2.1/32", "::1/128")
    assert Settings.read({}).trusted_proxies == ()
    for wrong in ("*", "proxy.example", "10.0.0.0/33"):
        with pytest.raises(InvalidInput, match="STEPWELL_TRUSTED_PROXIES"):
            Settings.read({"STEPWELL_TRUSTED_PROXIES": wrong})


def test_a_proxy_is_known_on_a_socket_for_both_kinds_of_addresses() -> None:
    networks = [ip_network(each) for each in seen_as("10.0.0.0/8")]
    for address, known in [
        ("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("::ffff:11.1.2.3", False), ("::1", False),
    ]:  # fmt: skip
        assert any(ip_address(address) in each for each in networks) is known, address
    assert seen_as("2001:db8::/32") == ["2001:db8::/32"]

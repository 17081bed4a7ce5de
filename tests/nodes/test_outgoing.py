"""How requests find their way: names, addresses, redirects, certificates."""

from __future__ import annotations

import datetime
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from stepwell.errors import AddressRefused, RequestFailed, RequestRefused
from stepwell.nodes import addresses, outgoing
from stepwell.nodes.addresses import Guard
from stepwell.nodes.outgoing import Answer, Outgoing, exchange
from tests.nodes.web import Asked, Web, reply, serving


class Names:
    """A name server; every look-up of a name gets the next of its answers."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("_", "."): given for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers[host].pop(0)


async def sent(
    url: str, guard: Guard, method: str = "GET", redirects: int = 5, **headers: str
) -> Answer:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    content = b"data" if method == "POST" else None
    request = Outgoing(method, url, given, content, "The request")
    return await exchange(request, guard, max_bytes=1000, redirects=redirects)


def redirect(to: str, status: int = 302) -> bytes:
    return reply(status, b"", Location=to)


async def test_the_address_that_was_checked_is_the_one_that_is_used() -> None:
    names = Names(x_test=[["127.0.0.1"], ["127.0.0.2"]])
    async with serving(lambda _: reply()) as web:
        answer = await sent(f"http://x.test:{web.port}/a", Guard(True, resolve=names))
    assert names.asked == ["x.test"]
    assert web.asked[0].headers["host"] == f"x.test:{web.port}"
    assert answer.url == f"http://x.test:{web.port}/a"


async def test_the_next_address_is_tried_when_nobody_listens_at_one() -> None:
    names = Names(x_test=[["127.0.0.9", "127.0.0.8", "127.0.0.1"]])
    async with serving(lambda _: reply()) as web:
        await sent(f"http://x.test:{web.port}/", Guard(True, resolve=names))
    assert len(web.asked) == 1


async def test_international_names_are_asked_for_and_allowed_in_both_forms() -> None:
    for domain in ("bücher.test", "xn--bcher-kva.test"):
        names = Names(**{"xn--bcher-kva_test": [["127.0.0.1"]]})
        async with serving(lambda _: reply()) as web:
            guard = Guard(True, [domain], names)
            await sent(f"http://bücher.test:{web.port}/", guard)
        assert names.asked == ["xn--bcher-kva.test"]


@pytest.fixture
def loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 stands for the internet, which tests do not reach."""
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.1")


@pytest.mark.usefixtures("loopback_is_public")
async def test_a_redirect_to_a_private_address_is_refused() -> None:
    async with serving(lambda _: reply(), "127.0.0.2") as secret:
        for inner in (f"127.0.0.2:{secret.port}", f"x.test:{secret.port}"):
            names = Names(y_test=[["127.0.0.1"]], x_test=[["127.0.0.2"]])
            names._answers["127.0.0.2"] = [["127.0.0.2"]]
            async with serving(lambda _, to=inner: redirect(f"http://{to}/")) as web:  # type: ignore[misc]
                with pytest.raises(AddressRefused):
                    await sent(f"http://y.test:{web.port}/", Guard(False, resolve=names))
    assert secret.asked == []


@pytest.mark.usefixtures("loopback_is_public")
async def test_a_name_that_leads_elsewhere_at_the_next_hop_is_refused_there() -> None:
    names = Names(x_test=[["127.0.0.1"], ["127.0.0.2"]])
    async with serving(lambda _: redirect("/again")) as web:
        with pytest.raises(AddressRefused, match=r"x\.test"):
            await sent(f"http://x.test:{web.port}/", Guard(False, resolve=names))
    assert len(web.asked) == 1


async def test_a_redirect_out_of_the_allowed_domains_is_refused() -> None:
    names = Names(x_test=[["127.0.0.1"]], y_test=[["127.0.0.1"]])
    async with serving(lambda _: redirect("http://y.test/")) as web:
        with pytest.raises(AddressRefused, match=r"y\.test, which is not in allowed_domains"):
            await sent(f"http://x.test:{web.port}/", Guard(True, ["x.test"], names))


@pytest.mark.parametrize("to", ["ftp://x.test/", "file:///etc/passwd", "gopher://127.0.0.1:1/"])
async def test_a_redirect_out_of_the_web_is_refused(to: str) -> None:
    async with serving(lambda _: redirect(to)) as web:
        with pytest.raises(AddressRefused, match="http://"):
            await sent(web.url, Guard(True))


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (303, "PUT", "GET"),
        (302, "PUT", "PUT"), (307, "POST", "POST"), (308, "POST", "POST"),
    ],
)  # fmt: skip
async def test_the_status_of_a_redirect_says_what_is_sent_next(
    status: int, method: str, then: str
) -> None:
    def answer(asked: Asked) -> bytes:
        return reply() if asked.path == "/there" else redirect("/there", status)

    async with serving(answer) as web:
        result = await sent(web.url, Guard(True), method, idempotency_key="k")
    assert result.url == f"{web.url}/there"
    assert web.asked[1].method == then
    changed = method != then
    assert web.asked[1].body == (b"data" if (method, then) == ("POST", "POST") else b"")
    assert web.asked[1].headers.get("idempotency-key") == (None if changed else "k")


@pytest.mark.parametrize(("host", "kept"), [("x.test", True), ("y.test", False)])
async def test_credentials_are_not_sent_on_to_another_host(host: str, kept: bool) -> None:
    names = Names(x_test=[["127.0.0.1"]] * 2, y_test=[["127.0.0.1"]])
    ports: list[int] = []

    def answer(asked: Asked) -> bytes:
        to = f"http://u:p@{host}:{ports[0]}/there"
        return reply() if asked.path == "/there" else redirect(to)

    async with serving(answer) as web:
        ports.append(web.port)
        headers = {"authorization": "a", "cookie": "c", "x_api_key": "k", "accept": "text/html"}
        await sent(f"http://x.test:{web.port}/", Guard(True, resolve=names), **headers)
    first, then = (
        [each.headers.get(name) for name in ("authorization", "cookie", "x-api-key", "accept")]
        for each in web.asked
    )
    assert first == ["a", "c", "k", "text/html"]
    assert then == (first if kept else [None, None, None, "text/html"])


async def test_another_port_is_another_host() -> None:
    async with serving(lambda _: reply()) as other:
        async with serving(lambda _: redirect(f"{other.url}/")) as web:
            await sent(web.url, Guard(True), authorization="a")
    assert "authorization" not in other.asked[0].headers


async def test_five_redirects_are_followed_and_not_six() -> None:
    def answer(asked: Asked) -> bytes:
        left = int(asked.path[1:])
        return redirect(f"/{left - 1}") if left else reply()

    async with serving(answer) as web:
        assert (await sent(f"{web.url}/5", Guard(True))).status == 200
        with pytest.raises(RequestRefused, match="redirected more than 5 times"):
            await sent(f"{web.url}/6", Guard(True))
    assert len(web.asked) == 12


async def test_redirects_that_lead_nowhere_or_are_not_wanted_are_answers() -> None:
    async with serving(lambda asked: redirect("/x") if asked.path == "/a" else reply(302)) as web:
        assert (await sent(f"{web.url}/a", Guard(True), redirects=0)).status == 302
        assert (await sent(f"{web.url}/b", Guard(True))).status == 302


@pytest.mark.parametrize("to", ["http://[::1/", "http://x.test:port/"])
async def test_a_redirect_to_an_unreadable_url_is_refused(to: str) -> None:
    async with serving(lambda _: redirect(to)) as web:
        with pytest.raises(RequestRefused, match="The request cannot be sent"):
            await sent(web.url, Guard(True))


def test_libraries_that_take_long_to_load_wait_for_the_first_request(python: str) -> None:
    code = (
        "import sys; import stepwell.nodes.http, stepwell.nodes.notify;"
        "sys.exit(' '.join({'httpx2', 'apprise'} & set(sys.modules)))"
    )
    ran = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr.strip() == ""


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(lambda _: reply()) as web:
        assert (await sent(web.url, Guard(True))).status == 200


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """A server's side of TLS, with a certificate for x.test that this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x.test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("x.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "x.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    outgoing._library.cache_clear()
    yield context
    outgoing._library.cache_clear()


async def over_tls(host: str, web: Web) -> Answer:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    return await sent(f"https://{host}:{web.port}/", Guard(True, resolve=resolve))


async def test_certificates_are_checked_for_the_name_not_the_address(
    certificate: ssl.SSLContext,
) -> None:
    asked_for: list[str | None] = []
    certificate.sni_callback = lambda _, name, __: asked_for.append(name)
    async with serving(lambda _: reply(), tls=certificate) as web:
        for host in ("x.test", "x.test."):
            assert (await over_tls(host, web)).status == 200
        for host in ("y.test", "127.0.0.1"):
            with pytest.raises(RequestFailed, match="got no answer"):
                await over_tls(host, web)
    assert asked_for == ["x.test", "x.test", "y.test", None]
    assert len(web.asked) == 2


async def test_a_host_at_the_same_address_has_to_show_its_own_certificate(
    certificate: ssl.SSLContext,
) -> None:
    ports: list[int] = []
    async with serving(lambda _: redirect(f"https://y.test:{ports[0]}/"), tls=certificate) as web:
        ports.append(web.port)
        with pytest.raises(RequestFailed, match="got no answer"):
            await over_tls("x.test", web)
    assert len(web.asked) == 1

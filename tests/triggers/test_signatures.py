"""Signatures: what their senders sign is accepted, and nothing else ever is."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
import standardwebhooks
from hypothesis import assume, given
from hypothesis import strategies as st

from stepwell.errors import SignatureInvalid
from stepwell.triggers.inbound.headers import Headers
from stepwell.triggers.inbound.signatures import PRESETS, Reason, verify
from tests.triggers.signing import NOW, NOW_SECONDS, SECRET, WHSEC, sha256, signed

BODY = b'{"hello": "w\xc3\xb6rld"}'
ALL = list(PRESETS)
TIMED = ["standard-webhooks", "stripe", "slack"]


def refusal(
    preset: str, pairs: Sequence[tuple[Any, Any]], body: bytes = BODY,
    secrets: Sequence[str] = (SECRET,), now: int = NOW, **options: Any,
) -> SignatureInvalid:  # fmt: skip
    with pytest.raises(SignatureInvalid) as raised:
        verify(preset, Headers(pairs), body, secrets, now, **options)
    error = raised.value
    assert error.code == "signature_invalid"
    assert error.details["reason"] in get_args(Reason)
    return error


def reason(*args: Any, **options: Any) -> str:
    return str(refusal(*args, **options).details["reason"])


# What senders publish.


def test_githubs_published_example() -> None:
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = Headers([("X-Hub-Signature-256", f"sha256={digest}")])
    verify("github", headers, b"Hello, World!", ["It's a Secret to Everybody"], NOW)
    with pytest.raises(SignatureInvalid):
        verify("github", headers, b"Hello, World?", ["It's a Secret to Everybody"], NOW)


def test_slacks_published_example() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    pairs = [("X-Slack-Request-Timestamp", "1531420618"), ("X-Slack-Signature", signature)]
    secrets, then = ["8f742231b10e8888abcd99yyyzzz85a5"], 1_531_420_618_000_000
    verify("slack", Headers(pairs), body, secrets, then)
    assert reason("slack", pairs, body, secrets, NOW) == "too_old"


def test_the_hash_is_the_one_of_rfc_4231() -> None:
    # Test case 2: key "Jefe", both lengths.
    data = b"what do ya want for nothing?"
    short = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    long = (
        "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
        "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
    )
    for digest in (short, long):
        for text in (digest, digest.upper(), base64.b64encode(bytes.fromhex(digest)).decode()):
            verify("hmac", Headers([("X-Webhook-Signature", text)]), data, ["Jefe"], NOW)


IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@given(st.text(st.characters(codec="utf-8")), IDS, st.binary(min_size=1, max_size=40))
def test_what_the_standard_webhooks_library_signs_is_accepted(
    body: str, message_id: str, key: bytes
) -> None:
    secret = f"whsec_{base64.b64encode(key).decode()}"
    at = datetime.fromtimestamp(NOW_SECONDS, UTC)
    signature = standardwebhooks.Webhook(secret).sign(message_id, at, body)
    for header in (signature, f"v1a,abc {signature} v1,AAAA"):
        headers = Headers(
            [
                ("webhook-id", message_id),
                ("webhook-timestamp", str(NOW_SECONDS)),
                ("webhook-signature", header),
            ]
        )
        verify("standard-webhooks", headers, body.encode(), [secret], NOW)
        verify("standard-webhooks", headers, body.encode(), [secret.removeprefix("whsec_")], NOW)


def test_what_stripes_library_signs_is_accepted() -> None:
    # Stripe publishes no secret and body with the header in its documentation. This is what version
    # 16.1.0 of its library for Python signs and accepts, for the body and secret of its own tests.
    body = b'{\n  "id": "evt_test_webhook",\n  "object": "event"\n}'
    digest = "4f1cd7feda9826e746b7d482c4badebb657398df1099e1046364f6196a230150"
    then = 1_700_000_000
    for value in (f"t={then},v1={digest}", f"t={then},v1={'0' * 64},v1={digest},v0=x"):
        headers = Headers([("Stripe-Signature", value)])
        verify("stripe", headers, body, ["whsec_test_secret"], then * 1_000_000)
    for value in (f"t={then + 1},v1={digest}", f"t={then},v1={digest[:-1]}1"):
        pairs = [("Stripe-Signature", value)]
        secrets = ["whsec_test_secret"]
        assert reason("stripe", pairs, body, secrets, then * 1_000_000) == "no_match"
    unknown = [("Stripe-Signature", f"t={then},v0={digest}")]
    assert reason("stripe", unknown, body, ["whsec_test_secret"], then * 1_000_000) == "malformed"


def test_what_stripe_signs_while_a_secret_is_rolled_is_accepted() -> None:
    old, new = (sha256(key, b"%d.%b" % (NOW_SECONDS, BODY)) for key in (b"whsec_old", b"whsec_new"))
    value = f"t={NOW_SECONDS}, v1={old}, v1={new},v0=6ffbb59b2300aae63f272406069a9788"
    headers = Headers([("Stripe-Signature", value)])
    for secrets in (["whsec_old"], ["whsec_new"], ["other", "whsec_new"]):
        verify("stripe", headers, BODY, secrets, NOW)
    assert reason("stripe", [("Stripe-Signature", value)], secrets=["other"]) == "no_match"


@pytest.mark.parametrize("prefixed", [True, False])
@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_generic_signature_is_hex_or_base64_with_or_without_its_name(
    algorithm: str, prefixed: bool
) -> None:
    digest = hmac.new(SECRET.encode(), BODY, algorithm).digest()
    prefix = f"{algorithm}=" if prefixed else ""
    for text in (digest.hex(), digest.hex().upper(), base64.b64encode(digest).decode()):
        headers = Headers([("X-My-Signature", prefix + text)])
        verify("hmac", headers, BODY, [SECRET], NOW, header="x-my-signature")
    other = "sha512=" if algorithm == "sha256" else "sha256="
    assert reason("hmac", [("X-Webhook-Signature", other + digest.hex())]) == "malformed"


# What is the same for all.


@pytest.mark.parametrize("preset", ALL)
def test_either_of_two_secrets_will_do(preset: str) -> None:
    _, secret, pairs = signed(preset, BODY)
    other = WHSEC[:-4] + "AAA=" if preset == "standard-webhooks" else "another"
    for secrets in ([secret], [secret, other], [other, secret]):
        verify(preset, Headers(pairs), BODY, secrets, NOW)
    assert reason(preset, pairs, secrets=[other]) == "no_match"


@pytest.mark.parametrize("preset", ALL)
def test_it_fails_closed(preset: str) -> None:
    _, secret, pairs = signed(preset, BODY)
    for none in ([], [""], [secret, ""], ["  "], [None]):
        assert reason(preset, pairs, secrets=none) == "no_secret"
    assert reason(preset, pairs, secrets=secret) == "bad_config"
    assert reason(preset, pairs, secrets=[secret] * 3) == "bad_config"
    for i, (name, value) in enumerate(pairs):
        rest = pairs[:i] + pairs[i + 1 :]
        assert reason(preset, rest, secrets=[secret]) == "missing_header"
        assert reason(preset, [*rest, (name, "")], secrets=[secret]) == "missing_header"
        assert (
            reason(preset, [*pairs, (name.upper(), value)], secrets=[secret]) == "repeated_header"
        )
        assert reason(preset, [*pairs, (name, "")], secrets=[secret]) == "repeated_header"
        for odd in (f"{value}é", f"{value}\x00", value * 2000):
            assert reason(preset, [*rest, (name, odd)], secrets=[secret]) == "malformed"
        raw = (name.encode(), value.encode() + b"\xff")
        assert reason(preset, [*rest, raw], secrets=[secret]) == "malformed"


def test_an_unknown_preset_or_a_header_it_has_no_use_for_is_refused() -> None:
    for preset in ("", "none", "GitHub", None):
        assert reason(preset, [("X-Webhook-Secret", SECRET)]) == "bad_config"
    assert reason("github", signed("github", BODY).pairs, header="X-Mine") == "bad_config"
    assert reason("header", [("", SECRET)], header="") == "bad_config"
    assert reason("header", [("", SECRET)], header=" ") == "bad_config"


def test_a_secret_that_is_not_base64_is_refused() -> None:
    pairs = signed("standard-webhooks", BODY).pairs
    for secret in ("whsec_!!!!", "whsec_é", "whsec_abc\n"):
        assert reason("standard-webhooks", pairs, secrets=[secret]) == "bad_config"
    assert reason("standard-webhooks", pairs, secrets=["whsec_"]) == "no_secret"


@pytest.mark.parametrize("preset", TIMED)
def test_a_request_is_taken_within_the_tolerance_only(preset: str) -> None:
    _, secret, pairs = signed(preset, BODY)
    edge = 300_000_000
    for now in (NOW - edge, NOW, NOW + edge):
        verify(preset, Headers(pairs), BODY, [secret], now)
    assert reason(preset, pairs, secrets=[secret], now=NOW + edge + 1) == "too_old"
    assert reason(preset, pairs, secrets=[secret], now=NOW - edge - 1) == "from_future"
    verify(preset, Headers(pairs), BODY, [secret], NOW + 500_000, tolerance_seconds=0.5)
    assert reason(preset, pairs, secrets=[secret], now=NOW + 1, tolerance_seconds=0) == "too_old"
    for odd in (-1, float("nan"), float("inf")):
        assert reason(preset, pairs, secrets=[secret], tolerance_seconds=odd) == "bad_config"


@pytest.mark.parametrize("preset", TIMED)
def test_who_cannot_sign_is_not_told_that_it_is_late(preset: str) -> None:
    _, secret, pairs = signed(preset, BODY)
    assert reason(preset, pairs, b"forged", secrets=[secret], now=NOW * 2) == "no_match"


@pytest.mark.parametrize(
    ("preset", "name", "value"),
    [
        ("standard-webhooks", "webhook-signature", "v2,AAAA"),
        ("standard-webhooks", "webhook-timestamp", "-5"),
        ("standard-webhooks", "webhook-timestamp", "1e9"),
        ("standard-webhooks", "webhook-timestamp", "9" * 13),
        ("github", "x-hub-signature-256", "0" * 64),
        ("github", "x-hub-signature-256", "sha1=" + "0" * 40),
        ("github", "x-hub-signature-256", "sha256=" + "A" * 64),
        ("stripe", "stripe-signature", "v1=abc"),
        ("stripe", "stripe-signature", "t=1"),
        ("stripe", "stripe-signature", "t=1,t=1,v1=abc"),
        ("stripe", "stripe-signature", "t=now,v1=abc"),
        ("slack", "x-slack-request-timestamp", "soon"),
        ("hmac", "x-webhook-signature", "sha1=" + "0" * 40),
        ("hmac", "x-webhook-signature", "sha256=" + "0" * 63),
        ("hmac", "x-webhook-signature", "sha256=" + "aA" * 32),
        ("hmac", "x-webhook-signature", "sha256="),
    ],
)
def test_what_is_malformed_is_said_to_be(preset: str, name: str, value: str) -> None:
    _, secret, pairs = signed(preset, BODY)
    rest = [pair for pair in pairs if pair[0].lower() != name]
    assert reason(preset, [*rest, (name, value)], secrets=[secret]) == "malformed"


BODIES = st.binary(max_size=30)
PRESET = st.sampled_from(ALL)


@given(PRESET, BODIES, st.data())
def test_names_of_headers_may_have_any_case_and_order(
    preset: str, body: bytes, data: st.DataObject
) -> None:
    _, secret, pairs = signed(preset, body)
    pairs = [*pairs, ("Accept", "*/*"), ("Accept", "text/html")]
    shuffled = data.draw(st.permutations(pairs))
    cased = [
        ("".join(data.draw(st.sampled_from([c.lower(), c.upper()])) for c in name), value)
        for name, value in shuffled
    ]
    verify(preset, Headers(cased), body, [secret], NOW)
    raw = [(name.encode(), f" {value}\t".encode()) for name, value in cased]
    verify(preset, Headers(raw), body, [secret], NOW)


@given(st.sampled_from([each for each in ALL if each != "header"]), BODIES, st.data())
def test_no_byte_of_a_body_can_be_changed(preset: str, body: bytes, data: st.DataObject) -> None:
    _, secret, pairs = signed(preset, body)
    at = data.draw(st.integers(0, len(body)))
    changed = data.draw(
        st.sampled_from(
            [
                body[:at] + b"x" + body[at:],
                body[:at] + body[at + 1 :],
                body[:at] + bytes(b ^ 1 << data.draw(st.integers(0, 7)) for b in body[at : at + 1])
                + body[at + 1 :],
            ]
        )
    )  # fmt: skip
    assume(changed != body)
    assert reason(preset, pairs, changed, [secret]) == "no_match"


@given(PRESET, BODIES, st.data())
def test_no_character_of_a_signature_time_or_id_can_be_changed(
    preset: str, body: bytes, data: st.DataObject
) -> None:
    _, secret, pairs = signed(preset, body)
    which = data.draw(st.integers(0, len(pairs) - 1))
    name, value = pairs[which]
    # What stands behind the signatures that count is ignored, by intent.
    length = len(value.removesuffix(",v0=ignored"))
    at = data.draw(st.integers(0, length - 1))
    flipped = chr(ord(value[at]) ^ 1 << data.draw(st.integers(0, 6)))
    pairs[which] = (name, value[:at] + flipped + value[at + 1 :])
    refusal(preset, pairs, body, [secret])


def test_the_same_bits_written_in_another_way_are_no_signature() -> None:
    _, secret, pairs = signed("standard-webhooks", BODY)
    name, value = pairs[2]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    twin = alphabet[alphabet.index(value[-2]) ^ 1]
    assert base64.b64decode(value[3:-2] + twin + "=") == base64.b64decode(value[3:])
    pairs[2] = (name, f"{value[:-2]}{twin}=")
    assert reason("standard-webhooks", pairs, secrets=[secret]) == "no_match"


@given(BODIES.filter(bytes.isascii), st.sampled_from("isb "), st.text(max_size=3))
def test_what_is_accepted_here_is_accepted_by_the_library(
    body: bytes, part: str, added: str
) -> None:
    at = int(time.time())  # the library has no other clock
    [key, when, signature] = (value for _, value in signed("standard-webhooks", body, at).pairs)
    key += added if part == "i" else ""
    signature += added if part == "s" else ""
    body += added.encode() if part == "b" else b""
    pairs = [("webhook-id", key), ("webhook-timestamp", when), ("webhook-signature", signature)]
    try:
        verify("standard-webhooks", Headers(pairs), body, [WHSEC], at * 1_000_000)
    except SignatureInvalid:
        assert part != " "
    else:
        stripped = {name: value.strip(" \t") for name, value in pairs}
        standardwebhooks.Webhook(WHSEC).verify(body, stripped, json_parse=False)


@given(PRESET, st.lists(st.tuples(st.sampled_from(
    [*(each.header for each in PRESETS.values()), "webhook-id", "webhook-timestamp",
     "x-slack-request-timestamp"]), st.binary(max_size=80)), max_size=6), BODIES)  # fmt: skip
def test_whatever_comes_is_refused_by_name(
    preset: str, pairs: list[tuple[str, bytes]], body: bytes
) -> None:
    refusal(preset, pairs, body, [WHSEC])


@pytest.mark.parametrize("preset", ALL)
def test_a_refusal_shows_no_secret_and_no_signature(preset: str) -> None:
    """Not in its message, its details, or what it is caused by."""
    _, secret, pairs = signed(preset, BODY)
    expected = [value.rpartition("=" if preset != "standard-webhooks" else ",")[2]
                for name, value in pairs if "id" not in name.lower()]  # fmt: skip
    wrong = [(name, value[:-8] + "00000000") for name, value in pairs]
    right = [] if preset == "header" else pairs  # right with any body
    for given_pairs, now in itertools.product((wrong, right, []), (NOW, NOW * 2)):
        error = refusal(preset, given_pairs, b"other", [secret, secret], now)
        shown = "".join(traceback.format_exception(error)) + repr(error.details)
        for each in (secret, secret.removeprefix("whsec_"), *expected):
            assert len(each) < 8 or each not in shown
        assert hashlib.sha256(secret.encode()).hexdigest() not in shown

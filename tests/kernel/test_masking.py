"""Masking: whole secrets in their forms, and what cuts leave of them."""

from __future__ import annotations

import base64

import pytest

from stepwell.kernel.masking import Masking

SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("so correct-hor… (3 more)", "so •••… (3 more)"),
        ("so correct-hor...", "so •••..."),
        ("…se-battery and on", "…••• and on"),
        ("a …e-battery correct-… b", "a …••• •••… b"),
        ("correct-horse-battery… and", "•••… and"),
        ("correct-horse-batterycorrect-h…", "••••••…"),
        ("correct-hor and …x", "correct-hor and …x"),
        ("a cor…", "a cor…"),
        ("Loading... done", "Loading... done"),
        ("input_value='correct-ho...-battery', input_type=str",
         "input_value='•••...•••', input_type=str"),
    ],
)  # fmt: skip
def test_what_a_cut_leaves_of_a_secret_is_masked(text: str, masked: str) -> None:
    assert Masking([SECRET]).text(text) == masked


def test_a_piece_of_one_secret_is_masked_though_another_is_in_it() -> None:
    assert Masking([SECRET, "correct"]).text("a correct-hor…") == "a •••…"
    assert Masking(["abcdabcd"]).text("xabcdabcdabcd…") == "x•••…"


def test_a_secret_that_has_dots_itself_is_masked_at_a_cut() -> None:
    hidden = Masking(["so...be...it...then"])
    assert hidden.text("> so...be...i…") == "> •••…"
    assert hidden.text("…e...it...then <") == "…••• <"
    assert hidden.text("> so...be...it...then <") == "> ••• <"


@pytest.mark.parametrize(
    ("secret", "number"),
    [
        ("73819264", 73819264),
        ("73819264", 1738192640),
        ("73819264", -73819264.0),
        ("0073819264", 73819264),
        ("12345678901234567890123", 1.2345678901234567e22),
        ("7.38190", 7.3819),
    ],
)
def test_a_secret_that_has_become_a_number_is_masked(secret: str, number: float) -> None:
    assert Masking([secret]).value({"a": [number, 4711]}) == {"a": ["•••", 4711]}


def test_other_numbers_and_truth_values_stay() -> None:
    shown = [True, None, 0, 1.5, 7381, 2**63]
    assert Masking(["73819264", "True", "0000", "true", "0001", "nan"]).value(shown) == shown


def test_pieces_of_other_forms_are_masked_too() -> None:
    hidden = Masking(['a "quoted" secret'])
    assert hidden.text('{"x": "a \\"quo…') == '{"x": "•••…'
    assert hidden.text("?q=a%20%22quot…") == "?q=•••…"


@pytest.mark.parametrize("secret", ["s3cr3tvalue", "s3cr3tvalue1", "s3cr3tvalue12", SECRET])
@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("after", ["", "\n", "yz", "xyz"])
def test_nothing_of_base64_is_left_but_what_is_of_others(
    secret: str, before: str, after: str
) -> None:
    hidden = Masking([secret])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(f"{before}{secret}{after}".encode()).decode()
        # Characters have six bits; those stay that have none of the secret.
        first = encoded[: len(before) * 8 // 6]
        last = encoded[-(-len(before + secret) * 8 // 6) :] if after else ""
        assert hidden.text(f"= {encoded} !") == f"= {first}•••{last} !"


def test_text_after_base64_that_ends_with_the_secret_stays() -> None:
    encoded = base64.b64encode(b"s3cr3tvalue1").decode()
    assert Masking(["s3cr3tvalue1"]).text(f"{encoded}=x") == "•••=x"

"""Masking: whole secrets in their forms, and what cuts leave of them."""

from __future__ import annotations

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


def test_pieces_of_other_forms_are_masked_too() -> None:
    hidden = Masking(['a "quoted" secret'])
    assert hidden.text('{"x": "a \\"quo…') == '{"x": "•••…'
    assert hidden.text("?q=a%20%22quot…") == "?q=•••…"

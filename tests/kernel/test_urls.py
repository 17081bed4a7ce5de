"""URLs of stores: what may be shown of them, and which are refused for fear of a password."""

from __future__ import annotations

import pytest

from stepwell.errors import StoreUrlInvalid
from stepwell.kernel.urls import is_loopback, shown_url, split_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://u:se:cret@h,g:1/d", "postgresql://u:***@h,g:1/d"),
        ("postgresql://u:secret@[::1]:5432/d", "postgresql://u:***@[::1]:5432/d"),
        ("postgresql+driver://u:secret@h/d", "postgresql+driver://u:***@h/d"),
        ("postgresql://u@h/d?password=secret&port=1", "postgresql://u@h/d?password=***&port=1"),
        ("postgresql:///d?sslpassword=secret", "postgresql:///d?sslpassword=***"),
        ("postgresql:///d?pass%77ord=secret", "postgresql:///d?pass%77ord=***"),
        ("postgresql://u:@/d?host=/tmp/pg", "postgresql://u:@/d?host=/tmp/pg"),
        ("sqlite:///some/folder@home/#1.db", "sqlite:///some/folder@home/#1.db"),
        ("sqlite:///x.db?password=secret", "sqlite:///x.db?password=***"),
        ("nowhere", "nowhere"),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:se#cret@h/d",
        "postgresql://u:se/cret@h/d",
        "postgresql://u:se?cret@h/d",
        "postgresql://u:se@cret@h/d",
        "postgresql://u:se[cret@h/d",
        "postgresql://u:se\ncret@h/d",
        "postgresql://u:5432/cret@h/d",
        "postgresql://u:5432#cret@h/d",
        "postgresql://u:5432?secret=1@h/d",
        "postgresql://u@h/d?password=se&cret",
        "postgresql://u@h/d?password=se#cret",
        "postgresql://h:secret/d",
    ],
)
def test_of_a_url_whose_password_may_be_anywhere_only_the_scheme_is_shown(url: str) -> None:
    assert shown_url(url) == "postgresql://…"
    with pytest.raises(StoreUrlInvalid, match=r"^--store: .*percent-encoded") as refused:
        split_url(url, "--store")
    assert "se" not in refused.value.message.replace("password", "").replace("user", "")
    assert "cret" not in refused.value.message


def test_a_url_without_a_scheme_may_be_all_password() -> None:
    assert shown_url("secret@h/d") == "…"
    assert shown_url("u:secret@h/d") == "u:…"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:8787", True),
        ("http://127.0.0.2", True),
        ("http://[::1]:1/x", True),
        ("http://localhost.evil.example", False),
        ("http://10.0.0.1", False),
        ("http://localhost@evil.example", False),
        ("http://[x", False),
        ("", False),
    ],
)
def test_what_leads_to_this_machine_is_known(url: str, here: bool) -> None:
    assert is_loopback(url) is here

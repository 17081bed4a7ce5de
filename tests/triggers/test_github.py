"""GitHub's deliveries: which become events, and what those say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.triggers.inbound.github import github_events
from stepwell.triggers.inbound.headers import Headers

PULL: dict[str, Any] = {
    "action": "closed",
    "number": 42,
    "pull_request": {
        "number": 42,
        "title": "Mend the well",
        "body": "It leaked.",
        "html_url": "https://github.com/acme/well/pull/42",
        "user": {"login": "ada"},
        "head": {"ref": "mend", "sha": "a" * 40},
        "base": {"ref": "main", "sha": "b" * 40},
        "merged": True,
        "merged_at": "2026-01-31T12:00:00Z",
        "merged_by": {"login": "grace"},
        "merge_commit_sha": "c" * 40,
        "draft": False,
        "labels": [{"name": "water"}],
    },
    "repository": {"full_name": "acme/well"},
    "sender": {"login": "grace"},
}
ISSUE: dict[str, Any] = {
    "action": "labeled",
    "label": {"name": "bug"},
    "issue": {
        "number": 7,
        "title": "It leaks",
        "body": None,
        "html_url": "https://github.com/acme/well/issues/7",
        "user": {"login": "ada"},
        "state": "open",
        "labels": [{"name": "bug"}, {"name": "water"}],
    },
    "repository": {"full_name": "acme/well"},
    "sender": {"login": "ada"},
}


def events(kind: str, data: Any) -> list[tuple[str, dict[str, Any]]]:
    found = github_events(Headers([("X-GitHub-Event", kind)]), data)
    return [(each.type, each.payload) for each in found]


def test_a_merged_pull_request() -> None:
    assert events("pull_request", PULL) == [
        (
            "pr_merged",
            {
                "repository": "acme/well",
                "number": 42,
                "title": "Mend the well",
                "body": "It leaked.",
                "author": "ada",
                "sender": "grace",
                "url": "https://github.com/acme/well/pull/42",
                "labels": ["water"],
                "branch": "mend",
                "base_branch": "main",
                "head_commit": "a" * 40,
                "merge_commit": "c" * 40,
                "merged_at": "2026-01-31T12:00:00Z",
                "merged_by": "grace",
                "draft": False,
                "raw": PULL,
            },
        )
    ]


def test_an_opened_pull_request() -> None:
    pull = {**PULL["pull_request"], "merged": False, "merged_by": None, "merge_commit_sha": None}
    [(kind, payload)] = events("pull_request", {**PULL, "action": "opened", "pull_request": pull})
    assert kind == "pr_created"
    assert payload["number"] == 42
    assert payload["merge_commit"] is payload["merged_by"] is None


def test_a_labeled_issue() -> None:
    [(kind, payload)] = events("issues", ISSUE)
    assert kind == "issue_labeled"
    assert payload == {
        "repository": "acme/well",
        "number": 7,
        "title": "It leaks",
        "body": None,
        "author": "ada",
        "sender": "ada",
        "url": "https://github.com/acme/well/issues/7",
        "labels": ["bug", "water"],
        "label": "bug",
        "state": "open",
        "raw": ISSUE,
    }


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("ping", {"zen": "Keep it logically awesome."}),
        ("push", PULL),
        ("issues", PULL),
        ("pull_request", ISSUE),
        ("pull_request", {**PULL, "action": "synchronize"}),
        ("pull_request", {**PULL, "pull_request": {**PULL["pull_request"], "merged": False}}),
        ("pull_request", {**PULL, "pull_request": {**PULL["pull_request"], "merged": "true"}}),
        ("pull_request", {"action": "opened"}),
        ("issues", {**ISSUE, "action": "opened"}),
        ("issues", {"action": "labeled", "issue": {}}),
        ("pull_request", {**PULL, "action": ["closed"]}),
        ("pull_request", [PULL]),
        ("", PULL),
    ],
)
def test_everything_else_is_no_event(kind: str, data: Any) -> None:
    assert events(kind, data) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "login", "ref", "labels", "user"]), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from([("pull_request", PULL), ("issues", ISSUE)]), st.data())
def test_parts_of_any_form_do_no_harm(
    case: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    kind, sent = case
    key = data.draw(st.sampled_from(sorted(sent)))
    inner = sent[key]
    odd: Any = data.draw(JSON)
    if isinstance(inner, dict) and data.draw(st.booleans()):
        odd = {**inner, data.draw(st.sampled_from(sorted(inner))): odd}
    changed = {**sent, key: odd}
    assert all(payload["raw"] == changed for _, payload in events(kind, changed))

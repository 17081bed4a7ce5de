"""GitHub's deliveries: which become events, and what those say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.triggers.inbound.github import github_events

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


def events(data: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(each.type, each.payload) for each in github_events(data)]


def test_a_merged_pull_request() -> None:
    assert events(PULL) == [
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
    [(kind, payload)] = events({**PULL, "action": "opened", "pull_request": pull})
    assert kind == "pr_created"
    assert payload["number"] == 42
    assert payload["merge_commit"] is payload["merged_by"] is None


def test_a_labeled_issue() -> None:
    [(kind, payload)] = events(ISSUE)
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
    "data",
    [
        {"zen": "Keep it logically awesome."},
        {**PULL, "action": "synchronize"},
        {**PULL, "action": "labeled"},
        {**PULL, "pull_request": {**PULL["pull_request"], "merged": False}},
        {**PULL, "pull_request": {**PULL["pull_request"], "merged": "true"}},
        {"action": "opened"},
        {**ISSUE, "action": "opened"},
        {**ISSUE, "action": "closed"},
        {"action": "labeled", "issue": {}},
        {**PULL, "action": ["closed"]},
        [PULL],
    ],
)
def test_everything_else_is_no_event(data: Any) -> None:
    assert events(data) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "login", "ref", "labels", "user"]), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from([PULL, ISSUE]), st.data())
def test_parts_of_any_form_do_no_harm(sent: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(sent)))
    inner = sent[key]
    odd: Any = data.draw(JSON)
    if isinstance(inner, dict) and data.draw(st.booleans()):
        odd = {**inner, data.draw(st.sampled_from(sorted(inner))): odd}
    changed = {**sent, key: odd}
    assert all(payload["raw"] == changed for _, payload in events(changed))

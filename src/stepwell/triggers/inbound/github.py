"""GitHub's deliveries as events of ours: `pr_merged`, `pr_created`, `issue_labeled`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class GitHubEvent(msgspec.Struct, frozen=True):
    """An event that a delivery stands for; its payload has the delivery's own under `raw`."""

    type: str
    payload: dict[str, Any]


def github_events(data: Any) -> list[GitHubEvent]:
    """The events of a delivery, `data` being what is in its body; none for most deliveries.

    `X-GitHub-Event` is not asked: nobody has signed it, and the body says the same.
    """
    action = _at(data, "action")
    translate = _TRANSLATIONS.get(action) if isinstance(action, str) else None
    found = translate(data) if translate else None
    return [] if found is None else [GitHubEvent(found.type, {**found.payload, "raw": data})]


def _merged(data: Any) -> GitHubEvent | None:
    return _pull_request("pr_merged", data) if _at(data, "pull_request", "merged") is True else None


def _created(data: Any) -> GitHubEvent | None:
    return _pull_request("pr_created", data)


def _pull_request(kind: str, data: Any) -> GitHubEvent | None:
    pull = _at(data, "pull_request")
    if not isinstance(pull, dict):
        return None
    return GitHubEvent(
        kind,
        {
            **_common(data, pull),
            "branch": _at(pull, "head", "ref"),
            "base_branch": _at(pull, "base", "ref"),
            "head_commit": _at(pull, "head", "sha"),
            "merge_commit": _at(pull, "merge_commit_sha"),
            "merged_at": _at(pull, "merged_at"),
            "merged_by": _at(pull, "merged_by", "login"),
            "draft": _at(pull, "draft"),
        },
    )


def _labeled(data: Any) -> GitHubEvent | None:
    issue, label = _at(data, "issue"), _at(data, "label", "name")
    if not isinstance(issue, dict) or not isinstance(label, str):
        return None
    return GitHubEvent(
        "issue_labeled",
        {**_common(data, issue), "label": label, "state": _at(issue, "state")},
    )


def _common(data: Any, item: dict[str, Any]) -> dict[str, Any]:
    """What a pull request and an issue have in common; null where GitHub says nothing."""
    labels = item.get("labels")
    return {
        "repository": _at(data, "repository", "full_name"),
        "number": item.get("number"),
        "title": item.get("title"),
        "body": item.get("body"),
        "author": _at(item, "user", "login"),
        "sender": _at(data, "sender", "login"),
        "url": item.get("html_url"),
        "labels": [_at(each, "name") for each in labels] if isinstance(labels, list) else [],
    }


def _at(data: Any, *names: str) -> Any:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


# What was done → what makes an event of it, if it was done to what it is about.
_TRANSLATIONS: dict[str, Callable[[Any], GitHubEvent | None]] = {
    "closed": _merged,
    "opened": _created,
    "labeled": _labeled,
}

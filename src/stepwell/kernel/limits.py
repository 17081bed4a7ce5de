"""The names of limits: whoever starts, admits or explains a run must agree on them."""

from __future__ import annotations

from stepwell.errors import QueueFull

# The capacity of a limit that was taken away: whoever is queued under it still has a row.
UNLIMITED = 2**31 - 1


def definition_limit(workspace_id: str, definition: str) -> str:
    """The limit of `max_concurrent_runs`."""
    return f"definition:{workspace_id}/{definition}"


def describe_limit(limit_key: str) -> str:
    """What the limit counts, for people."""
    kind, _, rest = limit_key.partition(":")
    name = rest.partition("/")[2]
    return {
        "definition": f"runs of {name!r}",
        "plan": f"runs of {name!r} that the plan allows",
        "user": f"runs of the user {name!r}",
        "workspace": "runs of the workspace",
        "store": "runs of all workspaces",
    }.get(kind, f"runs with the key {name!r}")


def is_throttle(limit_key: str) -> bool:
    """Whether it counts who has begun of late, not who is active."""
    return limit_key.startswith("throttle:")


def has_queue(limit_key: str) -> bool:
    """Whether the queue of the limit is bounded by `max_queued_runs` of whoever enters it."""
    return limit_key.startswith(("definition:", "plan:", "key:"))


def key_limit(workspace_id: str, concurrency_key: str) -> str:
    """The limit of a `concurrency_key`."""
    return f"key:{workspace_id}/{concurrency_key}"


def plan_limit(workspace_id: str, definition: str) -> str:
    """The limit of the plan on runs of a definition, whatever that says of itself."""
    return f"plan:{workspace_id}/{definition}"


def user_limit(workspace_id: str, user: str) -> str:
    """The limit of all that one user has started."""
    return f"user:{workspace_id}/{user}"


def workspace_limit(workspace_id: str) -> str:
    """The limit of all runs together."""
    return f"workspace:{workspace_id}/"


# The limit of all runs of all workspaces.
STORE_LIMIT = "store:"


def refuse_if_full(
    definition: str, limit_key: str, capacity: int, most: int, active: int, waiting: int, next: int
) -> None:
    """Raise if no slot is free and `most` runs queue.

    So many are `active` and so many `waiting`; of these, the `next` do not also wait for a slot
    elsewhere, and will take what is free.
    """
    free = max(capacity - active, 0)
    if next >= free and waiting - free >= most:
        raise QueueFull(
            f"{definition!r} is not started: all slots for {describe_limit(limit_key)} are taken "
            f"({capacity}), and max_queued_runs lets {most} queue. Try again when there is room.",
            definition=definition, limit="max_queued_runs", value=most, queue=limit_key,
        )  # fmt: skip

"""Every operation, called once at least with something that there is, over whatever surface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from stepwell import Stepwell
from tests.operations.support import definition, node, open_gate, some
from tests.surfaces.agents import GATED, TASKS, publish

Do = Callable[..., Awaitable[Any]]


class Recorder:
    """A place that keeps what its operations were given last and have returned."""

    def __init__(self, place: Stepwell) -> None:
        self._place = place
        self.calls: dict[str, tuple[dict[str, Any], Any]] = {}

    def noun(self, name: str) -> Any:
        return Recorded(self._place.noun(name), self.calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


class Recorded:
    """A noun of such a place."""

    def __init__(self, noun: Any, calls: dict[str, tuple[dict[str, Any], Any]]) -> None:
        self._noun = noun
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._noun, name)

        async def call(**given: Any) -> Any:
            value = await method(**given)
            self._calls[f"{self._noun.noun}.{name}"] = given, value
            return value

        return call


async def walk(sw: Stepwell, do: Do) -> None:
    """Call every operation once, at least, with something that there is."""
    await definitions(do)
    await triggers(do)
    await publish(sw, GATED, TASKS)
    started = await do("runs.start", ref="ship", input={"tag": "v1"}, idempotency_key="once")
    gate = await open_gate(sw, started["id"])
    assert (await do("gates.list", run_id=started["id"]))["items"][0]["id"] == gate.id
    await do("gates.get", gate_id=gate.id)
    await do("gates.decide", gate_id=gate.id, decision="approve", seen_hash=gate.subject_hash)
    ended = await do("runs.start", ref="ship", input={"tag": "v1"}, idempotency_key="once", wait=60)
    assert (ended["created"], ended["status"]) == (False, "completed")
    await do("runs.get", run_id=started["id"])
    await do("runs.explain", run_id=started["id"])
    await do("steps.list", run_id=started["id"])
    assert (await do("runs.document", run_id=started["id"]))["document"]["name"] == "ship"
    again = await do("runs.start", ref="ship", input={"tag": "v2"})
    gate = await open_gate(sw, again["id"])
    token = (await do("gates.token", gate_id=gate.id))["token"]
    await do("gates.answer", token=token, decision="deny")
    await do("runs.fork", run_id=started["id"], from_step="ok", input={"tag": "v2"})
    await tasks(sw, do)
    await do("events.emit", type="paid", payload={"by": "card"})
    assert (await do("events.list", type="paid"))["items"][0]["payload"] == {"by": "card"}
    await do("secrets.set", name="hook", value="correct horse battery")
    assert [each["name"] for each in (await do("secrets.list"))["items"]] == ["hook"]
    await do("secrets.delete", name="hook")
    assert (await do("workers.list"))["items"][0]["alive"] is True
    assert (await do("workers.health"))["alive"] == 1


async def definitions(do: Do) -> None:
    free = {"proposals": True, "self_review": True}
    first = definition(node("a", "delay", duration=1), name="tidy-up", policy=free)
    second = definition(node("b", "delay", duration=1), name="tidy-up", policy=free)
    assert (await do("definitions.create", name="tidy-up"))["id"] == "tidy-up"
    draft = await do("drafts.save", name="tidy-up", document=first)
    assert (await do("drafts.get", name="tidy-up"))["etag"] == draft["etag"]
    await do("drafts.publish", name="tidy-up", if_match=draft["etag"], enabled=True)
    await do("drafts.save", name="tidy-up", document=second)
    assert await do("drafts.discard", name="tidy-up") == {"discarded": True}
    await do("definitions.publish", document=second)
    await do("definitions.rollback", name="tidy-up", ref=1)
    await do("definitions.sync", document=second)
    await do("definitions.sync_all", documents=[first], apply=False)
    await do("definitions.get", name="tidy-up")
    assert [each["id"] for each in (await do("definitions.list"))["items"]][-1] == "tidy-up"
    assert (await do("definitions.document", name="tidy-up"))["document"]["name"] == "tidy-up"
    await do("definitions.revision", name="tidy-up", ref="1")
    await do("definitions.history", name="tidy-up")
    await do("definitions.diff", name="tidy-up", a=1, b=2)
    assert (await do("definitions.validate", document={"name": "?"}))["ok"] is False
    await do("definitions.set_enabled", name="tidy-up", enabled=True)
    await do("definitions.set_layout", name="tidy-up", layout={"b": [1, 2]})
    assert (await do("definitions.layout", name="tidy-up"))["layout"] == {"b": [1, 2]}
    edits = [{"op": "update_node", "id": "b", "set": {"config.duration": 2}}]
    proposal = await do("proposals.propose", name="tidy-up", operations=edits)
    await do("proposals.get", proposal_id=proposal["id"])
    await do("proposals.list", name="tidy-up")
    await do("proposals.review", proposal_id=proposal["id"], approve=True)
    await do("proposals.apply", proposal_id=proposal["id"])
    await do("definitions.publish", document={**first, "name": "gone"})
    assert await do("definitions.delete", name="gone") is None


async def triggers(do: Do) -> None:
    daily = {"cron": "0 9 * * *"}
    made = await do("triggers.create", definition="tidy-up", type="schedule", config=daily)
    of_it = {"trigger": made["id"]}
    await do("triggers.list", definition="tidy-up")
    assert await do("triggers.get", **of_it) == made
    await do("triggers.preview", **of_it)
    await do("triggers.update", **of_it, config={"cron": "0 10 * * *"})
    await do("triggers.disable", **of_it)
    await do("triggers.enable", **of_it)
    await do("triggers.fire", **of_it)
    assert await do("triggers.doubts", **of_it) == {"items": []}
    await do("triggers.refusals", **of_it)
    await do("triggers.delete", **of_it)


async def tasks(sw: Stepwell, do: Do) -> None:
    started = await do("runs.start_document", document=TASKS)
    of_it = {"run_id": started["id"]}
    await some(lambda: sw.tasks(started["id"]))
    assert (await do("steps.tasks", **of_it))["items"][0]["title"] == "Build it"
    assert await do("steps.advance", **of_it, step="build", summary="Built.") is None
    await do("runs.signal", **of_it, event="hello")
    await do("runs.list", status=["pending", "running", "waiting"], definition="chores", limit=5)
    await do("runs.counts")
    assert await do("runs.cancel", **of_it) == {"cancelled": True}
    await do("runs.retry", **of_it)


async def walk_access(do: Do) -> None:
    """The same for what decides who may do what, by an owner with a session."""
    await do("workspaces.list")
    await do("workspaces.get", workspace_id="default")
    await do("workspaces.rename", workspace_id="default", title="First")
    me = await do("users.me")
    made = await do("users.create", name="ada@example.org", role="member")
    of_her = {"user_id": made["user"]["id"]}
    await do("users.list")
    await do("users.set_role", **of_her, role="admin")
    await do("users.link", **of_her)
    await do("users.set_password", **of_her, password="correct horse battery")
    assert (await do("users.sessions", **of_her)) == {"items": []}
    own = await do("users.sessions", user_id="me")
    await do("users.revoke_session", user_id="me", session_id=own["items"][0]["id"])
    await do("users.remove", **of_her)
    token = await do("tokens.create", name="ci", permission="run")
    assert token["text"].startswith("sw_")
    await do("tokens.list")
    await do("tokens.revoke", token_id=token["id"])
    await do("workspaces.create", id="second", title="Second")
    await do("secrets.rotate")
    actors = {each["actor"] for each in (await do("audit.list", limit=5))["items"]}
    assert actors == {me["name"]}

"""The command line against a server: the same commands, the same documents."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.serving import Server, running
from tests.surfaces.support import PATIENCE_SECONDS, Cli

GRAPH = """
name: ask-first
nodes:
  - {id: gate, type: approval, config: {prompt: "Really?"}}
  - {id: done, type: transform, config: {value: "yes"}}
edges:
  - {source: gate, target: done}
"""
FLOW = """
name: flow
policy: {proposals: true}
nodes: [{id: a, type: transform, config: {value: 1}}]
"""
TASK = """
name: by-hand
nodes:
  - {id: do, type: task, config: {title: Do it, instructions: Carefully}}
"""


@pytest.fixture
def server(store_url: str, anyio_backend: str) -> Iterator[Server]:
    with running(store_url) as found:
        yield found


@pytest.fixture
def there(server: Server, store_url: str, tmp_path: Path) -> Cli:
    """The command line with a server named in place of the store."""
    cli = Cli(tmp_path, store_url)
    cli.named = {
        "STEPWELL_STORE": None, "STEPWELL_URL": server.url, "STEPWELL_TOKEN": server.token,
    }  # fmt: skip
    (tmp_path / "ask.yaml").write_text(GRAPH, "utf-8")
    (tmp_path / "task.yaml").write_text(TASK, "utf-8")
    return cli


@pytest.fixture
def here(store_url: str, tmp_path: Path) -> Cli:
    """The command line with the store of that server."""
    return Cli(tmp_path, store_url)


def steady(document: Any) -> Any:
    """A document without what is another one at another time."""
    if isinstance(document, dict):
        changing = {"last_heartbeat_seconds", "heartbeat_at", "expires_at"}
        return {name: steady(each) for name, each in document.items() if name not in changing}
    return [steady(each) for each in document] if isinstance(document, list) else document


def test_commands_about_runs_do_at_a_server_what_they_do_here(there: Cli, here: Cli) -> None:
    done = there.ok("runs", "start", "greet", '{"name": "Ada"}', "--wait", "--timeout", "30s")
    assert done["output"] == {"hello": "Ada"}
    broken = there("runs", "start", "break", "--wait", "--json")
    assert broken.exit_code == 40
    assert broken.document["error"]["code"] == "run_failed"
    failed = broken.document["error"]["details"]["run_id"]
    limits = ("--concurrency-key", "k", "--concurrency-limit", "2", "--max-queued-runs", "5")
    asked = there.ok("runs", "start", "ask", "--deadline", "1h", *limits)["id"]
    there.until(lambda found: found["run"]["status"] == "waiting", "runs", "show", asked)
    for words in (
        ("runs", "list", "--definition", "greet", "--input", "name=Ada", "--since", "1h"),
        ("runs", "list", "--status", "failed", "--status", "completed"),
        ("runs", "show", done["id"]),
        ("runs", "explain", asked),
        ("workers",),
        ("triggers", "list"),
        ("definitions", "list"),
        ("secrets", "list"),
        ("proposals", "list"),
        ("events", "list"),
    ):
        assert steady(there.ok(*words)) == steady(here.ok(*words)), words
        assert there(*words).stdout.splitlines()[2:] == here(*words).stdout.splitlines()[2:]
    assert there.ok("runs", "signal", asked, "answer", "7") == {"id": asked, "delivered": True}
    there.until(lambda found: found["run"]["output"] == 7, "runs", "show", asked)
    late = there("runs", "signal", asked, "answer", "7", "--json")
    assert (late.exit_code, late.document["error"]["code"]) == (40, "signal_not_delivered")
    assert not there.ok("runs", "cancel", asked)["cancelled"]
    assert there.ok("runs", "retry", failed)["created"]
    forked = there.ok("runs", "fork", done["id"], "--from-step", "greet", "--wait")
    assert forked["output"] == {"hello": "Ada"}


def test_a_wrong_status_is_refused_at_a_server_as_it_is_here(there: Cli, here: Cli) -> None:
    words = ("runs", "list", "--status", "complete", "--status", "failed")
    assert "'complete' is no status; there are pending, running" in here(*words).stderr
    assert there(*words).stderr == here(*words).stderr


def test_a_run_is_watched_at_a_server_as_it_is_here(there: Cli, here: Cli) -> None:
    run_id = there.ok("runs", "start", "ask")["id"]
    with there.started("runs", "watch", run_id, "--json") as watching:
        assert watching.stdout is not None
        types: list[str] = []
        while "run.waiting" not in types:
            line = watching.stdout.readline()
            assert line, watching.communicate()[1]
            types.append(json.loads(line)["type"])
        there.ok("runs", "signal", run_id, "answer", "7")
        said, problems = watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == 0, problems
    last = json.loads(said.splitlines()[-1])
    assert last["data"] == {"status": "completed", "output": 7}
    for words in (("runs", "watch", run_id), ("runs", "watch", run_id, "--json")):
        assert there(*words).stdout == here(*words).stdout != ""
    for after in (last["id"], "nonsense"):
        asked = ("runs", "watch", run_id, "--json", "--after", after)
        assert there(*asked) == here(*asked)


def test_definitions_and_triggers_are_changed_at_a_server(there: Cli, here: Cli) -> None:
    file = str(there.folder / "ask.yaml")
    published = there.ok("definitions", "publish", file, "--note", "first")["revision"]
    assert here.ok("definitions", "show", "ask-first")["definition"]["hash"] == published["hash"]
    there.ok("definitions", "draft", "save", "ask-first", str(there.folder / "task.yaml"))
    there.ok("definitions", "draft", "save", "ask-first", file)
    made = there.ok("triggers", "create", "ask-first", "event", '{"event": "go"}', "--name", "e")
    for words in (
        ("definitions", "list"),
        ("definitions", "show", "ask-first"),
        ("definitions", "export", "ask-first"),
        ("definitions", "history", "ask-first"),
        ("definitions", "diff", "ask-first", published["hash"]),
        ("definitions", "draft", "show", "ask-first"),
        ("triggers", "list", "ask-first"),
        ("triggers", "show", "ask-first/e"),
        ("triggers", "preview", "ask-first/e"),
    ):
        assert steady(there.ok(*words)) == steady(here.ok(*words)), words
    assert there.ok("events", "emit", "go", "{}")["triggers"] == 1
    there.ok("definitions", "draft", "discard", "ask-first")
    assert there.ok("triggers", "disable", "ask-first/e")["status"] == "disabled"
    there.ok("triggers", "enable", made["id"])
    fired = there.ok("triggers", "fire", "ask-first/e")
    assert there.ok("runs", "show", fired["run_id"])["run"]["trigger"]["type"] == "event"
    there.ok("triggers", "delete", "ask-first/e")
    there.ok("secrets", "set", "key", stdin="correct horse battery")
    assert [each["name"] for each in here.ok("secrets", "list")["items"]] == ["key"]
    plan = there.ok("definitions", "sync", str(there.folder), "--apply")
    assert plan["applied"]
    there.ok("definitions", "delete", "ask-first")


def test_who_proposes_at_a_server_is_known_by_the_token(there: Cli, here: Cli) -> None:
    flow = there.folder / "flow.yaml"
    flow.write_text(FLOW, "utf-8")
    there.ok("definitions", "publish", str(flow))
    wanted = '[{"op": "update_node", "id": "a", "set": {"timeout": "5s"}}]'
    proposed = there.ok("propose", "flow", "--operations", wanted)
    own = there("proposals", "review", proposed["id"], "--decision", "approve", "--json")
    assert own.document["error"]["code"] == "proposals_forbidden"
    here.ok("proposals", "review", proposed["id"], "--decision", "approve", "--by", "bob")
    assert there.ok("proposals", "apply", proposed["id"])["status"] == "applied"
    assert there.ok("proposals", "list") == here.ok("proposals", "list")
    rolled_back = there.ok("definitions", "rollback", "flow", "1.0.0")
    assert rolled_back["revision"]["source"] == "rollback"


def test_a_file_is_run_at_a_server_and_its_gate_decided(there: Cli) -> None:
    done = there("run", str(there.folder / "ask.yaml"))
    assert done.exit_code == 0, done.stderr
    assert (done.document["status"], len(done.document["gates"])) == ("waiting", 1)
    run_id = done.document["run_id"]
    assert there.ok("runs", "explain", run_id)["details"]["gates"][0]["prompt"] == "Really?"
    other = there("resume", run_id, "--decision", "approve", "--by", "somebody-else")
    assert (other.exit_code, "who your token belongs to" in other.stderr) == (10, True)
    ended = there("resume", run_id, "--decision", "approve")
    assert ended.document["status"] == "completed", ended.stderr


def test_a_task_is_advanced_at_a_server(there: Cli) -> None:
    run_id = there("run", str(there.folder / "task.yaml")).document["run_id"]
    assert there.ok("steps", "current", run_id)["items"][0]["title"] == "Do it"
    there.ok("steps", "advance", run_id, "do", "--summary", "done")
    assert there("resume", run_id).document["status"] == "completed"


def test_errors_of_a_server_exit_as_those_of_a_store_do(there: Cli, server: Server) -> None:
    missing = there("runs", "show", "0" * 26, "--json")
    assert (missing.exit_code, missing.document["error"]["code"]) == (10, "run_not_found")
    assert f"looked for in {server.url}" in missing.document["error"]["message"]
    there.named["STEPWELL_TOKEN"] = "sw_wrong"
    stranger = there("runs", "list", "--json")
    assert (stranger.exit_code, stranger.document["error"]["code"]) == (40, "unauthenticated")


@pytest.mark.parametrize(
    "words",
    [("run", "FILE", "--auto-advance"), ("run", "FILE", "--with", "jobs"),
     ("events", "list", "--cloudevents")],
)  # fmt: skip
def test_what_needs_the_store_says_so(there: Cli, words: tuple[str, ...]) -> None:
    named = [str(there.folder / "ask.yaml") if word == "FILE" else word for word in words]
    refused = there(*named)
    option = next(word for word in words if word.startswith("--"))
    assert (refused.exit_code, f"{option} needs a store itself" in refused.stderr) == (10, True)


@pytest.mark.parametrize("word", ["worker", "serve", "mcp", "migrate"])
def test_what_is_for_stores_promises_no_server(lite: Cli, word: str) -> None:
    said = " ".join(lite(word, "--help").stdout.split())
    assert "else STEPWELL_STORE, else a file in this folder." in said
    assert "STEPWELL_URL" not in said


@pytest.mark.parametrize("words", [("worker",), ("migrate",)])
def test_what_is_for_stores_asks_for_one(lite: Cli, words: tuple[str, ...]) -> None:
    lite.named = {"STEPWELL_STORE": None, "STEPWELL_URL": "http://127.0.0.1:1"}
    refused = lite(*words)
    assert (refused.exit_code, "needs a store itself" in refused.stderr) == (10, True)


# -- which of the two --------------------------------------------------------------------


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URL of a server that is not there."""
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://127.0.0.1:{unheard.getsockname()[1]}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a folder of the engine's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".stepwell").mkdir()
    return tmp_path / ".stepwell"


def test_a_server_that_the_environment_names_has_to_answer(lite: Cli, nobody: str) -> None:
    lite.named = {"STEPWELL_STORE": lite.store, "STEPWELL_URL": nobody}
    refused = lite("runs", "list", "--json")
    assert (refused.exit_code, refused.document["error"]["code"]) == (40, "server_unavailable")
    # --store is said by whoever runs the command, and so it counts.
    assert lite("runs", "list", "--store", lite.store).exit_code == 0


def test_a_server_of_the_folder_is_used_while_it_is_there(
    there: Cli, server: Server, folder: Path
) -> None:
    there.named = {"STEPWELL_STORE": None}
    (folder / "url").write_text(f"{server.url}\n", "utf-8")
    (folder / "token").write_text(f"{server.token}\n", "utf-8")
    run = there.ok("runs", "start", "greet", "--wait")
    assert run["output"] == {"hello": "you"}
    assert not (folder / "stepwell.db").exists()
    # A store that is named is meant.
    there.named = {"STEPWELL_STORE": f"sqlite:///{folder}/other.db"}
    assert there.ok("runs", "list")["items"] == []
    # The token of the folder is for its server, however that is named.
    there.named = {"STEPWELL_STORE": None, "STEPWELL_URL": server.url}
    assert [each["id"] for each in there.ok("runs", "list")["items"]] == [run["id"]]


def test_a_folder_leads_to_no_other_machine(lite: Cli, folder: Path) -> None:
    lite.named = {"STEPWELL_STORE": None, "STEPWELL_TOKEN": "sw_mine"}
    (folder / "url").write_text("https://evil.example", "utf-8")
    done = lite("runs", "list", "--json")
    assert json.loads(done.stdout)["items"] == []
    assert "is on another machine, and not used" in done.stderr


def test_without_the_server_of_the_folder_there_is_its_store(
    lite: Cli, nobody: str, folder: Path
) -> None:
    lite.named = {"STEPWELL_STORE": None}
    (folder / "url").write_text(nobody, "utf-8")
    done = lite("runs", "list", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["items"] == []
    assert f"{nobody} of this folder does not answer; the store is used" in done.stderr
    assert (folder / "stepwell.db").exists()


def test_a_link_is_whole_where_the_server_is_known(there: Cli, here: Cli, server: Server) -> None:
    [owner] = [each["name"] for each in there.ok("users", "list")["items"]][:1]
    made = there.ok("users", "link", owner)
    assert made["url"] == f"{server.url}/login/{made['link']}"
    assert f"{server.url}/login/" in there("users", "link", owner).stdout
    assert here.ok("users", "link", owner)["url"] is None
    invited = there("users", "create", "--name", "ada@example.org", "--role", "member").stdout
    assert re.search(f"logs them in, once: {server.url}/login/\\S+$", invited)
    assert "/login/" in here("users", "create", "--name", "bob", "--role", "viewer").stdout
    words = ("users", "create", "--name", "cy", "--role", "viewer", "--password", "-")
    assert here(*words, stdin="correct horse battery\n").stdout.endswith(
        "They log in with the password they have.\n"
    )

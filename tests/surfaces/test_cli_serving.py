"""`stepwell serve` as somebody meets it who has just got it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

README = Path(__file__).parents[2] / "README.md"
PATIENCE_SECONDS = 60


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in that folder, and what it said until it was ready."""
    command = [sys.executable, "-m", "stepwell.cli", "serve", "--port", "0", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        while "--json" not in words and "Ctrl-C" not in said:
            said += process.stdout.readline()
        try:
            yield process, said
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0


def requested(command: str, url: str) -> httpx2.Response:
    """What `curl` would do with these words, at another address."""
    words = shlex.split(command)
    assert words.pop(0) == "curl"
    options = {"-X": "GET", "-d": None}
    headers, path = {}, ""
    while words:
        word = words.pop(0)
        if word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word in options:
            options[word] = words.pop(0)
        else:
            path = word
    assert path.startswith("http://127.0.0.1:8787/")
    where = path.replace("http://127.0.0.1:8787", url)
    return httpx2.request(options["-X"] or "GET", where, headers=headers, content=options["-d"])


def test_the_readme_says_what_happens(tmp_path: Path) -> None:
    [block] = re.findall(r"```sh\n(curl -X POST .*?)```", README.read_text(), re.DOTALL)
    with serving(tmp_path) as (_, said):
        token = (tmp_path / ".stepwell" / "token").read_text().strip()
        [url] = re.findall(r"at (http://127\.0\.0\.1:\d+)$", said, re.MULTILINE)
        command = block.replace("\\\n", " ").replace("$(cat .stepwell/token)", token)
        answer = requested(command, url)
    assert answer.status_code == 201
    found = answer.json()
    assert (found["status"], found["output"]) == ("completed", "Hello, Ada!")


def test_a_first_start_lets_its_owner_in_by_the_link_it_prints(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, said):
        [link] = re.findall(r"http://\S+/login/\S+", said)
        with httpx2.Client(follow_redirects=True) as browser:
            page = browser.get(link)
            assert page.status_code == 200
            for each in ("owner", "hello", "ask-first", "count-down"):
                assert each in page.text
        assert httpx2.get(link).status_code == 401


def test_a_token_is_kept_for_this_user_and_stays(tmp_path: Path) -> None:
    path = tmp_path / ".stepwell" / "token"
    texts = []
    for _ in range(2):
        with serving(tmp_path, "--json") as (_, said):
            told = json.loads(said)
            assert told["token_file"] == ".stepwell/token"
            url = tmp_path / ".stepwell" / "url"
            assert [stat.S_IMODE(each.stat().st_mode) for each in (path, url)] == [0o600, 0o600]
            assert url.read_text().strip() == told["url"]
            texts.append(path.read_text())
        assert not (tmp_path / ".stepwell" / "url").exists()
    assert texts[0] == texts[1]


def test_a_token_that_was_lost_is_replaced_and_opens_no_more(tmp_path: Path) -> None:
    path = tmp_path / ".stepwell" / "token"
    with serving(tmp_path, "--json"):
        lost = _headers(tmp_path)
    path.unlink()
    with serving(tmp_path, "--json") as (_, said):
        url = json.loads(said)["url"]
        assert httpx2.get(f"{url}/api/runs", headers=lost).status_code == 401
        found = httpx2.get(f"{url}/api/tokens", headers=_headers(tmp_path)).json()["items"]
        live = [each for each in found if each["revoked_at"] is None]
        assert [each["name"].split()[0] for each in live] == ["local"]


def test_a_server_for_others_prints_nothing_that_lets_anybody_in(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0") as (_, said):
        [url] = re.findall(r"at (http://localhost:\d+)$", said, re.MULTILINE)
        assert not re.search(r"/login/(?!TEXT)", said)
        assert not (tmp_path / ".stepwell" / "token").exists()
        [command] = re.findall(r"stepwell (users link owner)$", said, re.MULTILINE)
        words = [sys.executable, "-m", "stepwell.cli", *command.split(), "--json"]
        made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        link = json.loads(made.stdout)["link"]
        assert httpx2.get(f"{url}/login/{link}").status_code == 303
    with serving(tmp_path, "--host", "0.0.0.0", "--json") as (_, said):
        told = json.loads(said)
        assert (told["login"], told["token_file"]) == (None, None)


def test_a_second_server_of_a_folder_leaves_the_first_one_its_token(tmp_path: Path) -> None:
    with serving(tmp_path, "--json") as (_, said):
        first = json.loads(said)
        other = f"sqlite:///{tmp_path / 'other.db'}"
        with serving(tmp_path, "--json", "--store", other) as (_, said):
            second = json.loads(said)
            assert second["token_file"] is None
            assert second["login"].startswith(second["url"])
        answer = httpx2.get(f"{first['url']}/api/runs", headers=_headers(tmp_path))
        assert answer.status_code == 200


def test_a_server_whose_output_is_kept_prints_no_link(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-link") as (_, said):
        assert not re.search(r"/login/(?!TEXT)", said)
        assert "stepwell users link owner" in said
        assert (tmp_path / ".stepwell" / "token").exists()
    with serving(tmp_path, "--no-link", "--json") as (_, said):
        assert json.loads(said)["login"] is None


def test_a_server_that_is_stopped_lets_go_of_what_it_executes(tmp_path: Path) -> None:
    with serving(tmp_path, "--json") as (_, said):
        run = _start(tmp_path, json.loads(said)["url"], "ask-first")
        assert run["status"] in ("pending", "running", "waiting")
    with serving(tmp_path, "--json") as (_, said):
        url = json.loads(said)["url"]
        headers = _headers(tmp_path)
        gates: list[Any] = []
        while not gates:
            gates = httpx2.get(f"{url}/api/gates", headers=headers).json()["items"]
        decided = httpx2.post(
            f"{url}/api/gates/{gates[0]['id']}/decide", headers=headers,
            json={"decision": "approve"},
        )  # fmt: skip
        assert decided.json()["status"] == "approved"
        status = ""
        while status != "completed":
            status = httpx2.get(f"{url}/api/runs/{run['id']}", headers=headers).json()["status"]


def test_an_address_that_is_taken_is_said_to_be(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "stepwell.cli", "serve", "--port", port, "--json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 40
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "address_unavailable"
    assert "--port" in error["message"]


def test_a_key_that_is_none_is_told_of_before_anybody_needs_it(tmp_path: Path) -> None:
    for command in (["serve", "--port", "0"], ["worker"]):
        done = subprocess.run(
            [sys.executable, "-m", "stepwell.cli", *command, "--json"], cwd=tmp_path,
            env={**os.environ, "STEPWELL_SECRET_KEY": "short"}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 10
        error = json.loads(done.stdout)["error"]
        assert error["code"] == "secret_key_invalid"
        assert "stepwell secrets new-key" in error["message"]


def _headers(folder: Path) -> dict[str, str]:
    token = (folder / ".stepwell" / "token").read_text().strip()
    return {"authorization": f"Bearer {token}"}


def _start(folder: Path, url: str, definition: str) -> Any:
    path = f"{url}/api/definitions/{definition}/runs"
    return httpx2.post(path, headers=_headers(folder), json={}).json()

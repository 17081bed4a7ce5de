"""The web server of the examples takes requests for webhooks, and answers as the table says."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from examples.webhook_server import STATUS
from stepwell.api.problems import INVALID, STATUSES
from stepwell.kernel.clock import SECOND, SystemClock
from tests.examples.support import README, REPOSITORY, Typist
from tests.surfaces.support import PATIENCE_SECONDS, until
from tests.triggers.signing import SECRET, signed


@pytest.fixture
def address(typist: Typist) -> Iterator[str]:
    """Where the server of the example takes requests, for the definition of its docstring."""
    assert typist("definitions", "publish", "examples/release-notes.yaml").exit_code == 0
    with subprocess.Popen(
        [sys.executable, "-m", "examples.webhook_server", "0"], cwd=REPOSITORY,
        env=typist.environ, stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, "Traceback" in said) == (0, False), said


def sent(url: str, body: bytes = b"", method: str = "POST") -> tuple[int, Any]:
    try:
        with urlopen(Request(url, body, method=method), timeout=PATIENCE_SECONDS) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_request_starts_a_run_that_is_executed(address: str, typist: Typist) -> None:
    status, found = sent(f"{address}release-notes", b'{"version": "1.4.1"}')
    assert (status, found["created"]) == (202, True)
    assert sent(f"{address}release-notes", b'{"version": "1.4.1"}') == (
        202, {"run_id": found["run_id"], "created": False},
    )  # fmt: skip

    def run() -> Any:
        return typist.document("runs", "show", found["run_id"], "--json")["run"]

    until(lambda: run()["status"] == "completed")
    assert run()["output"] == "Notes for 1.4.1"

    status, refused = sent(f"{address}elsewhere", b"{}")
    assert (status, refused["error"]["code"]) == (404, "trigger_not_found")
    status, refused = sent(f"{address}release-notes", b"{")
    assert (status, refused["error"]["code"]) == (400, "body_invalid")
    status, refused = sent(f"{address}release-notes", b"{}", "PUT")
    assert (status, refused["error"]["code"]) == (400, "request_unfit")


def test_slack_is_told_what_it_asks_for(address: str, typist: Typist) -> None:
    subprocess.run(
        [sys.executable, "-m", "stepwell.cli", "secrets", "set", "hook"], env=typist.environ,
        input=SECRET, text=True, timeout=PATIENCE_SECONDS, check=True, capture_output=True,
    )  # fmt: skip
    config = json.dumps({"path": "slack", "verify": "slack", "secret": "hook"})
    typist.document("triggers", "create", "release-notes", "webhook", config, "--json")
    body = b'{"type": "url_verification", "challenge": "3eZbrw1aB"}'
    headers = dict(signed("slack", body, SystemClock().now() // SECOND, SECRET).pairs)
    with urlopen(Request(f"{address}slack", body, headers), timeout=PATIENCE_SECONDS) as answer:
        assert (answer.status, json.load(answer)) == (200, {"challenge": "3eZbrw1aB"})


def test_the_program_of_the_documentation_runs_as_it_stands(typist: Typist) -> None:
    assert typist("definitions", "publish", "examples/release-notes.yaml").exit_code == 0
    page = (REPOSITORY / "docs" / "triggers.md").read_text("utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for created in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", program], env=typist.environ, capture_output=True, text=True,
            timeout=PATIENCE_SECONDS, check=True,
        )  # fmt: skip
        assert done.stdout.split()[1] == str(created)


def test_the_documentation_and_the_server_have_the_same_table() -> None:
    page = (REPOSITORY / "docs" / "webhooks.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*`) \| (\d{3}) \|", page, re.MULTILINE)
    table = {code: int(status) for codes, status in rows for code in re.findall(r"`(\w+)`", codes)}
    assert table == STATUS == {code: STATUSES.get(code, INVALID) for code in STATUS}


def test_the_readme_names_it() -> None:
    assert "](webhook_server.py)" in README

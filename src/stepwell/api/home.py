"""The page that a login link leads to: what is here, and how to go on."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from urllib.parse import urlsplit

from stepwell.api.exchange import Answer, Request
from stepwell.api.gatehouse import Gatehouse
from stepwell.app.doorkeeper import Admission
from stepwell.app.hosting import Host
from stepwell.app.stepwell import Stepwell
from stepwell.errors import Unauthenticated

LISTED = 20

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Stepwell</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<body><h1>Stepwell</h1>
{content}
<p><a href="/api/openapi.json">The API</a> · <a href="/healthz">health</a> ·
<a href="/readyz">readiness</a></p>
</body></html>
"""
_STRANGER = (
    "<p>You are not logged in. Open the login link that <code>stepwell serve</code> prints.</p>"
)
_PROVIDER = '<p><a href="/login/oidc">Log in with {name}</a></p>'


class Home:
    """Shows definitions and recent runs to whoever is logged in."""

    def __init__(self, host: Host, gatehouse: Gatehouse) -> None:
        self._host = host
        self._gatehouse = gatehouse

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        try:
            admission = await self._gatehouse.admit(request)
        except Unauthenticated:
            return _page(_ways_in(self._host.settings.oidc_issuer), 401)
        stepwell = await self._host.workspace(admission.workspace_id)
        return _page(await _shown(stepwell, admission))


def _ways_in(issuer: str | None) -> str:
    if issuer is None:
        return _STRANGER
    return _STRANGER + _PROVIDER.format(name=escape(urlsplit(issuer).netloc))


async def _shown(stepwell: Stepwell, admission: Admission) -> str:
    caller = admission.caller
    definitions = await stepwell.definitions.list()
    runs = (await stepwell.list_runs(limit=LISTED)).items
    rows = [
        f"<p>You are <b>{escape(caller.name)}</b> ({caller.role}) in the workspace "
        f"<b>{escape(admission.workspace_id)}</b>.</p>",
        "<h2>Definitions</h2><ul>",
        *(
            f'<li><a href="/api/definitions/{escape(each.name)}">{escape(each.name)}</a> '
            f"{escape(each.title)}</li>"
            for each in definitions[:LISTED]
        ),
        "</ul><h2>Runs</h2><ul>",
        *(
            f'<li><a href="/api/runs/{each.id}">{each.id}</a> {escape(each.definition)}: '
            f"{each.status}</li>"
            for each in runs
        ),
        "</ul>" if runs else "</ul><p>None yet.</p>",
    ]
    return "\n".join(rows)


def _page(content: str, status: int = 200) -> Answer:
    return Answer(status, _PAGE.format(content=content).encode(), "text/html; charset=utf-8")

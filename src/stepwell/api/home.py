"""The page that a login link leads to: what is here, and how to go on."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from urllib.parse import urlsplit

from stepwell.api.exchange import Answer, Request
from stepwell.api.gatehouse import Gatehouse
from stepwell.api.visits import STRANGER, page
from stepwell.app.doorkeeper import Admission
from stepwell.app.hosting import Host
from stepwell.app.stepwell import Stepwell
from stepwell.errors import Unauthenticated

LISTED = 20

_ELSEWHERE = """
<p><a href="/api/openapi.json">The API</a> · <a href="/healthz">health</a> ·
<a href="/readyz">readiness</a></p>"""
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
            return page(_ways_in(self._host.settings.oidc_issuer) + _ELSEWHERE, 401)
        stepwell = await self._host.workspace(admission.workspace_id)
        return page(await _shown(stepwell, admission) + _ELSEWHERE)


def _ways_in(issuer: str | None) -> str:
    if issuer is None:
        return STRANGER
    return STRANGER + _PROVIDER.format(name=escape(urlsplit(issuer).netloc))


async def _shown(stepwell: Stepwell, admission: Admission) -> str:
    caller = admission.caller
    at = f"/@{escape(admission.workspace_id)}"
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
            f'<li><a href="{at}/runs/{each.id}">{each.id}</a> {escape(each.definition)}: '
            f"{each.status}</li>"
            for each in runs
        ),
        "</ul>" if runs else "</ul><p>None yet.</p>",
    ]
    return "\n".join(rows)

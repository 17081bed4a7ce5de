"""Logging in and out: the pages that give a browser its session, and take it away."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import format_datetime
from html import escape

import msgspec

from stepwell.api.exchange import Answer, Request
from stepwell.api.gatehouse import COOKIE
from stepwell.api.guard import check_origin
from stepwell.api.visits import page
from stepwell.app.doorkeeper import Doorkeeper, Login
from stepwell.errors import BodyInvalid, InvalidInput, Unauthenticated
from stepwell.kernel.clock import moment

MAX_BYTES = 8 * 1024


class Credentials(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody logs in with."""

    name: str
    password: str


class LogIn:
    """Gives a session for a name and a password."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper = doorkeeper

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        if "origin" in request.headers:
            check_origin(request)
        try:
            given = msgspec.json.decode(await request.body(MAX_BYTES), type=Credentials)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"Send a name and a password: {error}.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BodyInvalid(f"The body is not JSON: {error}.") from None
        session = await self._doorkeeper.login(given.name, given.password, request.address)
        return Answer(204, headers=[session_cookie(request, session)])


class LoginLink:
    """Gives a session for a link, which works once."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper = doorkeeper

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        try:
            session = await self._doorkeeper.login_with_link(values["link"], request.address)
        except Unauthenticated as error:
            if "text/html" not in request.headers.get("accept", ""):
                raise
            return page(f"<p>{escape(error.message)}</p>", 401)
        return Answer(303, headers=[("location", "/"), session_cookie(request, session)])


class LogOut:
    """Ends the session."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper = doorkeeper

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        check_origin(request)
        session = request.cookies.get(COOKIE)
        if session is not None:
            await self._doorkeeper.logout(session)
        gone = f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"
        return Answer(204, headers=[("set-cookie", gone)])


def session_cookie(request: Request, login: Login) -> tuple[str, str]:
    """The header that makes a browser keep its session."""
    # Lax, not Strict: whoever follows a link to a run from a mail is still logged in.
    until = format_datetime(moment(login.expires_at), usegmt=True)
    kept = f"Path=/; Expires={until}; HttpOnly; SameSite=Lax{secure(request)}"
    return "set-cookie", f"{COOKIE}={login.cookie}; {kept}"


def secure(request: Request) -> str:
    """What a cookie that came over TLS has at its end, so that it goes no other way."""
    return "; Secure" if request.scope.get("scheme") == "https" else ""

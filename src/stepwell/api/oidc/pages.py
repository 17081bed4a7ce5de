"""The pages that lead to the provider, and back from it with a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from stepwell.api.endpoints import Endpoint
from stepwell.api.exchange import Answer, Request
from stepwell.api.logging_in import secure, session_cookie
from stepwell.api.oidc.journey import Journey
from stepwell.api.problems import problem_answer
from stepwell.app.doorkeeper import Doorkeeper, Login
from stepwell.app.hosting import Host
from stepwell.errors import (
    InvalidInput,
    ProviderUnavailable,
    RouteNotFound,
    StepwellError,
    Unauthenticated,
)

if TYPE_CHECKING:
    from stepwell.api.oidc.provider import Provider

PATH = "/login/oidc"
CALLBACK = f"{PATH}/callback"
COOKIE = "stepwell_oidc"
# How long somebody may be at the provider.
JOURNEY_SECONDS = 600
# Errors of RFC 6749 (4.1.2.1) that pass by themselves.
PASSING = ("server_error", "temporarily_unavailable")


def oidc_pages(host: Host) -> Iterable[tuple[str, str, Endpoint]]:
    """Method, path and endpoint of each; also where there is no provider, to say so."""
    if host.settings.oidc_issuer is None:
        yield "GET", PATH, no_provider
        yield "GET", CALLBACK, no_provider
        return
    provider = _provider(host)
    yield "GET", PATH, ToProvider(provider)
    yield "GET", CALLBACK, FromProvider(provider, host.doorkeeper)


async def no_provider(request: Request, values: Mapping[str, str]) -> Answer:
    """What is said where nobody can log in that way."""
    raise RouteNotFound("This server has no provider to log in at; STEPWELL_OIDC_ISSUER names one.")


class ToProvider:
    """Sends a browser to the provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        journey = Journey.begin()
        url = await self._provider.way_in(journey, _redirect_uri(request))
        cookie = _cookie(request, journey.written(), JOURNEY_SECONDS)
        return Answer(303, headers=[("location", url), cookie])


class FromProvider:
    """Gives a session to whom the provider sends back."""

    def __init__(self, provider: Provider, doorkeeper: Doorkeeper) -> None:
        self._provider = provider
        self._doorkeeper = doorkeeper

    async def __call__(self, request: Request, values: Mapping[str, str]) -> Answer:
        try:
            login = await self._login(request)
        except StepwellError as error:
            answer = problem_answer(request, error)
        else:
            answer = Answer(303, headers=[("location", "/"), session_cookie(request, login)])
        # Also of a journey that came to nothing: each leads back once.
        answer.headers.append(_cookie(request, "", 0))
        return answer

    async def _login(self, request: Request) -> Login:
        await self._doorkeeper.count_login(request.address)
        query = dict(parse_qsl(request.query.decode("latin-1")))
        journey = Journey.read(request.cookies.get(COOKIE, ""))
        if journey is None or not journey.is_of(query.get("state", "")):
            raise Unauthenticated(
                f"This login was begun elsewhere or too long ago, or is over. Begin at {PATH}."
            )
        if "error" in query:
            raise _refused(query["error"])
        if "code" not in query:
            raise Unauthenticated(f"The provider has sent no code. Begin again at {PATH}.")
        email = await self._provider.email(query["code"], journey, _redirect_uri(request))
        return await self._doorkeeper.login_as(email, request.address)


def _provider(host: Host) -> Provider:
    try:
        module = import_module("stepwell.api.oidc.provider")
    except ModuleNotFoundError as error:
        if error.name != "joserfc":
            raise
        raise InvalidInput(
            "Logging in at a provider needs joserfc, which comes with the extra `oidc`. In the "
            "folder of Stepwell: pip install '.[oidc]'. Or unset STEPWELL_OIDC_ISSUER, "
            "STEPWELL_OIDC_CLIENT_ID and STEPWELL_OIDC_CLIENT_SECRET."
        ) from error
    made: Provider = module.Provider(host.settings, host.first.store.clock)
    return made


def _redirect_uri(request: Request) -> str:
    """Where the provider sends the browser back to: by the name that it knows this server by.

    The name was checked. The provider sends nobody anywhere that it was not told of before.
    """
    return f"{request.scope['scheme']}://{request.headers['host']}{CALLBACK}"


def _cookie(request: Request, value: str, seconds: int) -> tuple[str, str]:
    # Lax, not Strict: the browser comes back from another site.
    kept = f"Path={PATH}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure(request)}"
    return "set-cookie", f"{COOKIE}={value}; {kept}"


def _refused(error: str) -> StepwellError:
    """What is said of an error that the provider sends somebody back with."""
    if error in PASSING:
        return ProviderUnavailable("The provider cannot log anybody in now. Try again later.")
    if error == "access_denied":
        return Unauthenticated("The login was refused, by you or by the provider.")
    return Unauthenticated(
        "The provider refuses the login. If it does so for everybody, it knows this server by "
        "another client id or redirect URI, or does not allow it the scopes openid and email."
    )

"""Headers of requests as fields of a config: names and values that can be sent safely."""

from __future__ import annotations

import base64
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stepwell.node import Words

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Two different answers to where a request ends, or whom it is for, is how requests are smuggled.
_OWN = ("connection", "content-length", "host", "transfer-encoding", "upgrade")


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("A header's name has letters, digits and hyphens only.")
    if name.lower() in _OWN:
        raise ValueError("This header is made by the request itself and cannot be given.")
    return name.lower()


def _check_value(value: str) -> str:
    stripped = value.strip(" \t")
    if _CONTROL.search(stripped):
        raise ValueError("A header's value cannot have line breaks or control characters.")
    try:
        stripped.encode()
    except UnicodeEncodeError:
        raise ValueError("A header's value must be text that can be encoded as UTF-8.") from None
    return stripped


HeaderName = Annotated[str, AfterValidator(_check_name)]
HeaderValue = Annotated[Words, AfterValidator(_check_value)]


def basic(username: str, password: str) -> str:
    """What a user and a password look like in a header."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode('ascii')}"


class _Auth(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BearerAuth(_Auth):
    """A token, as most APIs want it."""

    type: Literal["bearer"]
    token: HeaderValue

    def header(self) -> tuple[str, str]:
        return "authorization", f"Bearer {self.token}"


class BasicAuth(_Auth):
    """A user and a password."""

    type: Literal["basic"]
    username: str = Field(pattern="^[^:]*$")
    password: str

    def header(self) -> tuple[str, str]:
        return "authorization", basic(self.username, self.password)


class HeaderAuth(_Auth):
    """A header of any name, such as X-Api-Key."""

    type: Literal["header"]
    name: HeaderName
    value: HeaderValue

    def header(self) -> tuple[str, str]:
        return self.name, self.value


Auth = Annotated[BearerAuth | BasicAuth | HeaderAuth, Field(discriminator="type")]

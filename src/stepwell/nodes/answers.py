"""What an HTTP answer means: an output, a refusal, or a failure to try again."""

from __future__ import annotations

import base64
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from stepwell.errors import RequestFailed, RequestRefused
from stepwell.kernel.clock import SystemClock, moment
from stepwell.nodes.outgoing import Answer

MAX_RETRY_AFTER_SECONDS = 86_400
# How much of a bad answer's body goes into the error.
_BEGINNING = 500
_TEXT_TYPES = ("application/xml", "application/javascript", "application/x-www-form-urlencoded")
_BINARY_KINDS = ("image", "audio", "video", "font")


def check_status(answer: Answer, name: str) -> None:
    """Raise for an answer of 400 and above: to be tried again from 500 on, and for 429."""
    if answer.status < 400:
        return
    text = _beginning(answer)
    said = f": {text}" if text else "."
    message = f"{name} was answered with {answer.status} {answer.reason}".rstrip() + said
    if answer.status < 500 and answer.status != 429:
        raise RequestRefused(message, status=answer.status, body=text)
    raise RequestFailed(
        message,
        retry_after_seconds=retry_after(answer),
        status=answer.status,
        body=text,
    )


def _beginning(answer: Answer) -> str:
    """What the body begins with; a mark shows that it was cut."""
    text = answer.content[: 4 * _BEGINNING].decode("utf-8", "replace")
    if answer.whole and len(text) <= _BEGINNING and len(answer.content) <= 4 * _BEGINNING:
        return text.strip()
    kept = text[:_BEGINNING].strip().rstrip("\ufffd")  # the last character may itself be cut
    return f"{kept}…"


def check_whole(answer: Answer, name: str) -> None:
    """Refuse an answer that was cut."""
    if not answer.whole:
        raise RequestRefused(
            f"{name} was answered with more than {len(answer.content):,} bytes, which is max_bytes."
        )


def retry_after(answer: Answer) -> float | None:
    """The seconds that the answer asks to wait, as far as it can be understood."""
    wanted = answer.headers.get("retry-after", "").strip()
    if wanted.isascii() and wanted.isdigit():
        seconds = float(wanted)
    else:
        try:
            until = parsedate_to_datetime(wanted)
            # By the other side's own clock, if it tells the time: ours may differ.
            said = answer.headers.get("date")
            now = parsedate_to_datetime(said) if said else moment(SystemClock().now())
            seconds = (until - now).total_seconds()
        except (ValueError, TypeError, OverflowError):  # no date, or one without a zone
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def output_of(answer: Answer) -> dict[str, Any]:
    """What the steps after this one see of an answer."""
    output = {"status": answer.status, "headers": dict(answer.headers), "url": answer.url}
    kind, charset = _content_type(answer)
    text = _text(answer.content, kind, charset)
    if text is None:
        return output | {
            "body": base64.b64encode(answer.content).decode("ascii"),
            "encoding": "base64",
        }
    return output | {"body": _json(text) if _is_json(kind) else text}


def _content_type(answer: Answer) -> tuple[str, str | None]:
    """The type in lower case, without parameters, and the charset if it says one."""
    message = Message()
    message["content-type"] = answer.headers.get("content-type", "")
    kind = message.get_content_type() if "content-type" in answer.headers else ""
    return kind, message.get_content_charset()


def _is_json(kind: str) -> bool:
    return kind in ("application/json", "text/json") or kind.endswith("+json")


def _text(content: bytes, kind: str, charset: str | None) -> str | None:
    """The body as text, None if it is none."""
    main = kind.partition("/")[0]
    if main in _BINARY_KINDS and not kind.endswith("+xml"):
        return None
    if charset or main == "text" or kind in _TEXT_TYPES or _is_json(kind):
        return _decoded(content, charset or "utf-8")
    # Of all other types, such as application/octet-stream, the content decides.
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def _decoded(content: bytes, charset: str) -> str:
    try:
        text = content.decode(charset, "replace")
        # Some charsets can say halves of characters, which cannot be written down again.
        return text.encode("utf-8", "replace").decode()
    except (LookupError, ValueError):  # a charset that nobody knows, or that is not of text
        return content.decode("utf-8", "replace")


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text.removeprefix("\ufeff"))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return text

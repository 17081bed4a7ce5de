"""`Content-Encoding`: unpacking a body, never into more than is accepted."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from stepwell.errors import BodyInvalid, BodyTooLarge, BodyUnsupported
from stepwell.kernel.names import show
from stepwell.triggers.inbound.headers import Headers

# What zlib calls these; `deflate` is meant with zlib's own frame, but some send it bare.
_WAYS = {
    "gzip": (16 + zlib.MAX_WBITS,),
    "x-gzip": (16 + zlib.MAX_WBITS,),
    "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS),
}


def unpacked(headers: Headers, body: bytes, limit: int) -> bytes:
    """The body as it was before it was packed, at most `limit` bytes."""
    if len(body) > limit:
        raise too_large(limit)
    names = ",".join(headers.all("content-encoding")).lower().split(",")
    codings = [name for each in names if (name := each.strip()) not in ("", "identity")]
    if not codings or not body:
        return body
    if len(codings) > 1 or codings[0] not in _WAYS:
        raise BodyUnsupported(
            f"The body is packed as {show(', '.join(codings))}. Send it as it is, or as gzip or "
            "deflate."
        )
    return _inflated(body, _WAYS[codings[0]], codings[0], limit)


def _inflated(body: bytes, ways: Sequence[int], name: str, limit: int) -> bytes:
    for bits in ways:
        reader = zlib.decompressobj(bits)
        try:
            data = reader.decompress(body, limit + 1)
        except zlib.error:
            continue
        if len(data) > limit:
            raise too_large(limit)
        # One piece only: thousands of empty ones would take long to go through.
        if reader.eof and not reader.unused_data:
            return data
    raise BodyInvalid(f"The body is said to be packed as {name}, and cannot be unpacked.")


def too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body has more than {limit:,} bytes. Keep large data elsewhere and send where it is.",
        limit=limit,
    )

"""Serialization formats of the SQL protocol: JSON text, and Cosmos binary JSON in request bodies and, if a client asks
for it, in answers about items. Binary bodies become text when they arrive and before they leave, so that charges,
limits and what is stored are those of the text. The format itself is in `model/binary_json/`.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from armillary import limits, work
from armillary.doors.sql.headers import Headers, refusal
from armillary.errors import Failure, Kind
from armillary.model.binary_json.binary_reader import decode
from armillary.model.binary_json.binary_writer import encode
from armillary.model.binary_json.type_markers import PREAMBLE
from armillary.net.http import Response

FORMATS: Final = b"x-ms-cosmos-supported-serialization-formats"
BINARY: Final = bytes([PREAMBLE])  # the first byte of a body in binary JSON

_TEXT_FORMAT, _BINARY_FORMAT = b"jsontext", b"cosmosbinary"


def asks_for_binary(headers: Headers) -> bool:
    """Whether the answer must be binary. A client that accepts both formats gets text, which is what is stored."""
    given = headers.get(FORMATS)
    if not given:
        return False
    accepted = [name.strip().lower() for name in given.split(b",")]
    if _TEXT_FORMAT in accepted:
        return False
    if _BINARY_FORMAT not in accepted:
        raise refusal(FORMATS, given, "a list with JsonText or CosmosBinary")
    return True


async def text_body(body: bytes) -> bytes:
    """The JSON text of a request body in binary JSON."""

    def read() -> bytes:
        value = decode(body)
        work.spend(len(body) // limits.WORK_UNIT_BYTES)
        return orjson.dumps(value)

    text = await work.run(read)
    if len(text) > limits.BODY_BYTES_MAX:
        raise Failure(
            Kind.TOO_LARGE,
            f"Request size is too large: the binary body stands for {len(text)} bytes of JSON text, the limit is "
            f"{limits.BODY_BYTES_MAX}.",
        )
    return text


async def binary_response(response: Response) -> Response:
    """The answer with its body in binary JSON. Errors stay text: clients read them as such."""
    text = response.body
    if not text or response.status >= 300:
        return response

    def write() -> bytes:
        value: Any = orjson.loads(text)
        return encode(value, len(text))

    return Response(response.status, response.headers, await work.run(write), response.lines)

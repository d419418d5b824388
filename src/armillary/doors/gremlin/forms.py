"""The forms of messages: GraphSON 1, 2 and 3 with and without types, and GraphBinary 1. Each reads a request's envelope
and writes an answer's; values inside are the codecs' of `languages/gremlin`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import orjson

from armillary import limits
from armillary.languages.gremlin.errors import malformed, not_serializable
from armillary.languages.gremlin.formats import graphbinary_read, graphbinary_write, graphson_read
from armillary.languages.gremlin.formats.graphson_write import Writer
from armillary.languages.gremlin.formats.message_limits import Allowance
from armillary.languages.gremlin.traversers import Traverser

AUTHENTICATION: Final = "authentication"
_ID_CHARACTERS_MAX: Final = 100
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_ID_END: Final = 17  # of a binary message: behind its version


class Envelope(NamedTuple):
    operation: str
    processor: str
    arguments: dict[Any, Any]


class Form(Protocol):
    def read(self, body: bytes, on_id: Callable[[str], None], *, is_known: bool) -> Envelope:
        """`on_id` is told the request's id as soon as it is known: refusals of the rest carry it. `is_known`: its
        sender is; of others only credentials are looked at, and requests have no arguments."""

    def write(
        self, request_id: str, status: int, message: str, attributes: dict[str, Any], values: list[Any] | None
    ) -> bytes:
        """`values` None: there is no result, as with a challenge."""


class JsonForm:
    def __init__(self, version: int) -> None:
        self._writer = Writer(version)
        self._no_meta = self._writer.write({})

    def read(self, body: bytes, on_id: Callable[[str], None], *, is_known: bool) -> Envelope:
        given = _parsed(body)
        if not isinstance(given, dict):
            raise malformed("A request is a JSON object.")
        request_id = given.get("requestId")
        if isinstance(request_id, dict):
            request_id = request_id.get("@value")
        if not isinstance(request_id, str) or len(request_id) > _ID_CHARACTERS_MAX:
            raise malformed("A request has a 'requestId', a UUID.")
        on_id(request_id)
        operation, processor = given.get("op"), given.get("processor", "")
        if not isinstance(operation, str) or not isinstance(processor, str):
            raise malformed("A request has 'op' and 'processor', texts.")
        if not is_known and operation != AUTHENTICATION:
            return Envelope(operation, processor, {})
        arguments = graphson_read.read(given.get("args") or {}, _allowance(is_known))
        if not isinstance(arguments, dict):
            raise malformed("The 'args' of a request are a map.")
        return Envelope(operation, processor, arguments)

    def write(
        self, request_id: str, status: int, message: str, attributes: dict[str, Any], values: list[Any] | None
    ) -> bytes:
        answer = {
            "requestId": request_id,
            "status": {"code": status, "message": message, "attributes": self._writer.attributes(attributes)},
            "result": {"data": self._results(values) if values is not None else None, "meta": self._no_meta},
        }
        try:
            return orjson.dumps(answer)
        except TypeError:
            # Half a surrogate pair, in what came through another door or a script.
            raise not_serializable("A result holds a text that is not valid Unicode.") from None

    def _results(self, values: list[Any]) -> Any:
        writer = self._writer
        if not values or not isinstance(values[0], Traverser):
            return writer.results(values)
        written = [writer.traverser(each.value, each.bulk) for each in values]
        return {"@type": "g:List", "@value": written} if writer.version >= 3 else written


def _allowance(is_known: bool) -> Allowance:
    return Allowance() if is_known else Allowance(limits.GREMLIN_STRANGER_MEMORY_BYTES_MAX)


def _parsed(body: bytes) -> Any:
    """JSON makes objects of two bytes, and they are all made before any is looked at: so their signs are counted."""
    most = limits.GREMLIN_MESSAGE_MEMORY_BYTES_MAX
    if len(body) * _SIGN_BYTES_MAX > most and _weight(body) > most and _weight(_TEXT.sub(b"", body)) > most:
        size = f"{most // limits.MB} MB"
        raise malformed(f"The values of the message would take more than {size}. Send fewer of them at once.")
    try:
        return orjson.loads(body)
    except ValueError:
        pass
    if b"NaN" in body or b"Infinity" in body:
        # gremlinpython writes such bindings as Python's json does.
        try:
            return json.loads(body)
        except ValueError:
            pass
    raise malformed("The request is not JSON.")


_SIGN_BYTES_MAX: Final = 200  # of what one byte of a message stands for


def _weight(body: bytes) -> int:
    return body.count(b"{") * _SIGN_BYTES_MAX + body.count(b"[") * 80 + body.count(b",") * 40


class BinaryForm:
    """A bare one is for drivers before TinkerPop 3.7: they read no element that has properties."""

    def __init__(self, *, is_bare: bool = False) -> None:
        self._is_bare = is_bare

    def read(self, body: bytes, on_id: Callable[[str], None], *, is_known: bool) -> Envelope:
        if len(body) >= _ID_END:
            text = body[1:_ID_END].hex()
            on_id(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
        only = None if is_known else AUTHENTICATION
        _, operation, processor, arguments = graphbinary_read.read_request(body, _allowance(is_known), only=only)
        return Envelope(operation, processor, arguments)

    def write(
        self, request_id: str, status: int, message: str, attributes: dict[str, Any], values: list[Any] | None
    ) -> bytes:
        results = b"\xfe\x01" if values is None else self._results(values)
        return graphbinary_write.write_answer(request_id, status, message, attributes, results)

    def _results(self, values: list[Any]) -> bytes:
        if not values or not isinstance(values[0], Traverser):
            return graphbinary_write.write(values, is_bare=self._is_bare)
        writer = graphbinary_write.Writer(is_bare=self._is_bare)
        writer.buffer += bytes((graphbinary_read.LIST, 0))
        writer.int32(len(values))
        for each in values:
            writer.traverser(each.value, each.bulk)
        return bytes(writer.buffer)


_BINARY: Final = "application/vnd.graphbinary-v1.0"
TEXT_FORM: Final = JsonForm(1)
FORMS: Final[dict[str, Form]] = {
    "application/json": TEXT_FORM,
    "application/vnd.gremlin-v1.0+json": TEXT_FORM,
    "application/vnd.gremlin-v1.0+json;types=false": TEXT_FORM,
    "application/vnd.gremlin-v2.0+json": JsonForm(2),
    "application/vnd.gremlin-v2.0+json;types=false": TEXT_FORM,
    "application/vnd.gremlin-v3.0+json": JsonForm(3),
    "application/vnd.gremlin-v3.0+json;types=false": TEXT_FORM,
    _BINARY: BinaryForm(),
}
_BARE_FORM: Final = BinaryForm(is_bare=True)


@lru_cache(64)
def form_named(name: str, *, reads_properties: bool) -> Form | None:
    """None: no form that is known."""
    name = name.replace(" ", "").lower()
    return _BARE_FORM if name == _BINARY and not reads_properties else FORMS.get(name)

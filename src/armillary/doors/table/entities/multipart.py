"""Batches as MIME: a multipart body to its parts and requests, and answers to a multipart body. What the requests mean
is `batches.py`'s.

Line ends are CRLF; lone line feeds are read too. A part ends where its boundary says so, whatever length it claims.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from armillary.doors.table.errors import refused
from armillary.errors import Failure

_BOUNDARY = re.compile(
    rb'multipart/mixed\s*;(?:[^"]*;)?\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))\s*(?:;.*)?', re.I
)
_REQUEST_LINE = re.compile(rb"([A-Z]{3,7}) (\S{1,16384}) HTTP/1\.[01]")
_URL = re.compile(rb"https?://[^/?#\s]*(/[^#\s]*)?", re.I)
_HEAD_LINES_MAX: Final = 64

Headers = dict[bytes, bytes]


class Part(NamedTuple):
    headers: Headers
    content: bytes


class InnerRequest(NamedTuple):
    method: str
    target: bytes
    headers: Headers
    body: bytes
    content_id: bytes | None


class InnerAnswer(NamedTuple):
    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    content_id: bytes | None = None


def boundary_of(content_type: bytes | None) -> bytes:
    found = _BOUNDARY.fullmatch(content_type.strip()) if content_type is not None else None
    if found is None:
        raise bad_batch("its Content-Type is not multipart/mixed with a boundary")
    return bytes(found[1] or found[2])


def is_multipart(part: Part) -> bool:
    return part.headers.get(b"content-type", b"").lower().startswith(b"multipart/")


def parts_of(body: bytes, boundary: bytes, parts_max: int) -> list[Part]:
    """The parts between a boundary's lines. What stands before the first and after the last is no part."""
    delimiter = re.compile(rb"(?:\A|\r?\n)--" + re.escape(boundary) + rb"(--)?[ \t]*(?=\r?\n|\Z)")
    parts: list[Part] = []
    begin: int | None = None
    for found in delimiter.finditer(body):
        if begin is not None:
            parts.append(_part(body[begin : found.start()]))
            if len(parts) > parts_max:
                raise bad_batch(f"it has more than {parts_max} parts")
        if found[1]:
            return parts
        begin = found.end()
    raise bad_batch("a boundary is missing, or the last one does not end in --")


def _part(text: bytes) -> Part:
    headers, content = _headers(re.sub(rb"\A\r?\n", b"", text, count=1))
    return Part(headers, content)


def request_of(part: Part) -> InnerRequest:
    """The HTTP request in a part."""
    if not part.headers.get(b"content-type", b"").lower().startswith(b"application/http"):
        raise bad_batch("an operation is a part with the Content-Type application/http")
    text = part.content.lstrip(b"\r\n")
    line, _, rest = text.partition(b"\n")
    found = _REQUEST_LINE.fullmatch(line.rstrip(b"\r"))
    if found is None:
        raise bad_batch("a part does not begin with a request line such as POST https://account/people HTTP/1.1")
    target = bytes(found[2])
    if not target.startswith(b"/"):
        absolute = _URL.fullmatch(target)
        if absolute is None:
            raise bad_batch("a part's address is no URL")
        target = absolute[1] or b"/"
    headers, body = _headers(rest)
    length = headers.get(b"content-length", b"")
    if length:
        size = int(length) if length.isdigit() and len(length) < 10 else -1
        # Line ends behind a body belong to the boundary, though some clients do not think so.
        if not 0 <= size <= len(body) or body[size:].strip():
            raise bad_batch("a part is not as long as its Content-Length says")
        body = body[:size]
    content_id = headers.get(b"content-id") or part.headers.get(b"content-id")
    return InnerRequest(found[1].decode("ascii"), target, headers, body, content_id)


def _headers(text: bytes) -> tuple[Headers, bytes]:
    """Header lines up to an empty one, and what follows it."""
    headers: Headers = {}
    at = 0
    for _ in range(_HEAD_LINES_MAX):
        end = text.find(b"\n", at)
        line = (text[at:] if end < 0 else text[at:end]).rstrip(b"\r")
        at = len(text) if end < 0 else end + 1
        if not line:
            return headers, text[at:]
        name, colon, value = line.partition(b":")
        if not colon or not name.strip() or name != name.strip():
            raise bad_batch("a part has a line that is no header")
        lowered = name.lower()
        if lowered in headers:
            raise bad_batch(f"a part has the header {lowered[:40].decode('latin-1')} twice")
        headers[lowered] = value.strip()
    raise bad_batch(f"a part has more than {_HEAD_LINES_MAX} header lines")


def render(answers: Sequence[InnerAnswer], guid: str, *, has_changeset: bool = True) -> tuple[bytes, bytes]:
    """The Content-Type and body of an answer."""
    outer, inner = f"batchresponse_{guid}".encode(), f"changesetresponse_{guid}".encode()
    boundary = inner if has_changeset else outer
    texts = [b"--%b\r\n%b" % (boundary, _rendered(answer)) for answer in answers]
    if has_changeset:
        content = b"".join(texts) + b"--%b--\r\n" % inner
        body = b"--%b\r\nContent-Type: multipart/mixed; boundary=%b\r\n\r\n%b--%b--\r\n" % (
            outer,
            inner,
            content,
            outer,
        )
    else:
        body = b"".join(texts) + b"--%b--\r\n" % outer
    return b"multipart/mixed; boundary=%b" % outer, body


def _rendered(answer: InnerAnswer) -> bytes:
    lines = [b"Content-Type: application/http", b"Content-Transfer-Encoding: binary", b""]
    lines.append(b"HTTP/1.1 %d %b" % (answer.status, HTTPStatus(answer.status).phrase.encode()))
    if answer.content_id is not None:
        lines.append(b"Content-ID: " + answer.content_id)
    lines += [b"%b: %b" % (_titled(name), value) for name, value in answer.headers]
    return b"\r\n".join([*lines, b"", answer.body, b""])


def _titled(name: bytes) -> bytes:
    """Parts are read by simpler parsers than the outside; some know names in their usual spelling only."""
    return _SPELLED.get(name) or b"-".join([word.capitalize() for word in name.split(b"-")])


_SPELLED: Final = {b"etag": b"ETag", b"dataserviceversion": b"DataServiceVersion", b"dataserviceid": b"DataServiceId"}


def bad_batch(reason: str) -> Failure:
    return refused("InvalidInput", f"One of the request inputs is not valid. The batch cannot be read: {reason}.")

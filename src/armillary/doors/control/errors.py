"""Errors of the control API: the HTTP status of every Kind, and the body `{"error": {"code", "message"}}`."""

from __future__ import annotations

from math import ceil

import orjson

from armillary.errors import Failure, Kind
from armillary.net.http import BareRefusal, Headers, Response

STATUSES: dict[Kind, int] = {
    Kind.BAD_REQUEST: 400,
    Kind.KEY_MISMATCH: 400,
    Kind.CROSS_PARTITION: 400,
    Kind.STALE_CONTAINER: 400,
    Kind.TOO_LARGE: 413,
    Kind.UNSUPPORTED: 400,
    Kind.UNSUPPORTED_MEDIA: 415,
    Kind.UNAUTHORIZED: 401,
    Kind.FORBIDDEN: 403,
    Kind.KEY_FULL: 409,
    Kind.NOT_FOUND: 404,
    Kind.OWNER_NOT_FOUND: 404,
    Kind.SESSION_BEHIND: 409,
    Kind.METHOD_NOT_ALLOWED: 405,
    Kind.CONFLICT: 409,
    Kind.PRECONDITION_FAILED: 412,
    Kind.FAILED_DEPENDENCY: 409,
    Kind.RANGE_GONE: 404,
    Kind.RANGE_BUSY: 409,
    Kind.NAME_STALE: 404,
    Kind.NOT_LEADER: 503,
    Kind.STALE_HERE: 503,
    Kind.THROTTLED: 429,
    Kind.RETRY_WITH: 409,
    Kind.TIMED_OUT: 408,
    Kind.UNAVAILABLE: 503,
    Kind.STORAGE_FULL: 507,
    Kind.DROPPED: 503,
    Kind.SCRIPT_FAILED: 400,
    Kind.CORRUPT: 500,
    Kind.INTERNAL: 500,
}

# Browsers must not cache answers or guess their type.
HEADERS: Headers = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"server", b"Armillary"),
)


def error_response(failure: Failure) -> Response:
    headers = [*HEADERS]
    if failure.kind is Kind.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="armillary control"'))
    if failure.retry_after_ms is not None:
        headers.append((b"retry-after", b"%d" % ceil(failure.retry_after_ms / 1000)))
    if "allowed" in failure.details:
        headers.append((b"allow", ", ".join(failure.details["allowed"]).encode("ascii")))
    # A message may quote a lone surrogate out of a request, which has no UTF-8 form.
    message = failure.message.encode("utf-8", "replace").decode()
    content = {"error": {"code": failure.kind.name.lower(), "message": message}}
    return BareRefusal(failure.kind, STATUSES[failure.kind], headers, orjson.dumps(content))

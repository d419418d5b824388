"""Errors of the management API: the HTTP status and the code of every Kind, and the body that Azure Resource Manager
defines, `{"error": {"code", "message"}}`. `details["management_code"]` names a code that is more exact than the kind's.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final

import orjson

from armillary.errors import Failure, Kind
from armillary.net.charged_requests import HeaderList
from armillary.net.http import Refusal, Response

REFUSALS: Final[dict[Kind, tuple[int, str]]] = {
    Kind.BAD_REQUEST: (400, "BadRequest"),
    Kind.KEY_MISMATCH: (400, "BadRequest"),
    Kind.CROSS_PARTITION: (400, "BadRequest"),
    Kind.STALE_CONTAINER: (409, "Conflict"),
    Kind.TOO_LARGE: (413, "RequestEntityTooLarge"),
    Kind.UNSUPPORTED: (400, "NotSupported"),
    Kind.UNSUPPORTED_MEDIA: (415, "UnsupportedMediaType"),
    Kind.UNAUTHORIZED: (401, "InvalidAuthenticationToken"),
    Kind.FORBIDDEN: (403, "AuthorizationFailed"),
    Kind.KEY_FULL: (409, "Conflict"),
    Kind.NOT_FOUND: (404, "NotFound"),
    Kind.OWNER_NOT_FOUND: (404, "NotFound"),
    Kind.SESSION_BEHIND: (409, "Conflict"),
    Kind.METHOD_NOT_ALLOWED: (405, "MethodNotAllowed"),
    Kind.CONFLICT: (409, "Conflict"),
    Kind.PRECONDITION_FAILED: (412, "PreconditionFailed"),
    Kind.FAILED_DEPENDENCY: (409, "Conflict"),
    Kind.RANGE_GONE: (409, "Conflict"),
    Kind.RANGE_BUSY: (409, "Conflict"),
    Kind.NAME_STALE: (404, "NotFound"),
    Kind.NOT_LEADER: (503, "ServiceUnavailable"),
    Kind.STALE_HERE: (503, "ServiceUnavailable"),
    Kind.THROTTLED: (429, "TooManyRequests"),
    Kind.RETRY_WITH: (409, "Conflict"),
    Kind.TIMED_OUT: (408, "RequestTimeout"),
    Kind.UNAVAILABLE: (503, "ServiceUnavailable"),
    Kind.STORAGE_FULL: (507, "InsufficientStorage"),
    Kind.DROPPED: (503, "ServiceUnavailable"),
    Kind.SCRIPT_FAILED: (400, "BadRequest"),
    Kind.CORRUPT: (500, "InternalServerError"),
    Kind.INTERNAL: (500, "InternalServerError"),
}
CONTENT_TYPE: Final = (b"content-type", b"application/json; charset=utf-8")


def refused(code: str, message: str, kind: Kind = Kind.BAD_REQUEST, **details: Any) -> Failure:
    """A failure with a code of Azure Resource Manager."""
    return Failure(kind, message, details={**details, "management_code": code})


def error_response(failure: Failure, headers: HeaderList) -> Response:
    """`headers`: those of every answer."""
    status, code = REFUSALS[failure.kind]
    said: HeaderList = [*headers, CONTENT_TYPE]
    if failure.kind is Kind.UNAUTHORIZED:
        said.append((b"www-authenticate", b'Bearer realm="armillary control", error="invalid_token"'))
    if failure.retry_after_ms is not None:
        said.append((b"retry-after", b"%d" % ceil(failure.retry_after_ms / 1000)))
    if "allowed" in failure.details:
        said.append((b"allow", ", ".join(failure.details["allowed"]).encode("ascii")))
    # A message may quote a lone surrogate out of a request, which has no UTF-8 form.
    message = failure.message.encode("utf-8", "replace").decode()
    content = {"error": {"code": failure.details.get("management_code", code), "message": message}}
    return Refusal(failure.kind, status, said, orjson.dumps(content))

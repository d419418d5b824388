"""What the SQL door answers when something goes wrong: a total table from Kind to HTTP status, sub-status and code
name, and the one function that turns a Failure into a response. The code that raises a Failure chooses its Kind.

What a Failure's `details` may carry for this door:

    reason       Reason   whose text of the service replaces the message
    sub_status   int      replaces the row's sub-status (a script's own error, AAD's 5300)
    plan         mapping  a query plan, answered as `additionalErrorInfo` (CROSS_PARTITION)
    errors       list     a query's syntax errors with their locations
    allowed      tuple    the verbs that the route knows (METHOD_NOT_ALLOWED)
    range_id     int      with `lsn`: where it happened, for the session token (added by the door)
    container    object   whose session token that is (likewise)
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from armillary.errors import Failure, Kind, Reason
from armillary.net.charged_requests import render_charge


class Row(NamedTuple):
    status: int
    sub_status: int
    code: str
    is_listed: bool  # the service wraps the texts of these into {"Errors":[...]}


ROWS: dict[Kind, Row] = {
    Kind.BAD_REQUEST: Row(400, 0, "BadRequest", True),
    Kind.KEY_MISMATCH: Row(400, 1001, "BadRequest", True),
    Kind.CROSS_PARTITION: Row(400, 1004, "BadRequest", True),
    Kind.STALE_CONTAINER: Row(400, 1024, "BadRequest", True),
    Kind.TOO_LARGE: Row(413, 0, "RequestEntityTooLarge", True),
    Kind.UNSUPPORTED: Row(400, 0, "BadRequest", True),
    Kind.UNSUPPORTED_MEDIA: Row(415, 0, "UnsupportedMediaType", True),
    Kind.UNAUTHORIZED: Row(401, 0, "Unauthorized", False),
    # Never 403/3 or 403/1008: clients answer those with two minutes of endpoint discovery.
    Kind.FORBIDDEN: Row(403, 0, "Forbidden", False),
    Kind.KEY_FULL: Row(403, 1014, "Forbidden", True),
    Kind.NOT_FOUND: Row(404, 0, "NotFound", True),
    Kind.OWNER_NOT_FOUND: Row(404, 1003, "NotFound", True),
    Kind.SESSION_BEHIND: Row(404, 1002, "NotFound", True),
    Kind.METHOD_NOT_ALLOWED: Row(405, 0, "MethodNotAllowed", False),
    Kind.CONFLICT: Row(409, 0, "Conflict", True),
    Kind.PRECONDITION_FAILED: Row(412, 0, "PreconditionFailed", True),
    Kind.FAILED_DEPENDENCY: Row(424, 0, "FailedDependency", True),
    Kind.RANGE_GONE: Row(410, 1002, "Gone", False),
    Kind.RANGE_BUSY: Row(410, 1007, "Gone", False),
    Kind.NAME_STALE: Row(410, 1000, "Gone", False),
    Kind.NOT_LEADER: Row(403, 3, "Forbidden", False),  # WriteForbidden: SDKs look for the write region again
    # SDKs repeat reads in another region after it.
    Kind.STALE_HERE: Row(503, 0, "ServiceUnavailable", False),
    Kind.THROTTLED: Row(429, 3200, "429", True),
    Kind.RETRY_WITH: Row(449, 0, "RetryWith", True),
    Kind.TIMED_OUT: Row(408, 0, "RequestTimeout", False),
    Kind.UNAVAILABLE: Row(503, 0, "ServiceUnavailable", False),
    # "Stored data over quota". A 503 or 507 would be taken for a sick region: Python repeats writes after a 503 and
    # reads after any 5xx, both clients fail over. Neither repeats 403/1005 (the service's ProvisionLimitReached): the
    # application hears of it at once, and tells it from a full key (1014).
    Kind.STORAGE_FULL: Row(403, 1005, "Forbidden", True),
    Kind.DROPPED: Row(503, 0, "ServiceUnavailable", False),  # in a list of outcomes; else there is no answer at all
    Kind.SCRIPT_FAILED: Row(400, 0, "BadRequest", True),
    Kind.CORRUPT: Row(500, 0, "InternalServerError", False),
    Kind.INTERNAL: Row(500, 0, "InternalServerError", False),
}


# The service's texts in place of ours.
TEXTS_OF_REASONS: Final[dict[Reason, str]] = {
    Reason.CROSS_PARTITION_OFF: (
        "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to "
        "true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception."
    ),
    Reason.CLIENT_MERGES: (
        "The provided cross partition query can not be directly served by the gateway. This is a first chance "
        "(internal) exception that all newer clients will know how to handle gracefully. This exception is traced, but "
        "unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely "
        "ignore this message. If the client does not merge, start the server with --queries merge."
    ),
}
# Texts of the service that clients look for as a whole; our own words follow after the activity id.
_SERVICE_TEXTS = {Kind.TOO_LARGE: "Request size is too large"}


def error_response(failure: Failure, activity_id: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body for a failure. Never raises: this is the last line before the socket."""
    row = ROWS[failure.kind]
    headers = [
        (b"x-ms-activity-id", activity_id.encode("ascii", "replace")),
        (b"x-ms-request-charge", render_charge(failure.charge_ru)),
    ]
    sub_status = failure.details.get("sub_status", row.sub_status)
    if sub_status:
        headers.append((b"x-ms-substatus", b"%d" % sub_status))
    if failure.retry_after_ms is not None:
        headers.append((b"x-ms-retry-after-ms", b"%d" % failure.retry_after_ms))
    if "allowed" in failure.details:
        headers.append((b"allow", ", ".join(failure.details["allowed"]).encode("ascii")))
    return row.status, headers, error_body(failure, activity_id)


def error_body(failure: Failure, activity_id: str) -> bytes:
    """`{"code", "message"}`: both clients read these two, and JavaScript's breaks on an error without a body."""
    row = ROWS[failure.kind]
    message = f"{_service_text(failure, row)}\r\nActivityId: {activity_id}"
    if failure.kind in _SERVICE_TEXTS and "is_computed" not in failure.details:
        message += f", {failure.message}"
    content: dict[str, Any] = {"code": row.code, "message": message}
    if "plan" in failure.details:
        content["additionalErrorInfo"] = _dump(failure.details["plan"]).decode()
    return _dump(content)


def _service_text(failure: Failure, row: Row) -> str:
    if "errors" in failure.details:
        return f"Message: {_dump({'errors': failure.details['errors']}).decode()}"
    message = failure.message
    if "reason" in failure.details:
        message = TEXTS_OF_REASONS.get(failure.details["reason"], message)
    if row.is_listed:
        is_computed = "is_computed" in failure.details
        text = message if is_computed else _SERVICE_TEXTS.get(failure.kind, message)
        return f"Message: {_dump({'Errors': [text]}).decode()}"
    return message


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        # A message may quote a lone surrogate out of a request body, which has no UTF-8 form.
        return orjson.dumps(_encodable(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {str(_encodable(name)): _encodable(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(member) for member in value]
    if value is None or isinstance(value, bool | int | float):
        return value if not isinstance(value, int) or -(2**63) <= value < 2**64 else float(value)
    return str(value)

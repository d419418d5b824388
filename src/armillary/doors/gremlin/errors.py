"""What the Gremlin door answers when something goes wrong: a total table from Kind to status and x-ms-status-code, and
the text around messages. What the language refuses brings its own status (`languages/gremlin/errors.py`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from armillary.errors import Failure, Kind, Reason
from armillary.languages.gremlin.values.typed_values import Long


class Row(NamedTuple):
    status: int
    code: int  # x-ms-status-code
    text: str = ""  # the service's, which clients look for; our own words follow


MALFORMED: Final = 498

ROWS: Final[dict[Kind, Row]] = {
    Kind.BAD_REQUEST: Row(499, 1004),
    Kind.KEY_MISMATCH: Row(500, 400),
    Kind.CROSS_PARTITION: Row(500, 400),
    Kind.STALE_CONTAINER: Row(500, 449),  # it was migrated to another partition key: a retry finds it
    Kind.TOO_LARGE: Row(500, 413, "Request size is too large."),
    Kind.UNSUPPORTED: Row(597, 1004),
    Kind.UNSUPPORTED_MEDIA: Row(497, 1004),
    Kind.UNAUTHORIZED: Row(401, 401),
    Kind.FORBIDDEN: Row(500, 403),
    Kind.KEY_FULL: Row(500, 403, "Partition key reached maximum size."),
    Kind.NOT_FOUND: Row(500, 404, "Resource Not Found."),
    Kind.OWNER_NOT_FOUND: Row(500, 404, "Owner resource does not exist."),
    Kind.SESSION_BEHIND: Row(500, 404),
    Kind.METHOD_NOT_ALLOWED: Row(498, 405),
    Kind.CONFLICT: Row(500, 409),
    Kind.PRECONDITION_FAILED: Row(500, 412, "One of the specified pre-condition is not met."),
    Kind.FAILED_DEPENDENCY: Row(500, 424),
    Kind.RANGE_GONE: Row(500, 410),
    Kind.RANGE_BUSY: Row(500, 410),
    Kind.NAME_STALE: Row(500, 410),
    Kind.NOT_LEADER: Row(500, 503),
    Kind.STALE_HERE: Row(500, 503),
    Kind.THROTTLED: Row(429, 429),
    Kind.RETRY_WITH: Row(500, 449),
    Kind.TIMED_OUT: Row(598, 1009),
    Kind.UNAVAILABLE: Row(500, 503),
    Kind.STORAGE_FULL: Row(500, 507),
    Kind.DROPPED: Row(500, 500),
    Kind.SCRIPT_FAILED: Row(500, 500),
    Kind.CORRUPT: Row(500, 500),
    Kind.INTERNAL: Row(500, 500),
}


CODES_OF_REASONS: Final[dict[Reason, int]] = {Reason.HELD_TOO_MUCH: 1003}


def status_of(failure: Failure) -> tuple[int, int]:
    row = ROWS[failure.kind]
    code = CODES_OF_REASONS.get(failure.details["reason"], row.code) if "reason" in failure.details else row.code
    return failure.details.get("status", row.status), failure.details.get("x_ms_status_code", code)


def text_of(failure: Failure, activity_id: str) -> str:
    if failure.kind is Kind.UNAUTHORIZED:
        return failure.message
    row = ROWS[failure.kind]
    has_text = row.text and "is_computed" not in failure.details
    message = f"{row.text} {failure.message}" if has_text else failure.message
    name = failure.details.get("exception", "GraphRuntimeException")
    return f"\n\nActivityId : {activity_id}\nExceptionType : {name}\nExceptionMessage :\n\t{message}\n"


def attributes_of(failure: Failure) -> dict[str, Any]:
    """What clients decide by."""
    _, code = status_of(failure)
    found: dict[str, Any] = {"x-ms-status-code": Long(code)}
    if failure.kind is Kind.THROTTLED or failure.retry_after_ms is not None:
        found["x-ms-retry-after-ms"] = _time_span(failure.retry_after_ms or 0)
    sub_status = failure.details.get("sub_status")
    found["x-ms-substatus-code"] = Long(sub_status if isinstance(sub_status, int) else 0)
    return found


def _time_span(milliseconds: int) -> str:
    """As .NET writes it, which is what its clients parse."""
    seconds, rest = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{rest * 10_000:07}"

"""What the Table door answers when something goes wrong: a total table from Kind to status, code and text, and the one
function that turns a Failure into a response, in JSON or XML. Which Kind a situation is belongs to whoever raises it.

What a Failure's `details` may carry for this door:

    table_code   str      replaces the row's code; the message is then the protocol's own text, or begins with it
    allowed      tuple    the verbs that the route knows (METHOD_NOT_ALLOWED)
    challenge    bool     the answer tells clients with tokens where to get them
"""

from __future__ import annotations

from typing import NamedTuple
from xml.sax.saxutils import escape

import orjson

from armillary.errors import Failure, Kind


class Row(NamedTuple):
    status: int
    code: str
    text: str = ""  # the service's, which clients look for; our own words follow


ROWS: dict[Kind, Row] = {
    Kind.BAD_REQUEST: Row(400, "InvalidInput"),
    Kind.KEY_MISMATCH: Row(400, "InvalidInput", "One of the input values is invalid."),
    Kind.CROSS_PARTITION: Row(400, "InvalidInput"),
    Kind.STALE_CONTAINER: Row(404, "ResourceNotFound", "The specified resource does not exist."),
    Kind.TOO_LARGE: Row(413, "RequestBodyTooLarge", "The request body is too large."),
    Kind.UNSUPPORTED: Row(501, "NotImplemented"),
    Kind.UNSUPPORTED_MEDIA: Row(415, "AtomFormatNotSupported"),
    Kind.UNAUTHORIZED: Row(401, "Unauthorized"),
    Kind.FORBIDDEN: Row(403, "AuthorizationFailure"),
    Kind.KEY_FULL: Row(403, "Forbidden"),
    Kind.NOT_FOUND: Row(404, "ResourceNotFound", "The specified resource does not exist."),
    Kind.OWNER_NOT_FOUND: Row(404, "ResourceNotFound", "The specified resource does not exist."),
    Kind.SESSION_BEHIND: Row(404, "ResourceNotFound"),
    Kind.METHOD_NOT_ALLOWED: Row(405, "MethodNotAllowed"),
    Kind.CONFLICT: Row(409, "EntityAlreadyExists", "The specified entity already exists."),
    Kind.PRECONDITION_FAILED: Row(
        412,
        "UpdateConditionNotSatisfied",
        "The update condition specified in the request was not satisfied.",
    ),
    Kind.FAILED_DEPENDENCY: Row(424, "FailedDependency"),
    # A partition that splits is nothing that clients of tables know of: they come again.
    Kind.RANGE_GONE: Row(503, "ServerBusy", "The server is busy."),
    Kind.RANGE_BUSY: Row(503, "ServerBusy", "The server is busy."),
    Kind.NAME_STALE: Row(404, "ResourceNotFound", "The specified resource does not exist."),
    Kind.THROTTLED: Row(429, "TooManyRequests"),
    Kind.RETRY_WITH: Row(503, "ServerBusy", "The server is busy."),
    Kind.TIMED_OUT: Row(408, "OperationTimedOut"),
    Kind.UNAVAILABLE: Row(503, "ServerBusy"),
    Kind.STORAGE_FULL: Row(403, "Forbidden"),
    Kind.SCRIPT_FAILED: Row(400, "InvalidInput"),
    Kind.CORRUPT: Row(500, "InternalError"),
    Kind.INTERNAL: Row(500, "InternalError"),
}

"""What the Table door answers when something goes wrong: a total table from Kind to status, code and text, and the one
function that turns a Failure into a response, in JSON or XML. The code that raises a Failure
chooses its Kind; the Table protocol's own codes are given by `refused`.

What a Failure's `details` may carry for this door:

    table_code   str      replaces the row's code; the message is then the protocol's own text, or begins with it
    storage_text str      what Azure Storage says in place of a message's "… is invalid."
    allowed      tuple    the verbs that the route knows (METHOD_NOT_ALLOWED)
    challenge    bool     the answer tells clients with tokens where to get them
"""

from __future__ import annotations

import re
from html import escape  # as that of xml.sax, which brings a whole HTTP client along
from typing import Final, NamedTuple

import orjson

from armillary.errors import Failure, Kind
from armillary.net.charged_requests import render_charge

BAD_INPUT = "One of the input values is invalid."
# What Azure Storage says in its place.
STORAGE_BAD_INPUT = "One of the request inputs is not valid."
STORAGE_BAD_VALUE = "An error occurred while processing this request."


def refused(code: str, message: str, kind: Kind = Kind.BAD_REQUEST) -> Failure:
    return Failure(kind, message, details={"table_code": code})


def bad_input(reason: str, storage_text: str = STORAGE_BAD_INPUT) -> Failure:
    details = {"table_code": "InvalidInput", "storage_text": storage_text}
    return Failure(Kind.BAD_REQUEST, f"{BAD_INPUT} {reason}", details=details)


def bad_url(reason: str) -> Failure:
    return refused("InvalidInput", f"Request url is invalid. {reason}")


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
    # Table clients know no partitions: after a split or merge they retry.
    Kind.RANGE_GONE: Row(503, "ServerBusy", "The server is busy."),
    Kind.RANGE_BUSY: Row(503, "ServerBusy", "The server is busy."),
    Kind.NAME_STALE: Row(404, "ResourceNotFound", "The specified resource does not exist."),
    Kind.NOT_LEADER: Row(503, "ServerBusy", "The server is busy."),
    Kind.STALE_HERE: Row(503, "ServerBusy", "The server is busy."),
    Kind.THROTTLED: Row(429, "TooManyRequests"),
    Kind.RETRY_WITH: Row(503, "ServerBusy", "The server is busy."),
    Kind.TIMED_OUT: Row(408, "OperationTimedOut"),
    Kind.UNAVAILABLE: Row(503, "ServerBusy"),
    Kind.STORAGE_FULL: Row(403, "Forbidden"),
    Kind.DROPPED: Row(503, "ServerBusy"),  # in a batch; else there is no answer at all
    Kind.SCRIPT_FAILED: Row(400, "InvalidInput"),
    Kind.CORRUPT: Row(500, "InternalError"),
    Kind.INTERNAL: Row(500, "InternalError"),
}


_STORAGE: Final = {
    Kind.OWNER_NOT_FOUND: Row(404, "TableNotFound", "The table specified does not exist."),
    Kind.UNAUTHORIZED: Row(403, "AuthenticationFailed"),
    Kind.THROTTLED: Row(503, "ServerBusy", "The server is busy."),
}
_XML: Final = (
    '<?xml version="1.0" encoding="utf-8"?><error xmlns="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata">'
    '<code>{}</code><message xml:lang="en-us">{}</message></error>'
)
# Where clients with Azure AD tokens would get one. Not offered here, hence the zero tenant.
_CHALLENGE: Final = (
    b"Bearer authorization_uri=https://login.microsoftonline.com/00000000-0000-0000-0000-000000000000/oauth2/authorize "
    b"resource_id=https://cosmos.azure.com"
)


class Refusal(NamedTuple):
    """A failure in the words of the protocol."""

    status: int
    code: str
    message: str
    language: str

    def json(self) -> bytes:
        content = {"odata.error": {"code": self.code, "message": {"lang": self.language, "value": self.message}}}
        try:
            return orjson.dumps(content)
        except TypeError:
            # A message may quote a lone surrogate out of a request, which has no UTF-8 form.
            plain = self.message.encode("utf-8", "replace").decode()
            return self._replace(message=plain).json()

    def xml(self) -> bytes:
        text = _NOT_XML.sub("?", self.message)
        return _XML.format(escape(self.code, quote=False), escape(text, quote=False)).encode("utf-8", "replace")


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def refusal_of(
    failure: Failure, request_id: str, moment: str, *, is_storage: bool, index: int | None = None
) -> Refusal:
    """`index`: of the operation of a batch that failed, which the message begins with."""
    row = _STORAGE.get(failure.kind, ROWS[failure.kind]) if is_storage else ROWS[failure.kind]
    code = failure.details.get("table_code")
    status = row.status
    if code is None:
        has_text = row.text and "is_computed" not in failure.details
        code, message = row.code, f"{row.text} {failure.message}" if has_text else failure.message
    else:
        message = failure.message
    if is_storage and "storage_text" in failure.details:
        message = failure.details["storage_text"] + message.partition("is invalid.")[2]
    if index is not None:
        message = f"{index}:{message}"
    return Refusal(
        status, code, f"{message}\nRequestId:{request_id}\nTime:{moment}", "en-US" if is_storage else "en-us"
    )


def refusal_headers(failure: Failure, refusal: Refusal, *, is_xml: bool) -> list[tuple[bytes, bytes]]:
    content_type = b"application/xml" if is_xml else b"application/json;odata=minimalmetadata;charset=utf-8"
    headers = [
        (b"content-type", content_type),
        (b"x-ms-error-code", refusal.code.encode("ascii")),
        (b"x-ms-request-charge", render_charge(failure.charge_ru)),
    ]
    if failure.retry_after_ms is not None:
        headers.append((b"x-ms-retry-after-ms", b"%d" % failure.retry_after_ms))
    if "allowed" in failure.details:
        headers.append((b"allow", ", ".join(failure.details["allowed"]).encode("ascii")))
    if failure.details.get("challenge"):
        headers.append((b"www-authenticate", _CHALLENGE))
    return headers

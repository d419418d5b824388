"""What scripts have logged, as a header of the answer, for whoever asks for it."""

from __future__ import annotations

from urllib.parse import quote

from armillary import limits
from armillary.net.http import Response

SCRIPT_LOGGING = b"x-ms-documentdb-script-enable-logging"


def with_log(response: Response, log: str) -> Response:
    """The log is cut where clients would not read on."""
    encoded = quote(log)[: limits.SCRIPT_LOG_HEADER_BYTES_MAX]
    if "%" in encoded[-2:]:
        encoded = encoded[: encoded.rindex("%")]
    name, value = b"x-ms-documentdb-script-log-results", encoded.encode("ascii")
    if response.lines:
        return Response(response.status, (), response.body, b"%b\r\n%b: %b" % (response.lines, name, value))
    return Response(response.status, [*response.headers, (name, value)], response.body)

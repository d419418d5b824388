"""What a request's head may say: the rules of HTTP/1.1 that the parser leaves open, and our limits.

`read` gives a Head, or the status and sentence of a refusal. Two readers of one connection (a proxy and we) must never
disagree where a request ends, so everything ambiguous is refused rather than guessed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from httptools import HttpRequestParser

from armillary import limits
from armillary.net.answers import CLOSES, STAYS_OPEN, STAYS_OPEN_SAID

Refusal = tuple[int, str]

# A second value would make it unclear which one counts. The parser itself refuses a second Content-Length.
ONCE: Final = frozenset(
    (b"host", b"content-length", b"transfer-encoding", b"authorization", b"content-type", b"expect")
)

HTTP_2: Final[Refusal] = (400, "HTTP/2 is not spoken here; use HTTP/1.1.")  # told in its frames, see http_2.py
TOO_LARGE: Final = (431, f"The head of the request is larger than {limits.HEAD_BYTES_MAX} bytes.")
TOO_MANY: Final = (431, f"The request has more than {limits.HEAD_LINES_MAX} headers.")
BODY_TOO_LARGE: Final = (413, f"The body of the request is larger than {limits.BODY_BYTES_MAX} bytes.")

_METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "MERGE", "TRACE")
}
_HOST: Final = re.compile(rb"[A-Za-z0-9._~\-]*(?::[0-9]*)?|\[[0-9A-Fa-f:.]+\](?::[0-9]*)?")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?#]*)([^#]*)")


class Head(NamedTuple):
    method: str
    target: bytes
    headers: dict[bytes, bytes]
    host: bytes
    ending: bytes  # what the answer says about the connection; see answers.py
    body_bytes: int  # 0 for a chunked body, whose size is not known
    expects_continue: bool
    is_offer_with_body: bool  # offers another protocol, which the parser takes the body for


def read(
    parser: HttpRequestParser, target: bytes, headers: dict[bytes, bytes], is_long: bool, host_seen: bytes
) -> Head | Refusal:
    """The head that `parser` has just completed. `is_long`: it came in several pieces and is to be measured.
    `host_seen`: a host that was found good before on this connection."""
    is_old = False
    ending = STAYS_OPEN
    # The parser keeps a connection without a Connection header open for HTTP/1.1 alone, so for most requests the
    # version need not be asked for, which makes a string each time.
    stays_open = parser.should_keep_alive()
    if not stays_open or b"connection" in headers:
        version = parser.get_http_version()
        is_old = version == "1.0"
        if version != "1.1" and not is_old:
            return 400, f"HTTP/{version} is not spoken here; use HTTP/1.1."
        ending = STAYS_OPEN_SAID if stays_open else CLOSES

    method = _METHODS.get(parser.get_method())
    if method is None:
        method = parser.get_method().decode("ascii")
        if method == "CONNECT":
            return 405, "This server is no proxy; CONNECT is not offered."
    if len(target) > limits.TARGET_BYTES_MAX:
        return 414, f"The target of the request is longer than {limits.TARGET_BYTES_MAX} bytes."
    if len(headers) > limits.HEAD_LINES_MAX:
        return TOO_MANY
    if is_long:
        size_bytes = len(target) + sum([len(name) + len(value) + 4 for name, value in headers.items()])
        if size_bytes > limits.HEAD_BYTES_MAX:
            return TOO_LARGE

    host = headers.get(b"host")
    if host != host_seen or not host:
        if host is None and not is_old:
            return 400, "The request has no Host header."
        host = host or b""
        if _HOST.fullmatch(host) is None:
            return 400, "The Host header does not name a host."

    if target[0] != 47:  # b"/"
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is not None and _HOST.fullmatch(absolute[1]) is not None:
            # As sent to a proxy. RFC 9112, 3.2.2: the authority of the target counts, not the Host header.
            host = headers[b"host"] = absolute[1]
            target = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
        elif target != b"*":
            return 400, "The target of the request is not a path."

    body_bytes = 0
    if b"content-length" in headers:
        body_bytes = int(headers[b"content-length"])  # the parser lets nothing but digits through
        if body_bytes > limits.BODY_BYTES_MAX:
            return BODY_TOO_LARGE
    is_chunked = b"transfer-encoding" in headers
    if is_chunked and (is_old or headers[b"transfer-encoding"].lower() != b"chunked"):
        return 400, "The only transfer encoding that is read is chunked, in HTTP/1.1."

    is_offer_with_body = b"upgrade" in headers and parser.should_upgrade() and bool(body_bytes or is_chunked)
    expects_continue = False
    if b"expect" in headers:
        if headers[b"expect"].lower() != b"100-continue":
            return 417, "The only expectation that is met is 100-continue."
        expects_continue = not is_old and bool(body_bytes or is_chunked)
    return Head(method, target, headers, host, ending, body_bytes, expects_continue, is_offer_with_body)

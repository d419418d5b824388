"""The file in a data directory that says where its server is and what its control key is, so that commands on the same
machine find both. For the owner's eyes alone; what the key opens is known to `doors/control`.
"""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.directory import write_private

CONTROL_FILE: Final = "control.json"
_KEY_BYTES: Final = 32
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class Control(NamedTuple):
    url: str | None
    key: str | None  # None: the server was started with a key from its settings
    certificate: Path | None = None  # the file with the certificate that the server shows


def read_control(directory: Path) -> Control:
    """What the file says; nothing if there is none, or none that can be read."""
    try:
        content = json.loads((directory / CONTROL_FILE).read_bytes())
        found = [content.get(name) for name in ("url", "key", "certificate")]
    except (OSError, ValueError, AttributeError):
        return Control(None, None)
    url, key, certificate = (each if isinstance(each, str) else None for each in found)
    return Control(url, key, Path(certificate) if certificate is not None else None)


def control_key(directory: Path, clock: Clock) -> str:
    """The key that was made at the first start, or a new one. It is kept with `write_control`."""
    return read_control(directory).key or base64.b64encode(clock.random_bytes(_KEY_BYTES)).decode("ascii")


def local_host(host: str) -> str:
    """How a server on `host` is reached from its own machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def pinned_context(certificate: Path) -> ssl.SSLContext:
    """TLS to the server that shows exactly this certificate, under whatever name it is reached: certificates of
    operators are made for the name that other machines use, not for this machine's loopback address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        first, end, _chain = certificate.read_text("utf-8", "replace").partition(_END)
        context.load_verify_locations(cadata=first[first.index(_BEGIN) :] + end + "\n")
    except (OSError, ssl.SSLError, ValueError):
        raise Failure(
            Kind.UNAVAILABLE,
            f"The server's certificate cannot be read from {certificate}, which its data directory names. Say where "
            "the server is with --url.",
        ) from None
    return context


def write_control(directory: Path, control: Control) -> None:
    content = {name: str(value) for name, value in control._asdict().items() if value is not None}
    try:
        write_private(directory / CONTROL_FILE, json.dumps(content).encode() + b"\n")
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise Failure(Kind.UNAVAILABLE, f"The control key cannot be kept in the data directory: {reason}.") from error

"""The file that says where a server is and what its control key is, so that commands on the same machine find both: in
its data directory, or for a server in memory in a directory of its user. For the owner's eyes alone; what the key opens
is known to `doors/control`.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.directory import write_private

CONTROL_FILE: Final = "control.json"
RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
_MEMORY: Final = "memory-"
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
    return read_control(directory).key or new_control_key(clock)


def new_control_key(clock: Clock) -> str:
    return base64.b64encode(clock.random_bytes(_KEY_BYTES)).decode("ascii")


def memory_directory(port: int) -> Path | None:
    """Where the file of a server in memory is, which has no data directory: in the user's directory for running
    programs, else in that for their state. None: the user has neither."""
    parent = _memory_parent()
    return parent / f"{_MEMORY}{port}" if parent is not None else None


def memory_servers() -> list[str]:
    """The addresses of this user's servers in memory, and of those that were killed and not started again."""
    parent = _memory_parent()
    try:
        listed = sorted(parent.glob(f"{_MEMORY}*")) if parent is not None else []
    except OSError:
        return []
    return [url for url in (read_control(each).url for each in listed) if url is not None]


def _memory_parent() -> Path | None:
    given = os.environ.get(RUNTIME_VARIABLE, "")
    return Path(given) / "armillary" if os.path.isabs(given) and os.path.isdir(given) else state_directory()


def state_directory() -> Path | None:
    """Ours in the user's directory for the state of programs. None: the user has none."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        place = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return place / "armillary"


def remove_control(directory: Path, control: Control) -> None:
    """Unless another server has put its own there."""
    if read_control(directory) == control:
        (directory / CONTROL_FILE).unlink(missing_ok=True)
        try:
            directory.rmdir()
        except OSError:
            pass


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
        raise Failure(Kind.UNAVAILABLE, f"The control key cannot be kept in {directory}: {reason}.") from error

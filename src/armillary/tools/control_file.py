"""The file in a data directory that says where its server is and what its control key is, so that commands on the same
machine find both. For the owner's eyes alone; what the key opens is known to `doors/control`.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Final, NamedTuple

from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.directory import write_private

CONTROL_FILE: Final = "control.json"
_KEY_BYTES: Final = 32


class Control(NamedTuple):
    url: str | None
    key: str | None  # None: whoever started the server gave it one, and knows it


def read_control(directory: Path) -> Control:
    """What the file says; nothing if there is none, or none that can be read."""
    try:
        content = json.loads((directory / CONTROL_FILE).read_bytes())
        url, key = content.get("url"), content.get("key")
    except (OSError, ValueError, AttributeError):
        return Control(None, None)
    return Control(url if isinstance(url, str) else None, key if isinstance(key, str) else None)


def control_key(directory: Path, clock: Clock) -> str:
    """The key that was made at the first start, or a new one. It is kept with `write_control`."""
    return read_control(directory).key or base64.b64encode(clock.random_bytes(_KEY_BYTES)).decode("ascii")


def local_host(host: str) -> str:
    """How a server on `host` is reached from its own machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def write_control(directory: Path, control: Control) -> None:
    content = {name: value for name, value in control._asdict().items() if value is not None}
    try:
        write_private(directory / CONTROL_FILE, json.dumps(content).encode() + b"\n")
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise Failure(Kind.UNAVAILABLE, f"The control key cannot be kept in the data directory: {reason}.") from error

"""Recorded exchanges: a request and its answer each, in the order in which the requests began, as gzip-compressed lines
of JSON. The first line says what was recorded.
"""

from __future__ import annotations

import gzip
import io
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "recorded"
SUFFIX = ".jsonl.gz"
FILE_BYTES_MAX = 200_000
SERVER = "{server}"  # in the place of addresses, which are others at each run
UNRECORDED_PREFIX = "processor-"  # of containers and collections whose requests depend on timing

Exchange = dict[str, Any]


class Recording:
    """Proxies add exchanges when requests begin and complete them when they are answered. `dropped` says that the
    server closed the connection instead, as fault rules ask. One with neither has a client that did not wait."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.addresses: list[str] = []  # HOST:PORT that the client was told; they are replaced

    def begin(self, exchange: Exchange) -> Exchange:
        self.exchanges.append(exchange)
        return exchange


def write_recording(name: str, recording: Recording, exchanges: Iterable[Exchange], **about: str) -> None:
    lines = [json.dumps(about, ensure_ascii=False)]
    lines += [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in exchanges]
    text = "\n".join(lines) + "\n"
    for address in recording.addresses:
        text = text.replace(address, SERVER)
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as file:
        file.write(text.encode())
    content = packed.getvalue()
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"The recording of {name} has {len(content):,} bytes: its program sends too much.")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}{SUFFIX}").write_bytes(content)


def read_recording(path: Path) -> tuple[dict[str, str], list[Exchange]]:
    about, *exchanges = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
    return about, exchanges


def packed_bytes(content: bytes) -> Any:
    """Bytes of a request: as text where they are text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def unpacked_bytes(packed: Any) -> bytes:
    return packed.encode() if isinstance(packed, str) else b64decode(packed["base64"])

"""What is kept of captures: for each one a record that says what it is, and a body of compressed lines. With a data
directory both are private files in `captures/`; without one they are kept in memory.

The body is a row of gzip members, each written as a whole, and the record has how many bytes of it count. So a crash
costs what was not written yet: the rest is cut off when the directory is opened.
"""

from __future__ import annotations

import logging
import os
import re
import zlib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from armillary.storage.private import make_directory, open_file

RUNNING, STOPPED, INTERRUPTED = "running", "stopped", "interrupted"
_ID: Final = re.compile(r"[0-9a-f]{12}")
_READ_BYTES: Final = 1 << 20
_GZIP: Final = 31  # window bits of a gzip member
log = logging.getLogger(__name__)


@dataclass(slots=True)
class CaptureRecord:
    """A capture, as it is stored beside its lines."""

    id: str
    rid: str  # of the container, hexadecimal
    key: list[str]  # paths of its partition key
    partitions: int  # that it had at the beginning
    begun_s: float
    seconds: int
    share: float
    limit: int
    keeps_values: bool
    secret: str  # of its digests, hexadecimal; never part of a file that is sent
    state: str = RUNNING
    reason: str = ""  # why it has ended
    ended_s: float | None = None
    requests: int = 0
    missed: int = 0  # requests that were not recorded because the disk was too slow
    size_bytes: int = 0  # of the body
    version: int = field(default=1)


class CaptureStore(Protocol):
    def load(self) -> list[CaptureRecord]: ...
    def save(self, record: CaptureRecord) -> None: ...
    def append(self, record: CaptureRecord, content: bytes) -> None: ...
    def read(self, record: CaptureRecord, at: int, size_bytes: int) -> bytes: ...
    def delete(self, record: CaptureRecord) -> None: ...


class MemoryStore:
    def __init__(self) -> None:
        self._bodies: dict[str, bytearray] = {}

    def load(self) -> list[CaptureRecord]:
        return []

    def save(self, record: CaptureRecord) -> None:
        self._bodies.setdefault(record.id, bytearray())

    def append(self, record: CaptureRecord, content: bytes) -> None:
        self._bodies.setdefault(record.id, bytearray()).extend(content)

    def read(self, record: CaptureRecord, at: int, size_bytes: int) -> bytes:
        return bytes(self._bodies[record.id][at : at + size_bytes])

    def delete(self, record: CaptureRecord) -> None:
        self._bodies.pop(record.id, None)


class FileStore:
    """Its methods wait for the disk; they are called in a thread. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> list[CaptureRecord]:
        """The captures of an earlier run of the server. One that was running then has ended with it."""
        if not self._directory.is_dir():
            return []
        found = []
        for path in sorted(self._directory.glob("*.json")):
            record = _read_record(path)
            if record is None:
                log.warning("the capture %s cannot be read and is left out", path.stem)
                continue
            if record.state == RUNNING:
                record.state, record.reason = INTERRUPTED, "the server stopped"
                self._cut(record)
                self.save(record)
            found.append(record)
        return found

    def save(self, record: CaptureRecord) -> None:
        """A crash leaves the former record or the new one."""
        make_directory(self._directory, parents=True)
        unfinished = self._record_path(record).with_suffix(".new")
        with open_file(unfinished, "wb") as file:
            file.write(orjson.dumps(asdict(record)))
        os.replace(unfinished, self._record_path(record))

    def append(self, record: CaptureRecord, content: bytes) -> None:
        """Behind the bytes that the record counts: a write that failed half-way is overwritten."""
        path = self._body_path(record)
        with open_file(path, "r+b" if path.exists() else "xb") as file:
            file.seek(record.size_bytes)
            file.write(content)
            file.truncate()

    def read(self, record: CaptureRecord, at: int, size_bytes: int) -> bytes:
        try:
            with self._body_path(record).open("rb") as file:
                file.seek(at)
                return file.read(min(size_bytes, max(0, record.size_bytes - at)))
        except FileNotFoundError:
            if record.size_bytes:
                raise
            return b""

    def delete(self, record: CaptureRecord) -> None:
        self._record_path(record).unlink(missing_ok=True)
        self._body_path(record).unlink(missing_ok=True)

    def _cut(self, record: CaptureRecord) -> None:
        """Make body and record agree after a crash. Neither is synced: the body may even be the shorter one, and then
        its whole members are what is left."""
        path = self._body_path(record)
        present = path.stat().st_size if path.exists() else 0
        if present < record.size_bytes:
            record.size_bytes, record.requests = _whole_members(path) if present else (0, 0)
        if path.exists():
            os.truncate(path, record.size_bytes)

    def _record_path(self, record: CaptureRecord) -> Path:
        return self._directory / f"{record.id}.json"

    def _body_path(self, record: CaptureRecord) -> Path:
        return self._directory / f"{record.id}.gz"


def _read_record(path: Path) -> CaptureRecord | None:
    try:
        content: Any = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    names = {each.name for each in fields(CaptureRecord)}
    if not isinstance(content, dict) or content.keys() != names or content["version"] != 1:
        return None
    record = CaptureRecord(**content)
    is_named_so = record.id == path.stem and _ID.fullmatch(record.id) is not None
    return record if is_named_so else None


def _whole_members(path: Path) -> tuple[int, int]:
    """The bytes of the whole gzip members at the beginning of a file, and the lines in them."""
    end = at = lines = members_lines = 0
    reader = zlib.decompressobj(_GZIP)
    with path.open("rb") as file:
        pending = b""
        while pending or (pending := file.read(_READ_BYTES)):
            try:
                members_lines += reader.decompress(pending).count(b"\n")
            except zlib.error:
                break
            at += len(pending) - len(reader.unused_data)
            pending = reader.unused_data
            if reader.eof:
                end, lines, members_lines = at, lines + members_lines, 0
                reader = zlib.decompressobj(_GZIP)
    return end, lines

"""A file of records that is appended to and, now and then, written anew: for figures of a server that are kept beside
its data and need not survive a crash to the last second. Each record has its length and a checksum before it; reading
ends at the first one that is not whole, which a crash may leave at the end. Nothing is synced.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from armillary.storage.private import make_directory, open_file

_MAGIC = b"armillary records 1\n"
_HEAD = struct.Struct(">II")  # length and checksum
_RECORD_BYTES_MAX = 64 * 1024 * 1024


class RecordFile:
    """Made by `open`. Its methods wait for the disk: call them in a thread if there is much to write."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = path
        self.size_bytes = size_bytes

    @classmethod
    def open(cls, path: Path) -> tuple[RecordFile, list[bytes]]:
        """The file and its records. What follows the last whole record is cut off; a file of another kind is begun
        anew."""
        make_directory(path.parent, parents=True)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        records, end = _read(content)
        if not content.startswith(_MAGIC):
            with open_file(path, "wb") as file:
                file.write(_MAGIC)
            return cls(path, len(_MAGIC)), []
        if end < len(content):
            os.truncate(path, end)
        return cls(path, end), records

    def append(self, records: Iterable[bytes]) -> None:
        content = b"".join(map(_framed, records))
        if content:
            with open_file(self._path, "r+b") as file:
                file.seek(self.size_bytes)  # not to the end: a write that failed half-way is overwritten
                file.write(content)
                file.truncate()
            self.size_bytes += len(content)

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace everything; a crash leaves the former file or the new one."""
        unfinished = self._path.with_name(self._path.name + ".new")
        size_bytes = len(_MAGIC)
        with open_file(unfinished, "wb") as file:
            file.write(_MAGIC)
            for record in records:
                size_bytes += file.write(_framed(record))
        os.replace(unfinished, self._path)
        self.size_bytes = size_bytes


def _framed(record: bytes) -> bytes:
    return _HEAD.pack(len(record), zlib.crc32(record)) + record


def _read(content: bytes) -> tuple[list[bytes], int]:
    """The whole records, and where they end."""
    records: list[bytes] = []
    at = len(_MAGIC)
    while at + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, at)
        record = content[at + _HEAD.size : at + _HEAD.size + length]
        if length > _RECORD_BYTES_MAX or len(record) < length or zlib.crc32(record) != checksum:
            break
        records.append(record)
        at += _HEAD.size + length
    return records, at

"""Bulk loading of a store: table files are written beside the database and ingested whole, so nothing goes through its
write-ahead log, its write buffer or compaction. The caller makes sure that the store is not used meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import rocksdict

from armillary import limits
from armillary.storage.disk_errors import translated
from armillary.storage.overlay import Pair
from armillary.storage.private import make_directory
from armillary.storage.rocks_database import Database, table_writer

_numbers: Final = count(1)


class RocksLoader:
    def __init__(self, directory: Path, writable: Callable[[], Database], prefix: bytes) -> None:
        self._directory = directory
        self._writable = writable
        self._prefix = prefix
        self._path: Path | None = None
        self._writer: rocksdict.SstFileWriter | None = None
        self._last_key = b""

    def put(self, pairs: Sequence[Pair]) -> None:
        if not pairs:
            return
        try:
            self._put(pairs)
        except Exception as error:
            self.abandon()
            raise translated(error) or error from error

    def _put(self, pairs: Sequence[Pair]) -> None:
        writer = self._writer
        if writer is not None and (pairs[0][0] <= self._last_key or writer.file_size() >= limits.LOAD_TABLE_BYTES):
            self._cut()
            writer = None
        if writer is None:
            writer = self._begin()
        prefix = self._prefix
        for key, value in pairs:
            writer[prefix + key] = value
        self._last_key = pairs[-1][0]

    async def ready(self) -> None:
        pass  # it is in a file already

    async def finish(self) -> None:
        try:
            if self._writer is not None:
                self._cut()
        except Exception as error:
            self.abandon()
            raise translated(error) or error from error

    def abandon(self) -> None:
        self._writer = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None

    def _begin(self) -> rocksdict.SstFileWriter:
        self._writable()
        make_directory(self._directory)
        self._path = self._directory / f"{next(_numbers)}.sst"
        self._path.unlink(missing_ok=True)
        self._writer = table_writer(self._path)
        return self._writer

    def _cut(self) -> None:
        assert self._writer is not None
        assert self._path is not None
        self._writer.finish()
        self._writer = None
        self._writable().ingest(self._path)
        self._path = None

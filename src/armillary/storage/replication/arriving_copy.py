"""The files of a replica that arrive from another node, beside the engine's own: each is received from its beginning
on, so what is there after a stop is a beginning of it, and counts only after its digest was compared. The whole takes
the engine's place in one step (`DataDirectory.exchange_engine`).

RocksDB never changes a table once it is written: tables that have arrived are kept when another checkpoint of the same
node is received. All other files are received again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Final

from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory, sync_directory
from armillary.storage.disk_errors import translated
from armillary.storage.private import make_directory, open_file, read_regular
from armillary.storage.replication.local_replica import Position
from armillary.storage.rocks_database import POSITION_KEY, Database

DIGEST_BYTES: Final = 32
_TABLE: Final = ".sst"


class ArrivingCopy:
    """Methods that read or write files are run in a thread."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._path = directory.incoming_path

    def begin(self, files: Mapping[str, int]) -> None:
        """Keep what can be part of a checkpoint with these files, by name and size in bytes, and remove the rest."""
        make_directory(self._path)
        for present in self._path.iterdir():
            if present.is_dir() and not present.is_symlink():
                shutil.rmtree(present)
            elif present.suffix != _TABLE or present.lstat().st_size > files.get(present.name, -1):
                present.unlink()

    def length(self, name: str) -> int:
        """How much of a file is there."""
        try:
            return (self._path / name).lstat().st_size
        except FileNotFoundError:
            return 0

    def add(self, name: str, offset: int, content: bytes) -> None:
        path = self._path / name
        with open_file(path, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(content)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def is_whole(self, name: str, digest: bytes) -> bool:
        """Whether a file is what the other node has. It is durable then."""
        path = self._path / name
        if not path.exists():
            open_file(path, "xb").close()  # an empty one has no parts
        if digest_of(path) != digest:
            return False
        with open_file(path, "r+b") as file:
            os.fsync(file.fileno())
        return True

    def check(self, generation: bytes, lowest_seq: int) -> Position:
        """Open the whole copy, and refuse it if it is not of this log, or is older than what the log keeps for this
        replica."""
        try:
            database = Database(self._path)
        except Exception as error:
            failure = translated(error)
            if failure is not None and failure.kind is Kind.CORRUPT:
                self.drop()  # else it is tried again: a full disk says nothing about the copy
            raise
        try:
            stored = database.get(POSITION_KEY)
        finally:
            database.close()
        position = Position.unpack(stored) if stored is not None else None
        if position is None or position.generation != generation:
            self.drop()
            raise Failure(Kind.BAD_REQUEST, "The node that was copied from has a replica of another log.")
        if position.place.seq < lowest_seq:
            raise too_old(position.place.seq, lowest_seq)
        return position

    def take_place(self) -> None:
        sync_directory(self._path)
        self._directory.exchange_engine()

    def drop(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def digest_of(path: Path) -> bytes:
    with read_regular(path) as file:
        return file_digest(file, lambda: blake2b(digest_size=DIGEST_BYTES)).digest()


def too_old(seq: int, lowest_seq: int) -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        f"The node that is copied from has reached row {seq} of the log, and the log keeps rows above {lowest_seq} for "
        "this replica. Copy from a node that is further.",
        retry_after_ms=1_000,
    )

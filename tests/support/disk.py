"""Disks that fail: a file system of its own, small enough to fill, and a storage engine whose next commit fails."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from armillary.storage.rocks_database import Database


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[Path]:
    path.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)], capture_output=True, text=True
    )
    if mounting.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted here: {mounting.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fail_next_commit(
    patch: pytest.MonkeyPatch, message: str, *, is_stored: bool, on_failing: Callable[[], None] = lambda: None
) -> None:
    """The next commit of any RocksDB fails once: after it was stored, or before. `on_failing` is called just before."""
    sync, write = Database.sync, Database.write

    def failing_sync(database: Database) -> None:
        patch.setattr(Database, "sync", sync)
        sync(database)
        on_failing()
        raise OSError(message)

    def failing_write(database: Database, layer: object) -> None:
        patch.setattr(Database, "write", write)
        on_failing()
        raise Exception(message)  # the engine's library raises no more precise type

    if is_stored:
        patch.setattr(Database, "sync", failing_sync)
    else:
        patch.setattr(Database, "write", failing_write)

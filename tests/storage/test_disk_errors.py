"""Errors of the disk and of the system, in our words: only what the database found wrong in its files is damage."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from armillary.errors import Failure, Kind
from armillary.storage import file_descriptors
from armillary.storage.directory import DataDirectory
from armillary.storage.disk_errors import translated
from armillary.storage.rocks import RocksEngine

FULL = ("ENOSPC", "EDQUOT")
LATER = (
    "EMFILE",
    "ENFILE",
    "ENOMEM",
    "EAGAIN",
    "EINTR",
    "EBUSY",
    "EACCES",
    "EPERM",
    "EROFS",
    "ENOTDIR",
    "EIO",
    "ENXIO",
)
# How RocksDB and its binding dress an error of the system.
FORMS = (
    "IO error: While open a file for random read: /data/rocks/000017.sst: {}",
    "Corruption: Corruption: IO error: While open a file for random read: /data/000009.sst: {}  The file "
    "/data/MANIFEST-000005 may be corrupted.",
    "Corruption: Can't access /000123.sst: IO error: while stat a file for size: /data/000123.sst: {}\n",
    "Invalid argument: Found options incompatible with filesystem: IO error: While open a file: /data/CURRENT: {}",
    "{} (os error {number})",
)


@pytest.mark.parametrize("name", [*FULL, *LATER])
def test_errors_of_the_system_are_no_damage(name: str) -> None:
    number = getattr(errno, name)
    wanted = Kind.STORAGE_FULL if name in FULL else Kind.UNAVAILABLE
    errors: list[BaseException] = [Exception(form.format(os.strerror(number), number=number)) for form in FORMS]
    for error in (*errors, OSError(number, os.strerror(number), "/data/rocks")):
        failure = translated(error)
        assert failure is not None and failure.kind is wanted, error
        assert "/data" not in failure.message and "rocks" not in failure.message.lower()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Corruption: block checksum mismatch: stored = 1, computed = 2  in /data/000009.sst", Kind.CORRUPT),
        ("Corruption: IO error: No such file or directory: While open a file: /data/1.sst: No such file or directory",
         Kind.CORRUPT),
        ("Corruption: not an sstable (bad magic number)", Kind.CORRUPT),
        # What a directory is called says nothing about what is in it.
        ("IO error: While fsync: /srv/checksums/rocks/1.log: Device is on fire", Kind.UNAVAILABLE),
        ("IO error: lock hold by current process: /data/LOCK: No locks available", Kind.UNAVAILABLE),
        ("Shutdown in progress", Kind.UNAVAILABLE),
    ],
)  # fmt: skip
def test_what_the_database_says(text: str, kind: Kind) -> None:
    failure = translated(Exception(text))
    assert failure is not None and failure.kind is kind


def test_other_errors_are_not_ours() -> None:
    for error in (ValueError("Corruption"), KeyError("x"), Failure(Kind.NOT_FOUND, "x"), AssertionError()):
        assert translated(error) is None


async def test_opening_without_descriptors_says_so(tmp_path: Path) -> None:
    """For as long as they lack; afterwards everything is there."""
    engine = await RocksEngine.open(tmp_path / "data")
    await engine.store(1).write(lambda txn: txn.put(b"k", b"v"))
    await engine.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = os.open(os.devnull, os.O_RDONLY)
    refusals: list[Failure] = []
    try:
        for spare in range(6):
            resource.setrlimit(resource.RLIMIT_NOFILE, (held + 1 + spare, hard))
            try:
                engine = await RocksEngine.open(tmp_path / "data")
            except Failure as failure:
                refusals.append(failure)
            else:
                await engine.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(held)
    assert {failure.kind for failure in refusals} == {Kind.UNAVAILABLE}
    engine = await RocksEngine.open(tmp_path / "data")
    assert await engine.store(1).read(lambda view: view.get(b"k")) == b"v"
    await engine.close()


async def test_a_disk_that_does_not_tell_its_room_holds_up_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await RocksEngine.open(tmp_path / "data")

    def broken(path: object) -> os.statvfs_result:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", broken)
    await engine.store(1).write(lambda txn: txn.put(b"k", b"v"))
    await engine.close()
    directory = DataDirectory.claim(tmp_path / "data")
    assert directory.free_bytes() > 0 and directory.default_reserve_bytes() > 0
    directory.release()


@pytest.mark.parametrize("soft", [64, 256, 1024, 4096, 20_000, 1_000_000, resource.RLIM_INFINITY])
def test_storage_has_its_share_before_connections(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, soft))
    tables, connections = file_descriptors.for_tables(), file_descriptors.for_connections()
    assert tables == -1 or tables >= 64
    assert connections >= 16
    if soft >= 256:
        left = soft - connections
        assert left >= (tables if tables > 0 else 8000) + 128


def test_the_limit_is_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    present = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda what: tuple(present))
    monkeypatch.setattr(resource, "setrlimit", lambda what, given: present.__setitem__(slice(None), list(given)))
    assert file_descriptors.raise_limit() == 4096
    present[:] = [1024, resource.RLIM_INFINITY]
    assert file_descriptors.raise_limit() == 65_536
    present[:] = [100_000, 200_000]
    assert file_descriptors.raise_limit() == 100_000

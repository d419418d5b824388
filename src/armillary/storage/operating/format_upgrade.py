"""Upgrades of a data directory's format in place. The state before it is kept as a checkpoint inside the directory,
made of links to the engine's files, until the upgrade is committed or rolled back.

    before-upgrade/FORMAT   the former format; written last, so that a checkpoint with it is complete
    before-upgrade/rocks/   the engine's files as they were

Table files never change, so a link is enough for them. Logs and manifests are written on: they are copied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from armillary.errors import Failure, Kind, bad_request
from armillary.storage.directory import FORMAT_VERSION, DataDirectory, format_of, sync_directory, write_format
from armillary.storage.private import Permissions, make_directory, open_file

KEPT: Final = "before-upgrade"
_ENGINE, _FORMAT, _TABLE = "rocks", "FORMAT", ".sst"


class Formats(NamedTuple):
    present: int
    former: int | None  # of the checkpoint that is kept; None: there is none


def formats_of(path: Path) -> Formats:
    """Of a data directory that this version can read."""
    kept = path / KEPT / _FORMAT
    return Formats(format_of(path / _FORMAT), format_of(kept) if kept.exists() else None)


def keep_former(path: Path, permissions: Permissions = "private") -> int:
    """Make the checkpoint of a directory whose format is older. Returns its size. Nothing else may have it open."""
    present, former = formats_of(path)
    if former is not None:
        raise bad_request(
            f"An upgrade from format {former} waits for its end: `armillary upgrade {path} --commit` removes what is "
            "kept of it, --rollback goes back to it."
        )
    if present == FORMAT_VERSION:
        raise bad_request(f"The data directory has format {present} already, which is the newest.")
    directory = DataDirectory.claim(path, permissions, is_upgrading=False)
    try:
        kept = path / KEPT
        shutil.rmtree(kept, ignore_errors=True)  # of an attempt that was interrupted
        make_directory(kept)
        make_directory(kept / _ENGINE)
        size_bytes = 0
        for file in sorted(directory.engine_path.iterdir()):
            if not file.is_file():
                continue
            if file.suffix == _TABLE:
                os.link(file, kept / _ENGINE / file.name)
            else:
                _copy(file, kept / _ENGINE / file.name)
            size_bytes += file.stat().st_size
        sync_directory(kept / _ENGINE)
        write_format(kept, present)
        return size_bytes
    except OSError as error:
        shutil.rmtree(path / KEPT, ignore_errors=True)
        raise Failure(
            Kind.UNAVAILABLE,
            f"The state before the upgrade cannot be kept: {error.strerror}. Nothing was changed.",
        ) from None
    finally:
        directory.release()


def _copy(file: Path, place: Path) -> None:
    """Durable when it returns."""
    with file.open("rb") as source, open_file(place, "xb") as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        os.fsync(copy.fileno())


def commit(path: Path, permissions: Permissions = "private") -> int:
    """Remove the checkpoint. Returns the format that it had."""
    former = _former(path)
    directory = DataDirectory.claim(path, permissions)
    try:
        (path / KEPT / _FORMAT).unlink()  # first: what is left without it is no checkpoint
        shutil.rmtree(path / KEPT)
    finally:
        directory.release()
    return former


def roll_back(path: Path, permissions: Permissions = "private") -> int:
    """Put the checkpoint back in its place. What was written since is lost. Returns the format.

    A stop at any moment leaves the directory whole: the engine's files are exchanged as `DataDirectory` does it, and
    the format is written after them, so that no older program opens what it cannot read.
    """
    former = _former(path)
    directory = DataDirectory.claim(path, permissions)
    try:
        kept = path / KEPT / _ENGINE
        if kept.exists():
            shutil.rmtree(directory.incoming_path, ignore_errors=True)
            os.rename(kept, directory.incoming_path)
            directory.exchange_engine()
        elif directory.incoming_path.exists():  # an attempt was interrupted between the two
            directory.exchange_engine()
        write_format(path, former)
        shutil.rmtree(path / KEPT)
    finally:
        directory.release()
    return former


def _former(path: Path) -> int:
    former = formats_of(path).former
    if former is None:
        raise bad_request(f"No upgrade of {path} waits for its end.")
    return former

"""A data directory: its format version, the lock that keeps a second process out, and the free space on its disk. The
database files inside are left to the engine.

    FORMAT         "armillary 3": which layout of keys and files this directory has
    LOCK           held (flock) by the owning process, and naming it
    rocks/         the engine's own files
    load/          table files that are being written for bulk loading; leftovers are removed at opening
    checkpoints/   complete data directories, made of links to the engine's files, for copying;
                   leftovers are removed at opening
    incoming/      the engine's files of another node, as far as they have arrived; kept at opening
    before-upgrade/  the state before an upgrade of the format (`operating/format_upgrade.py`)
    rocks.former/  the engine's files that arrived ones take the place of, while they do
    processes/K/   where the server has several processes: the data directory of each but the first, which has this one
    logs/N/        the data directory of the replica of log N of a cluster; this one has that of log 0

Other modules keep small private files here (`write_private`): the development certificate and its key, and what the
control commands need to find the server.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, Self

from armillary.errors import Failure, Kind
from armillary.limits import FREE_DISK_BYTES_MAX, FREE_DISK_BYTES_MIN, FREE_DISK_SHARE
from armillary.storage.private import Permissions, claim_directory, make_directory, open_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# 2: the keys of the change log contain the item's rid; shapes and tuples have terms.
# 3: heads of partitions name the generation of their path coverage. Heads of 2 name none: it is not valid.
FORMAT_VERSION: Final = 3
FORMATS_READ: Final = (2, FORMAT_VERSION)
_FORMAT, _FORMAT_NEW, _LOCK, _ENGINE, _LOAD = "FORMAT", "FORMAT.new", "LOCK", "rocks", "load"
_CHECKPOINTS: Final = "checkpoints"
_INCOMING, _FORMER = "incoming", "rocks.former"
_PROCESSES: Final = "processes"
_LOGS, _LEFT = "logs", ".left"
_PRODUCT: Final = "armillary"
_log = logging.getLogger(__name__)

# Whose directory it is: of a server with one process, of the first of several, or of another one of these.
IN_USE: Final = {"is_in_use": True}  # the details of a refusal
Owner = Literal["single", "first", "further"]


class ReplicaRefused(Failure):
    """A data directory that must not be opened as a single server's."""

    def __init__(self) -> None:
        super().__init__(
            Kind.BAD_REQUEST,
            "The data directory is a replica of a cluster: written to alone, it would differ from the others. Serve it "
            "as a node of its cluster, or make it a single server's with `armillary cluster leave`.",
        )


class DataDirectory:
    """A directory that this process owns until `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self._path = path
        self._lock = lock
        self.engine_path: Final = path / _ENGINE
        self.load_path: Final = path / _LOAD
        self.incoming_path: Final = path / _INCOMING

    @classmethod
    def claim(
        cls,
        path: Path,
        permissions: Permissions = "private",
        *,
        is_upgrading: bool = True,
        owner: Owner = "single",
        server: int | None = None,
    ) -> Self:
        """Create or lock the directory, or refuse with a Failure that says what to do. `is_upgrading`: an older format
        is replaced by the newest. `owner`: a directory with partitions of other processes, or in that of another, is
        refused unless it is claimed as one: alone it would seem to have lost them. `server`: the process that is to be
        stopped to free the directory, where it is not this one."""
        try:
            if path.exists():
                _refuse_strange(path)  # before its permissions are narrowed
                _refuse_divided(path, owner)
            claim_directory(path, "data directory", permissions)
            _refuse_strange(path)
            lock = _take_lock(path / _LOCK, server or os.getpid())
        except OSError as error:
            raise unusable(error) from error
        try:
            _refuse_strange(path)  # again: another process may have created it while we waited for the lock
            if not (path / _FORMAT).exists():
                write_format(path)
            present = format_of(path / _FORMAT)
            if is_upgrading and present != FORMAT_VERSION:
                _log.warning("the data directory is upgraded from format %d to %d", present, FORMAT_VERSION)
                write_format(path)  # from here on older versions refuse it: they cannot read what is written next
            _settle_exchange(path)
            for left_over in (path / _LOAD).glob("*"):
                left_over.unlink()
            for checkpoint in (path / _CHECKPOINTS).glob("*"):
                shutil.rmtree(checkpoint)
        except OSError as error:
            os.close(lock)
            raise unusable(error) from error
        except Failure:
            os.close(lock)
            raise
        return cls(path, lock)

    def release(self) -> None:
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)  # the file stays: removing it would let two processes lock two files
            os.close(self._lock)
            self._lock = -1

    def make_checkpoint(self, fill: Callable[[Path], None]) -> Path:
        """A data directory inside this one; `fill` puts the engine's files at the given path."""
        parent = self._path / _CHECKPOINTS
        make_directory(parent)
        made = Path(tempfile.mkdtemp(dir=parent, prefix=""))
        try:
            fill(made / _ENGINE)
            write_format(made)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        return made

    def remove_checkpoint(self, name: str) -> None:
        """A missing one is ignored."""
        if name in ("", ".", "..") or Path(name).name != name:
            raise ValueError("a checkpoint has a plain name")
        shutil.rmtree(self._path / _CHECKPOINTS / name, ignore_errors=True)

    def exchange_engine(self) -> None:
        """Put the files that have arrived in the place of the engine's, which are removed. Nothing has either open. A
        stop at any moment leaves one of them whole, in its place after the next opening."""
        former = self._path / _FORMER
        if self.engine_path.exists():
            os.rename(self.engine_path, former)
            sync_directory(self._path)
        os.rename(self.incoming_path, self.engine_path)
        sync_directory(self._path)
        shutil.rmtree(former, ignore_errors=True)

    def free_bytes(self) -> int:
        """Free space on the disk; unlimited if the system does not report it, so that a write fails by itself."""
        try:
            state = os.statvfs(self._path)
        except OSError:
            return sys.maxsize
        return state.f_bavail * state.f_frsize

    def size_bytes(self) -> int:
        """Of the disk; 0 if the system does not report it."""
        try:
            state = os.statvfs(self._path)
        except OSError:
            return 0
        return state.f_blocks * state.f_frsize

    def default_reserve_bytes(self) -> int:
        """The space kept free so that accepted writes can always be flushed and compacted."""
        try:
            state = os.statvfs(self._path)
        except OSError:
            return FREE_DISK_BYTES_MIN
        share = int(state.f_blocks * state.f_frsize * FREE_DISK_SHARE)
        return max(FREE_DISK_BYTES_MIN, min(FREE_DISK_BYTES_MAX, share))

    def log_bytes(self) -> int:
        """How much write-ahead log the engine would have to replay and rewrite if it were opened now."""
        try:
            return sum(file.stat().st_size for file in self.engine_path.glob("*.log"))
        except OSError:  # a log file was deleted meanwhile
            return 0


def write_private(file: Path, content: bytes) -> None:
    """Write a file atomically, readable for its owner alone from the first byte on."""
    make_directory(file.parent, parents=True)
    handle, unfinished = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # made with mode 0600
    try:
        with os.fdopen(handle, "wb") as stream:
            if hasattr(os, "fchmod"):
                os.fchmod(handle, 0o600)  # a umask may have removed rights of the owner
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, file)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _refuse_strange(path: Path) -> None:
    names = set(os.listdir(path))
    if names and _FORMAT not in names and names - {_LOCK, _FORMAT_NEW}:
        raise Failure(
            Kind.BAD_REQUEST,
            "The data directory is not empty and was not made by Armillary; nothing in it was touched. "
            "Name an empty or new directory.",
        )


def process_directory(path: Path, number: int) -> Path:
    """The data directory of a process but the first, in that of the first."""
    return path / _PROCESSES / str(number)


def process_directories(path: Path) -> dict[int, Path]:
    """Those that there are, by the numbers of the processes."""
    return _numbered(path / _PROCESSES)


def log_directory(path: Path, number: int) -> Path:
    """The data directory of the replica of a log but log 0, in the one that has log 0's."""
    return path / _LOGS / str(number)


def log_directories(path: Path) -> dict[int, Path]:
    """Those that there are, by the numbers of the logs."""
    return _numbered(path / _LOGS)


def remove_log_directory(path: Path, number: int) -> None:
    """Remove the replica of a log, which nothing has open. A stop at any moment leaves it whole, or leaves what
    `remove_left_over_logs` removes."""
    present = log_directory(path, number)
    left = present.with_suffix(_LEFT)
    if present.exists():
        shutil.rmtree(left, ignore_errors=True)
        os.rename(present, left)
        sync_directory(present.parent)
    shutil.rmtree(left, ignore_errors=True)


def remove_left_over_logs(path: Path) -> None:
    for left in (path / _LOGS).glob(f"*{_LEFT}"):
        shutil.rmtree(left, ignore_errors=True)


def _numbered(path: Path) -> dict[int, Path]:
    try:
        found = [each for each in path.iterdir() if each.name.isascii() and each.name.isdigit()]
    except OSError:
        return {}
    return {int(each.name): each for each in sorted(found, key=lambda each: int(each.name))}


def _refuse_divided(path: Path, owner: Owner) -> None:
    numbers = process_directories(path)
    if numbers and owner == "single":
        raise Failure(
            Kind.BAD_REQUEST,
            f"The data directory holds the partitions of {max(numbers) + 1} processes. Serve it with --processes "
            f"{max(numbers) + 1}, or have one process hold them: `armillary processes {path} --count 1`.",
        )
    resolved = path.resolve()
    if owner != "further" and resolved.parent.name == _PROCESSES and (resolved.parent.parent / _FORMAT).exists():
        raise Failure(
            Kind.BAD_REQUEST,
            "The directory is of one process of a server with several, in the server's data directory. Name the data "
            "directory itself.",
        )


def _take_lock(path: Path, server: int) -> int:
    if fcntl is None:
        raise Failure(
            Kind.UNSUPPORTED,
            "This system has no locks of files (flock): two servers could write to one data directory. Use --memory.",
        )
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        name = f"process {owner}" if owner.isdigit() else "another process"
        raise Failure(
            Kind.UNAVAILABLE,
            f"The data directory is in use by {name}. Stop that process, or name another directory.",
            details=IN_USE,
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % server, 0)
    return lock


def write_format(path: Path, version: int = FORMAT_VERSION) -> None:
    """Written atomically, also if the machine stops."""
    new = path / _FORMAT_NEW
    with open_file(new, "wb") as file:
        file.write(f"{_PRODUCT} {version}\n".encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
    new.rename(path / _FORMAT)
    for directory in (path, path.parent):
        sync_directory(directory)


def _settle_exchange(path: Path) -> None:
    """End an exchange of the engine's files that was interrupted: forward if the new ones are in place, else back."""
    former = path / _FORMER
    if not former.exists():
        return
    if (path / _ENGINE).exists():
        shutil.rmtree(former)
    else:
        os.rename(former, path / _ENGINE)
        sync_directory(path)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def format_of(path: Path) -> int:
    """The format that a FORMAT file names, if this version can read it."""
    product, _, version = path.read_text("ascii", "replace").strip().partition(" ")
    if product != _PRODUCT or not version.isdigit():
        raise Failure(
            Kind.CORRUPT,
            "The data directory's FORMAT file is not readable. Restore the directory from a backup, or name another.",
        )
    if int(version) > FORMAT_VERSION:
        raise Failure(
            Kind.UNSUPPORTED,
            f"The data directory has format {version}, which a newer version of Armillary wrote; this one reads "
            f"formats {FORMATS_READ[0]} to {FORMAT_VERSION}. Use the newer version, or name another directory.",
        )
    if int(version) not in FORMATS_READ:
        raise Failure(
            Kind.UNSUPPORTED,
            f"The data directory has format {version}; this version of Armillary reads formats {FORMATS_READ[0]} to "
            f"{FORMAT_VERSION}. Use the version of Armillary that wrote it, or name another directory.",
        )
    return int(version)


def unusable(error: OSError) -> Failure:
    reason = error.strerror or "unknown reason"
    return Failure(
        Kind.UNAVAILABLE,
        f"The data directory cannot be used: {reason}. Check its permissions and its disk, or name another.",
    )

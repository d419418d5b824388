"""A directory of backups. Every file of a backed-up data directory is kept once, under the SHA-256 of what it holds; a
backup is a list of names and digests. So a backup adds only what is new since the one before, and each can be restored,
verified and removed by itself.

    BACKUP          "armillary backup 1"
    files/<digest>  what was copied
    000001.json     a backup: when it was taken, and its files

Tables never change once they are written: one that the last backup has, with the same number, size, inode and time, is
not even read again. A backup counts from the moment its list is there, which is written last.

A backup may come from another machine, so nothing in a list is believed: paths have the form that backups give them,
digests are digests, and files are plain files. A list that says otherwise is refused before anything is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from armillary.errors import Failure, Kind, bad_request
from armillary.storage.private import Permissions, claim_directory, make_directory, open_file, read_regular

_FORMAT: Final = "FORMAT"  # of a data directory
# In the data directory, and in those of further processes inside of it.
_is_path = re.compile(
    r"(?:processes/[1-9][0-9]{0,3}/)?(?:FORMAT|rocks/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199})", re.ASCII
).fullmatch
_is_digest = re.compile(r"[0-9a-f]{64}", re.ASCII).fullmatch
_is_moment = re.compile(r"[0-9T:.+-]{1,40}Z?", re.ASCII).fullmatch
_is_unfinished = re.compile(r"\.[A-Za-z0-9_]{1,40}", re.ASCII).fullmatch  # a copy that was interrupted
_NUMBER_MAX: Final = 2**63
_MARK, _MARK_TEXT, _FILES = "BACKUP", "armillary backup 1\n", "files"
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a backup."""

    path: str
    size_bytes: int
    digest: str
    inode: int  # of the file that it was copied from
    changed_ns: int

    def __post_init__(self) -> None:
        """ValueError for what no backup has."""
        if type(self.path) is not str or not _is_path(self.path):
            raise ValueError("the path of a file leads out of the data directory")
        if type(self.digest) is not str or not _is_digest(self.digest):
            raise ValueError("a digest is none")
        _check_counts(self.size_bytes, self.inode, self.changed_ns)


@dataclass(frozen=True, slots=True)
class Backup:
    number: int
    taken: str
    entries: tuple[Entry, ...]
    copied_bytes: int  # that were new

    def __post_init__(self) -> None:
        """ValueError for what no backup has."""
        _check_counts(self.number, self.copied_bytes)
        if type(self.taken) is not str or not _is_moment(self.taken):
            raise ValueError("the time is none")
        paths = {entry.path for entry in self.entries}
        if len(paths) != len(self.entries) or _FORMAT not in paths:
            raise ValueError("a file is named twice, or the one that makes it a data directory is missing")

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)


class BackupDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = path / _FILES

    @classmethod
    def make(cls, path: Path, permissions: Permissions = "private") -> BackupDirectory:
        """Begin one, or go on with one that is there."""
        try:
            if path.exists() and any(path.iterdir()) and not (path / _MARK).exists():
                raise bad_request(f"{path} is not empty and holds no backups; nothing in it was touched.")
            claim_directory(path, "directory of backups", permissions)
            if not (path / _MARK).exists():
                _write_whole(path / _MARK, _MARK_TEXT.encode())
            make_directory(path / _FILES)
        except OSError as error:
            raise bad_request(f"Backups cannot be kept in {path}: {error.strerror}.") from None
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> BackupDirectory:
        try:
            mark = (path / _MARK).read_text("ascii")
        except (OSError, ValueError):
            raise bad_request(f"There are no backups in {path}.") from None
        if mark != _MARK_TEXT:
            raise bad_request(f"The backups in {path} were made by another version of Armillary.")
        if (path / _FILES).is_symlink():
            raise bad_request(f"{path / _FILES} is a link. A directory of backups holds its files itself.")
        return cls(path)

    @property
    def backups(self) -> list[Backup]:
        return [_read(file) for file in sorted(self.path.glob("[0-9]*.json"))]

    def find(self, number: int | None) -> Backup:
        """The last one, unless it has a number."""
        found = [each for each in self.backups if number is None or each.number == number]
        if not found:
            what = "no backup" if number is None else f"no backup {number}"
            raise Failure(Kind.NOT_FOUND, f"There is {what} in {self.path}.")
        return found[-1]

    # Taking.

    def add(self, source: Path, taken: str) -> Backup:
        """Copy what is new in a directory that does not change meanwhile."""
        try:
            return self._add(source, taken)
        except OSError as error:
            raise Failure(
                Kind.UNAVAILABLE, f"The backup could not be completed, and does not count: {error.strerror}."
            ) from None

    def _add(self, source: Path, taken: str) -> Backup:
        former = self.backups
        known = {_identity(entry): entry for entry in former[-1].entries} if former else {}
        entries, copied_bytes = [], 0
        for file in sorted(each for each in source.rglob("*") if each.is_file() and not each.is_symlink()):
            state = file.stat()
            path = str(file.relative_to(source))
            entry = known.get((path, state.st_size, state.st_ino, state.st_mtime_ns)) if file.suffix == ".sst" else None
            if entry is None or not (self._files / entry.digest).exists():
                digest = self._keep(file)
                entry = Entry(path, state.st_size, digest, state.st_ino, state.st_mtime_ns)
                copied_bytes += state.st_size
            entries.append(entry)
        number = former[-1].number + 1 if former else 1
        backup = Backup(number, taken, tuple(entries), copied_bytes)
        _sync(self._files)
        _write_whole(self.path / f"{number:06}.json", json.dumps(asdict(backup), indent=1).encode())
        return backup

    def _keep(self, file: Path) -> str:
        """A copy under its digest, durable."""
        digest = hashlib.sha256()
        handle, unfinished = tempfile.mkstemp(dir=self._files, prefix=".")
        try:
            with os.fdopen(handle, "wb") as target, read_regular(file) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            os.replace(unfinished, self._files / digest.hexdigest())
        except OSError:
            Path(unfinished).unlink(missing_ok=True)
            raise
        return digest.hexdigest()

    # Bringing back.

    def damages(self, backup: Backup) -> Iterator[str]:
        """Reads every byte. Sentences, each naming something that is wrong."""
        for entry in backup.entries:
            try:
                digest = _digest(self._files / entry.digest)
            except OSError as error:
                yield f"{entry.path} cannot be read: {error.strerror}"
                continue
            if digest != entry.digest:
                yield f"{entry.path} is not what was backed up: its digest is another one"

    def restore(self, backup: Backup, target: Path, permissions: Permissions = "private") -> None:
        """Write a backup to a new data directory."""
        is_there = target.exists()
        if is_there and (not target.is_dir() or any(target.iterdir())):
            raise bad_request(f"{target} is not empty. Name a new directory.")
        try:
            claim_directory(target, "directory to restore to", permissions)
            self._restore(backup, target)
        except OSError as error:
            _remove(target, but_itself=is_there)
            raise bad_request(f"The backup cannot be restored to {target}: {error.strerror}.") from None
        except BaseException:
            _remove(target, but_itself=is_there)
            raise

    def _restore(self, backup: Backup, target: Path) -> None:
        # FORMAT, which makes it a data directory, comes last: an incomplete one cannot be served. That of the whole is
        # after those of further processes.
        for entry in sorted(backup.entries, key=lambda each: (each.path == _FORMAT, each.path.endswith(_FORMAT))):
            file = _place(target, entry)
            if self._copy(entry, file) != entry.digest:
                raise Failure(Kind.CORRUPT, f"{entry.path} is not what was backed up. Verify the other backups.")
        for directory in (target, *(each for each in target.rglob("*") if each.is_dir())):
            _sync(directory)

    def _copy(self, entry: Entry, file: Path) -> str:
        """To a file that is not there yet. Returns the digest of what was copied."""
        digest = hashlib.sha256()
        with read_regular(self._files / entry.digest) as stream, open_file(file, "xb") as target:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        return digest.hexdigest()

    @contextmanager
    def opened(self, backup: Backup) -> Iterator[Path]:
        """A data directory for a while, for verification: tables are hard links, since they are never changed."""
        with tempfile.TemporaryDirectory(dir=self.path, prefix=".verify-") as name:
            for entry in backup.entries:
                file = _place(Path(name), entry)
                if file.suffix == ".sst":
                    try:
                        os.link(self._files / entry.digest, file, follow_symlinks=False)
                        continue
                    except OSError:  # a file system without links
                        pass
                self._copy(entry, file)
            yield Path(name)

    def prune(self, keep: int) -> tuple[int, int]:
        """Remove all but the last ones. Returns how many backups and how many bytes that were."""
        if keep < 1:
            raise bad_request("At least one backup stays: --keep 1.")
        backups = self.backups
        for backup in backups[:-keep]:
            (self.path / f"{backup.number:06}.json").unlink()
        needed = {entry.digest for backup in backups[-keep:] for entry in backup.entries}
        freed_bytes = 0
        for file in self._files.iterdir():
            if file.name not in needed and (_is_digest(file.name) or _is_unfinished(file.name)):
                freed_bytes += file.lstat().st_size
                file.unlink()
        return len(backups[:-keep]), freed_bytes


def _check_counts(*numbers: int) -> None:
    if not all(type(each) is int and 0 <= each < _NUMBER_MAX for each in numbers):
        raise ValueError("a number is none")


def _place(directory: Path, entry: Entry) -> Path:
    """Where a file of a backup goes in a data directory; the directory around it is made."""
    file = directory / entry.path
    if file.parent != directory:
        make_directory(file.parent, parents=True)
    return file


def _remove(directory: Path, *, but_itself: bool) -> None:
    """What was begun there. `but_itself`: it was there before, empty."""
    if not but_itself:
        shutil.rmtree(directory, ignore_errors=True)
        return
    for each in directory.iterdir():
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def _identity(entry: Entry) -> tuple[str, int, int, int]:
    return entry.path, entry.size_bytes, entry.inode, entry.changed_ns


def _read(file: Path) -> Backup:
    try:
        with read_regular(file) as stream:
            content: dict[str, Any] = json.loads(stream.read())
        backup = Backup(**{**content, "entries": tuple(Entry(**each) for each in content["entries"])})
    except OSError as error:
        raise bad_request(f"The list of files in {file} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = error if type(error) is ValueError else "it does not have the form of one"
        raise bad_request(f"The list of files in {file} is not one that a backup has written: {reason}.") from None
    if file.name != f"{backup.number:06}.json":
        raise bad_request(f"The list of files in {file} is that of backup {backup.number}.")
    return backup


def _digest(file: Path) -> str:
    with read_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_whole(file: Path, content: bytes) -> None:
    unfinished = file.with_name(f".{file.name}")
    unfinished.unlink(missing_ok=True)
    with open_file(unfinished, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(unfinished, file)
    _sync(file.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

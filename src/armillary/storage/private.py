"""Private files and directories: mode 0700 and 0600 whatever the umask, from the first byte on. Everything that the
product keeps on disk (data directories, backups, exports, snapshot files, keys) is created by these functions; the
storage engine creates its own files, under the umask that `private_umask` sets for the process.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final, Literal

from armillary.clock import SystemClock
from armillary.errors import Failure, Kind, bad_request

Permissions = Literal["private", "inherited"]  # inherited: permissions are neither changed nor refused

OTHERS: Final = 0o077  # permissions of users that are not the owner
_DIRECTORY, _FILE = 0o700, 0o600
_SETTING: Final = "--data-permissions inherited (ARMILLARY_DATA_PERMISSIONS for commands)"
_HAS_USERS: Final = hasattr(os, "geteuid")  # not on Windows, where files inherit the rights of their directory
_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0)
_AS_BYTES: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FLAGS: Final = {
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS,
    "wb": os.O_WRONLY | os.O_CREAT,  # truncated after its permissions are narrowed
    "r+b": os.O_RDWR,
}
log = logging.getLogger(__name__)


@contextmanager
def private_umask() -> Iterator[None]:
    """Meanwhile files created by this process and its libraries are for its user alone."""
    former = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(former)


def make_directory(path: Path, *, parents: bool = False) -> None:
    """Create a directory, and with `parents` the missing ones above it. An existing one is left as it is."""
    if parents and not path.parent.exists():
        make_directory(path.parent, parents=True)
    try:
        path.mkdir(mode=_DIRECTORY)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        path.chmod(_DIRECTORY)  # a umask may have removed rights of the owner


def open_file(path: Path, mode: Literal["xb", "wb", "r+b"]) -> BinaryIO:
    """`xb`: a new file, refused if a link is in its place. `wb` and `r+b` narrow the permissions of an existing file
    before anything is written to it; pipes and devices are left as they are."""
    handle = os.open(path, _FLAGS[mode] | _AS_BYTES, _FILE)
    try:
        state = os.fstat(handle)
        if stat.S_ISREG(state.st_mode):
            if _HAS_USERS and stat.S_IMODE(state.st_mode) != _FILE and state.st_uid == os.geteuid():
                os.fchmod(handle, _FILE)
            if mode == "wb":
                os.ftruncate(handle, 0)
        return os.fdopen(handle, "r+b" if mode == "r+b" else "wb")
    except BaseException:
        os.close(handle)
        raise


@contextmanager
def whole_file(file: Path, what: str) -> Iterator[BinaryIO]:
    """A file that appears when it is complete and durable, or not at all. `what` names it in messages."""
    if file.exists() and not file.is_file():  # a device, say, which would not be one any more
        raise bad_request(f"The {what} {file} cannot be written: that is no file.")
    unfinished = file.with_name(f".{file.name}.{SystemClock().random_bytes(4).hex()}")
    try:
        with open_file(unfinished, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, file)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise bad_request(f"The {what} {file} cannot be written: {error.strerror}.") from None
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def claim_directory(path: Path, what: str, permissions: Permissions = "private") -> None:
    """Make a directory and everything in it private. One that belongs to another user, or cannot be made private, is
    refused. `what` names it in messages: "data directory"."""
    make_directory(path, parents=True)
    if permissions == "inherited" or not _HAS_USERS:
        return
    state = path.stat()
    if state.st_uid != os.geteuid():
        raise Failure(
            Kind.FORBIDDEN,
            f"The {what} belongs to another user, who could change what is kept in it. Run as that user, change its "
            f"owner, or name another one. Where that cannot be done, as with some volumes of containers, {_SETTING} "
            "takes it as it is.",
        )
    if state.st_mode & OTHERS:
        _narrow(path, _DIRECTORY)
        if path.stat().st_mode & OTHERS:
            raise Failure(
                Kind.FORBIDDEN,
                f"The {what} is open to other users, and its file system does not let that be changed. Name another "
                f"one; where there is none, {_SETTING} takes it as it is.",
            )
        log.warning(
            "the %s was open to other users (mode %04o) and is for its owner alone now",
            what,
            stat.S_IMODE(state.st_mode),
        )
    for parent, directories, files in os.walk(path):
        for names, mode in ((directories, _DIRECTORY), (files, _FILE)):
            for name in names:
                each = Path(parent, name)
                if (found := each.lstat().st_mode) & OTHERS and not stat.S_ISLNK(found):
                    _narrow(each, mode)


def _narrow(path: Path, mode: int) -> None:
    try:
        path.chmod(mode)
    except (PermissionError, FileNotFoundError):
        pass  # deleted meanwhile, or protected by its directory


def read_regular(path: Path) -> BufferedReader:
    """Open a file for reading, refusing links, pipes and devices, which may be in a directory that another program
    filled."""
    handle = os.open(path, os.O_RDONLY | _NO_LINKS | _AS_BYTES | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "it is not a plain file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise

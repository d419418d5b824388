"""Translation of errors of RocksDB and of the operating system into Failures.

Only what RocksDB reports as corruption counts as damage. A file that cannot be opened for lack of descriptors, memory
or permission says nothing about its content: the same request may succeed later.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Any, Final, NamedTuple

import rocksdict

from armillary.errors import Failure, Kind
from armillary.storage.engine import Receiver

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SCARCE: Final = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR, errno.EBUSY),
    *(errno.ENOLCK, errno.ETIMEDOUT, errno.ETXTBSY),
)
_BARRED: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR)
_SILENT: Final = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.ENOTCONN)
# RocksDB ends its messages about files with the system's text; the binding adds the number if the error is its own.
_BY_TEXT: Final = {os.strerror(number): number for number in (*_FULL, *_SCARCE, *_BARRED, *_SILENT)}
_NUMBERED: Final = re.compile(r"\(os error ([0-9]{1,4})\)")
_WORDS: Final = re.compile(": (" + "|".join(map(re.escape, _BY_TEXT)) + r")(?:$|\n|  |: )")
_DAMAGED: Final = ("checksum mismatch", "No such file")
_UNANSWERED: Final = (
    *("IO error", "Operation aborted", "Operation timed out", "Operation failed", "Shutdown", "Incomplete"),
    *("Invalid argument", "DB instance", "Busy", "Resource busy", "Result incomplete", "Operation expired"),
    *("Not implemented", "Failed to", "Result too large"),
)


def translated(error: BaseException) -> Failure | None:
    """None if the error comes neither from the database nor from the system."""
    text = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        number: int | None = error.errno
    elif type(error) is Exception or isinstance(error, rocksdict.DbClosedError):
        number = _number_in(text)
    else:
        return None
    if number is not None:
        return _of_system(number)
    if text.startswith("Corruption") or any(word in text for word in _DAMAGED):
        return damaged()
    if text.startswith(_UNANSWERED) or isinstance(error, OSError):
        return _silent()
    return None


def _number_in(text: str) -> int | None:
    found = _NUMBERED.search(text)
    if found is not None:
        return int(found[1])
    named = _WORDS.search(text)
    return _BY_TEXT[named[1]] if named is not None else None


def _of_system(number: int) -> Failure:
    if number in _FULL:
        return Failure(
            Kind.STORAGE_FULL, "The disk of the data directory is full. Free some room; no restart is needed."
        )
    if number in _SCARCE:
        return Failure(
            Kind.UNAVAILABLE,
            "The server has too few file descriptors or too little memory for its storage at the moment. Nothing is "
            "damaged: try again, with fewer connections or a higher limit of open files.",
        )
    if number in _BARRED:
        return Failure(
            Kind.UNAVAILABLE,
            "Files of the data directory may not be read or written by this server. Check who owns them and how the "
            "disk is mounted, then try again.",
        )
    if number == errno.ENOENT:
        return damaged()
    return _silent()


def damaged() -> Failure:
    return Failure(
        Kind.CORRUPT,
        "Stored data is damaged: a checksum is wrong or a file is missing. Check the disk and restore a backup.",
    )


def _silent() -> Failure:
    return Failure(
        Kind.UNAVAILABLE, "The storage of the data directory does not answer. Check the disk, then try again."
    )


class Answer(NamedTuple):
    future: Receiver[Any]
    result: Any
    error: BaseException | None


def set_error(future: Receiver[Any], error: BaseException) -> None:
    if isinstance(error, StopIteration):  # a future cannot carry it
        error = RuntimeError("a transaction function let StopIteration escape")
    future.set_exception(translated(error) or error)


def refuse(answers: list[Answer], failure: Failure) -> None:
    for answer in answers:
        if not answer.future.done():
            answer.future.set_exception(again(failure))


def unknown_outcome(failure: Failure) -> Failure:
    return Failure(
        failure.kind, f"{failure.message} Whether this write was stored is not known: read before writing it again."
    )


def again(failure: Failure) -> Failure:
    """A copy for one more caller: an exception raised in several tasks would collect all their tracebacks."""
    return Failure(failure.kind, failure.message, retry_after_ms=failure.retry_after_ms, details=failure.details)


def no_room() -> Failure:
    return Failure(
        Kind.STORAGE_FULL,
        "The disk of the data directory is nearly full; nothing was stored. Free some room or drop containers; "
        "no restart is needed.",
    )


def closed() -> Failure:
    return Failure(Kind.UNAVAILABLE, "The database is shutting down; connect again once it is running.")

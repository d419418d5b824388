"""Snapshot files: their format, writing them from a snapshot, and reading their frames. A file is a line that names the
product and the version, then frames, each with its kind, length and checksum; the last one carries a digest of all
before it.

    armillary snapshot 1 \\n    kind (1) length (4) crc32 (4) payload    ...    E

| frame  | payload                                                                      |
|--------|------------------------------------------------------------------------------|
| header | JSON: the layout of stores, what it is a snapshot of, when it was taken      |
| record | one resource of the catalog, owners before what they own                     |
| store  | JSON: whose range the pairs that follow are of                               |
| pairs  | keys and values of that store, in order, compressed                          |
| end    | SHA-256 of everything before                                                 |

Files are written and read in parts of bounded size, so that neither a container nor a partition is ever in memory as a
whole. A file that is not whole is refused; no frame is used before its checksum was compared. The caller puts the parts
into a file or sends them; `snapshot_import.py` makes resources of the frames.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final, NamedTuple

import orjson

from armillary import limits
from armillary.account.snapshots.snapshots import Snapshot
from armillary.errors import Failure, bad_request
from armillary.storage.directory import FORMAT_VERSION
from armillary.storage.engine import View

MAGIC: Final = b"armillary snapshot 1\n"
HEADER, RECORD, STORE, PAIRS, END = b"H", b"R", b"S", b"P", b"E"
_KINDS: Final = (HEADER, RECORD, STORE, PAIRS, END)

_FRAME = struct.Struct(">cII")
_PAIR = struct.Struct(">HI")
_DIGEST_BYTES: Final = 32
_COMPRESSION: Final = 1  # half the time of the usual level for a tenth more bytes: measured on items with terms

STORE_END: Final = b"\xff" * 8  # behind every key of a store

Pair = tuple[bytes, bytes]


class Frame(NamedTuple):
    kind: bytes
    payload: bytes


class FrameWriter:
    """Frames as bytes, in order."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def begin(self) -> bytes:
        return self._counted(MAGIC)

    def frame(self, kind: bytes, payload: bytes) -> bytes:
        if len(payload) > limits.SNAPSHOT_FRAME_BYTES_MAX:
            raise ValueError("a frame holds more than its reader takes")
        return self._counted(_FRAME.pack(kind, len(payload), zlib.crc32(payload)) + payload)

    def end(self) -> bytes:
        return self.frame(END, self._digest.digest())

    def _counted(self, written: bytes) -> bytes:
        self._digest.update(written)
        return written


class FrameReader:
    """Bytes as frames, checked."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._rest = b""
        self._has_begun = False
        self.is_complete = False

    def feed(self, received: bytes) -> Iterator[Frame]:
        """The frames that are whole by now."""
        rest = self._rest + received
        at = 0
        if not self._has_begun:
            if not MAGIC.startswith(rest[: len(MAGIC)]):
                raise _foreign(rest[: len(MAGIC)])
            if len(rest) < len(MAGIC):
                self._rest = rest
                return
            self._has_begun = True
            self._digest.update(MAGIC)
            at = len(MAGIC)
        self._rest = b""
        while len(rest) - at >= _FRAME.size:
            kind, size_bytes, checksum = _FRAME.unpack_from(rest, at)
            if kind not in _KINDS or size_bytes > limits.SNAPSHOT_FRAME_BYTES_MAX:
                raise damaged("a frame has no beginning")
            if self.is_complete:
                raise damaged("there is something behind its end")
            end = at + _FRAME.size + size_bytes
            if len(rest) < end:
                break
            payload = rest[at + _FRAME.size : end]
            if zlib.crc32(payload) != checksum:
                raise damaged("a checksum is wrong")
            if kind == END:
                if payload != self._digest.digest():
                    raise damaged("its digest is wrong")
                self.is_complete = True
            self._digest.update(rest[at:end])
            at = end
            yield Frame(kind, payload)
        self._rest = rest[at:]
        if self.is_complete and self._rest:
            raise damaged("there is something behind its end")


def pack_pairs(pairs: Iterable[Pair]) -> bytes:
    parts = []
    for key, value in pairs:
        parts += [_PAIR.pack(len(key), len(value)), key, value]
    return zlib.compress(b"".join(parts), _COMPRESSION)


def unpack_pairs(payload: bytes) -> list[Pair]:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(payload, limits.SNAPSHOT_FRAME_BYTES_MAX)
    except zlib.error:
        raise damaged("a part cannot be decompressed") from None
    if not inflater.eof:
        raise damaged("a part is too large")
    pairs, at = [], 0
    while at < len(plain):
        try:
            key_bytes, value_bytes = _PAIR.unpack_from(plain, at)
        except struct.error:
            raise damaged("a part ends too early") from None
        at += _PAIR.size
        middle, end = at + key_bytes, at + key_bytes + value_bytes
        pairs.append((plain[at:middle], plain[middle:end]))
        at = end
    if at != len(plain):
        raise damaged("a part ends too early")
    return pairs


def damaged(reason: str) -> Failure:
    return bad_request(f"The snapshot is damaged: {reason}. Nothing was restored.")


def _foreign(beginning: bytes) -> Failure:
    product, _, version = MAGIC.rstrip().rpartition(b" ")
    if beginning.startswith(product + b" "):
        known = version.decode("ascii")
        return bad_request(f"The snapshot was made by another version of Armillary: this one reads version {known}.")
    return bad_request("This is no snapshot that Armillary made.")


async def parts(snapshot: Snapshot) -> AsyncIterator[bytes]:
    """The file, part by part. Making one keeps the caller for some milliseconds."""
    writer = FrameWriter()
    header = {"stores": FORMAT_VERSION, "scope": list(snapshot.scope), "taken_s": int(snapshot.taken_s)}
    yield writer.begin() + writer.frame(HEADER, orjson.dumps(header))
    for record in snapshot.records:
        yield writer.frame(RECORD, record.pack())
    for record in snapshot.containers:
        for each in record.container_state.ranges:
            place = {"container": record.rid.hex(), "range": each.id}
            yield writer.frame(STORE, orjson.dumps(place))
            view = snapshot.view(each.store)
            if view is None:
                async for pairs in snapshot.others.pairs(each.store, b"", STORE_END):
                    yield writer.frame(PAIRS, pack_pairs(pairs))
            else:
                for pairs in _portions(view):
                    yield writer.frame(PAIRS, pack_pairs(pairs))
    yield writer.end()


def _portions(view: View) -> Iterator[list[Pair]]:
    portion: list[Pair] = []
    size_bytes = 0
    for key, value in view.scan(b"", STORE_END):
        portion.append((key, value))
        size_bytes += len(key) + len(value)
        if size_bytes >= limits.SNAPSHOT_PART_BYTES or len(portion) >= limits.SNAPSHOT_PART_ENTRIES:
            yield portion
            portion, size_bytes = [], 0
    if portion:
        yield portion

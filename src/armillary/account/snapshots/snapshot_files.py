"""A snapshot as one file: the catalog's records, then each partition's store byte for byte, in parts of bounded size,
so that neither a container nor a partition is ever in memory as a whole. Frames and checksums are
`account/snapshots/file_frames.py`'s, who puts the parts into a file, or asks for them over a wire, is the caller's
business; `snapshot_import.py` reads them.

| frame  | payload                                                                      |
|--------|------------------------------------------------------------------------------|
| header | JSON: the layout of stores, what it is a snapshot of, when it was taken      |
| record | one resource of the catalog, owners before what they own                     |
| store  | JSON: whose range the pairs that follow are of                               |
| pairs  | keys and values of that store, in order, compressed                          |
| end    | SHA-256 of everything before                                                 |
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from armillary import limits
from armillary.account.snapshots.file_frames import HEADER, PAIRS, RECORD, STORE, FrameWriter, Pair, pack_pairs
from armillary.account.snapshots.snapshots import Snapshot
from armillary.storage.directory import FORMAT_VERSION
from armillary.storage.engine import View

STORE_END = b"\xff" * 8  # behind every key of a store


def parts(snapshot: Snapshot) -> Iterator[bytes]:
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
            for pairs in _portions(snapshot.view(each.store)):
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

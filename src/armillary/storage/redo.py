"""Large transactions, written in portions. RocksDB's write holds the interpreter for 0.3 to 0.6 µs a key, so a batch of
200,000 keys would stop every other request for 100 ms. Instead, the writes are first stored as a redo record, in
pieces, then a marker that says that the record is complete, then the keys themselves, portion by portion; the last
portion removes the record. The marker is the commit point: when the database is opened, a record with a marker is
applied again, and pieces without one are removed.

The record is stored after the keys of all stores, under the one store number that is never given out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import rocksdict

from armillary import limits, work
from armillary.storage.overlay import Layer

_PREFIX: Final = b"\xff\xff\xff\xffredo"
_MARKER: Final = _PREFIX + b"\0"  # the number of pieces, and the ranges to clear first
_PIECE: Final = _PREFIX + b"\1"
_END: Final = _PREFIX + b"\2"
_COUNT: Final = struct.Struct("<I")
_DELETED: Final = 0xFFFF_FFFF  # in place of the length of a value

Entries = Sequence[tuple[bytes, bytes | None]]


def batches(layer: Layer, keys_in_order: Iterator[Sequence[bytes]]) -> Iterator[rocksdict.WriteBatch]:
    """The batches to write, one after the other, each short. Making them may give way; the keys come in portions."""
    writes = layer.writes
    pieces: list[Sequence[bytes]] = []
    for keys in _joined(keys_in_order, limits.WRITE_PORTION_KEYS):
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.put(_piece_key(len(pieces)), encoded([(key, writes[key]) for key in keys]))
        pieces.append(keys)
        yield batch
    batch = rocksdict.WriteBatch(raw_mode=True)
    batch.put(_MARKER, _COUNT.pack(len(pieces)) + encoded(layer.cleared))
    yield batch
    batch = rocksdict.WriteBatch(raw_mode=True)
    for low, high in layer.cleared:
        batch.delete_range(low, high)
    for keys in pieces:
        work.spend(5 * len(keys))
        _fill(batch, [(key, writes[key]) for key in keys])
        yield batch
        batch = rocksdict.WriteBatch(raw_mode=True)
    _remove(batch, len(pieces))
    yield batch


def finish(database: rocksdict.Rdict) -> bool:
    """Recovery after a stop: apply a complete redo record, remove an incomplete one. To be called right after the
    database was opened; returns whether there was anything."""
    batch = rocksdict.WriteBatch(raw_mode=True)
    marker = database.get(_MARKER)
    if marker is not None:
        (count,) = _COUNT.unpack_from(marker)
        for low, high in decoded(marker[_COUNT.size :]):
            assert high is not None
            batch.delete_range(low, high)
        for number in range(count):
            piece = database.get(_piece_key(number))
            if piece is None:
                raise Exception("Corruption: a piece of the redo record is missing")  # in RocksDB's form
            _fill(batch, decoded(piece))
        _remove(batch, count)
    else:
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(_END)
        iterator = database.iter(options)
        iterator.seek(_PIECE)
        while (key := iterator.key()) is not None:
            batch.delete(key)
            iterator.next()
        iterator.status()
    if batch.is_empty():
        return False
    database.write(batch)
    database.flush_wal(True)
    return True


def encoded(entries: Entries) -> bytes:
    """The number of entries, the lengths of their keys, of their values, and then all these bytes."""
    keys = [key for key, _ in entries]
    values = [value for _, value in entries]
    lengths = [_DELETED if value is None else len(value) for value in values]
    numbers = struct.pack(f"<{1 + 2 * len(keys)}I", len(keys), *map(len, keys), *lengths)
    return b"".join(chain((numbers,), keys, filter(None, values)))


def decoded(piece: bytes) -> Entries:
    (count,) = _COUNT.unpack_from(piece)
    numbers = struct.unpack_from(f"<{2 * count}I", piece, _COUNT.size)
    at = _COUNT.size * (1 + 2 * count)
    keys = []
    for length in numbers[:count]:
        keys.append(piece[at : at + length])
        at += length
    entries: list[tuple[bytes, bytes | None]] = []
    for key, length in zip(keys, numbers[count:], strict=True):
        if length == _DELETED:
            entries.append((key, None))
        else:
            entries.append((key, piece[at : at + length]))
            at += length
    return entries


def _joined(portions: Iterator[Sequence[bytes]], size: int) -> Iterator[Sequence[bytes]]:
    keys: list[bytes] = []
    for portion in portions:
        keys.extend(portion)
        while len(keys) >= size:
            yield keys[:size]
            del keys[:size]
    if keys:
        yield keys


def _fill(batch: rocksdict.WriteBatch, entries: Entries) -> None:
    put, delete = batch.put, batch.delete
    for key, value in entries:
        if value is None:
            delete(key)
        else:
            put(key, value)


def _remove(batch: rocksdict.WriteBatch, count: int) -> None:
    batch.delete(_MARKER)
    for number in range(count):
        batch.delete(_piece_key(number))


def _piece_key(number: int) -> bytes:
    return _PIECE + number.to_bytes(4, "big")

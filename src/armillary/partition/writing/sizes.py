"""The size of each logical partition: item count and bytes besides its key, updated with every write."""

from __future__ import annotations

import struct
from typing import NamedTuple

_SIZE = struct.Struct(">QQ")


class LogicalSize(NamedTuple):
    item_count: int
    size_bytes: int
    key_text: str  # the partition key of its first item in its header form, e.g. ["LAX"]


def pack_size(size: LogicalSize) -> bytes:
    return _SIZE.pack(size.item_count, size.size_bytes) + size.key_text.encode()


def grown(value: bytes, items_added: int, bytes_added: int) -> tuple[int, int, bytes]:
    """Add to a packed size: the new count and bytes, and the value to store."""
    item_count, size_bytes = _SIZE.unpack_from(value)
    item_count += items_added
    size_bytes += bytes_added
    return item_count, size_bytes, _SIZE.pack(item_count, size_bytes) + value[_SIZE.size :]


def unpack_size(value: bytes) -> LogicalSize:
    item_count, size_bytes = _SIZE.unpack_from(value)
    return LogicalSize(item_count, size_bytes, value[_SIZE.size :].decode())

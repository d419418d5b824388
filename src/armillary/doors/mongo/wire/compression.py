"""OP_COMPRESSED: snappy, zlib, zstd and noop. A message is never inflated beyond the size that it declares."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import cramjam

from armillary.doors.mongo.errors import MalformedMessage

NOOP, SNAPPY, ZLIB, ZSTD = range(4)

# Never compressed: the handshake, and commands with secrets, whose compressed length would reveal something.
NEVER_COMPRESSED: Final = frozenset(
    "hello ismaster saslstart saslcontinue getnonce authenticate createuser updateuser copydb copydbgetnonce "
    "copydbsaslstart".split()
)


class Compressor(NamedTuple):
    name: str
    deflate: Callable[[bytes], bytes]
    inflate: Callable[[bytes, int], bytes]


def _unzip(packed: bytes, size_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(packed, max(size_bytes, 1))  # 0 would stand for any size
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError("there is more of it")
    return plain


def _unsnap(packed: bytes, size_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(packed) != size_bytes:
        raise ValueError("it says another size inside")
    return bytes(cramjam.snappy.decompress_raw(packed, output_len=size_bytes))


def _unzstd(packed: bytes, size_bytes: int) -> bytes:
    plain = bytearray(size_bytes)
    return bytes(memoryview(plain)[: cramjam.zstd.decompress_into(packed, plain)])


_COMPRESSORS: Final = {
    NOOP: Compressor("noop", lambda plain: plain, lambda packed, _: packed),
    SNAPPY: Compressor("snappy", lambda plain: bytes(cramjam.snappy.compress_raw(plain)), _unsnap),
    ZLIB: Compressor("zlib", lambda plain: zlib.compress(plain, 6), _unzip),
    ZSTD: Compressor("zstd", lambda plain: bytes(cramjam.zstd.compress(plain, 6)), _unzstd),
}
_OFFERED: Final = ("snappy", "zlib", "zstd")


def agreed(wanted: Iterable[object]) -> list[str]:
    """Compressors that both sides have, in the client's order."""
    return list(dict.fromkeys([name for name in wanted if isinstance(name, str) and name in _OFFERED]))


def inflate(compressor: int, packed: bytes, size_bytes: int) -> bytes:
    found = _COMPRESSORS.get(compressor)
    if found is None:
        raise MalformedMessage(f"the compressor {compressor} is not known")
    try:
        plain = found.inflate(packed, size_bytes)
    except (ValueError, zlib.error, cramjam.DecompressionError) as error:
        raise MalformedMessage(f"a message compressed with {found.name} cannot be read: {error}") from None
    if len(plain) != size_bytes:
        raise MalformedMessage("a compressed message has not the size that it says")
    return plain


def deflate(compressor: int, plain: bytes) -> bytes:
    return _COMPRESSORS[compressor].deflate(plain)

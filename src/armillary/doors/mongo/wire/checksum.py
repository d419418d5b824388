"""CRC-32C of messages that carry one. No driver sends it unless told to, so it may be slow; what it may take of the
event loop is bounded, and longer messages are trusted as those without a checksum are.
"""

from __future__ import annotations

from typing import Final

from armillary import limits

_POLYNOMIAL: Final = 0x82F63B78


def _table() -> list[int]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (_POLYNOMIAL if remainder & 1 else 0)
        table.append(remainder)
    return table


_TABLE: Final = _table()


def crc32c(content: bytes) -> int:
    table = _TABLE
    remainder = 0xFFFFFFFF
    for byte in content:
        remainder = table[(remainder ^ byte) & 0xFF] ^ (remainder >> 8)
    return remainder ^ 0xFFFFFFFF


def is_right(frame: bytes) -> bool:
    """Whether the last four bytes are the checksum of those before them."""
    if len(frame) > limits.MONGO_CHECKED_BYTES_MAX:
        return True
    return crc32c(frame[:-4]) == int.from_bytes(frame[-4:], "little")

"""Where a change feed stands: an lsn for each stretch of keys, as a token that the client hands back.

Partitions that split or merge keep the lsns of what they hold, so an lsn and the keys it is about stay valid whatever
becomes of the partitions. One lsn for all keys is written as a number; several as bytes, signed and bound to the
container and to the keys that are asked for. Bytes are written in digits too, three for each: Python's client takes
nothing else for a position of the server's.

A position of a part of a range is written as bytes that say which part. Clients have such parts after a merge. When the
range is split again, Python's asks for all of the new ranges from each part's position (azure-cosmos 4.17,
handle_feed_range_gone), and would be told things twice.
"""

from __future__ import annotations

import hmac
import re
from typing import NamedTuple

from armillary import limits
from armillary.errors import Failure, bad_request

_VERSION, _PART_VERSION = 1, 2
_MAC_BYTES = 16
_LSN_BYTES = 8
_LSN = re.compile(r"[0-9]{1,18}")
_BYTES = re.compile(r"(?:[01][0-9][0-9]|2[0-4][0-9]|25[0-5])+")
_DIGITS = 3


class Stretch(NamedTuple):
    low: bytes  # effective keys from here
    high: bytes  # to before here
    lsn: int  # changes up to this were given


class Positions(NamedTuple):
    """Stretches that tile the keys asked for, in the order in which they are to be read: a client that never comes to
    the end of one sees the others too."""

    stretches: tuple[Stretch, ...]

    def encode(self, secret: bytes, container_rid: bytes, *, is_part: bool = False) -> str:
        """`is_part`: of a range; the position is good for other keys too, as far as these are among them."""
        stretches = _joined(sorted(self.stretches))
        low, high = stretches[0].low, stretches[-1].high
        if is_part:
            return _written(secret, container_rid, b"", b"", _part(stretches, low, high))
        if len(stretches) == 1:
            return str(stretches[0].lsn)
        if len(stretches) > limits.CHANGE_STRETCHES_MAX:
            raise bad_request(
                f"A change feed over more than {limits.CHANGE_STRETCHES_MAX} partitions does not fit one position. "
                "Read it by partition key ranges, as clients do."
            )
        parts = [bytes([_VERSION]), _sized(self.stretches[0].low)]
        for each_low, _, lsn in stretches:
            parts += [_sized(each_low), lsn.to_bytes(_LSN_BYTES, "big")]
        return _written(secret, container_rid, low, high, b"".join(parts))


def beginning(low: bytes, high: bytes) -> Positions:
    return Positions((Stretch(low, high, 0),))


def decode(token: str, secret: bytes, container_rid: bytes, low: bytes, high: bytes) -> Positions:
    """The positions behind a token of `Positions.encode` for the same keys, or of a part, as far as these keys are in
    it; BAD_REQUEST for everything else."""
    if _LSN.fullmatch(token):
        return Positions((Stretch(low, high, int(token)),))
    if len(token) > limits.CONTINUATION_BYTES_MAX or not _BYTES.fullmatch(token):
        raise _bad_position()
    raw = bytes([int(token[at : at + _DIGITS]) for at in range(0, len(token), _DIGITS)])
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    is_part = body[:1] == bytes([_PART_VERSION])
    expected = _mac(secret, container_rid, b"", b"", body) if is_part else _mac(secret, container_rid, low, high, body)
    if not hmac.compare_digest(mac, expected) or body[:1] not in (bytes([_VERSION]), bytes([_PART_VERSION])):
        raise _bad_position()
    if not is_part:
        return _parse(body, high, 1)
    part_high, at = _unsized(body, 1)
    stretches = _parse(body, part_high, at).stretches
    cut = [each._replace(low=max(low, each.low), high=min(high, each.high)) for each in stretches]
    return Positions(tuple(each for each in cut if each.low < each.high))


def _part(stretches: list[Stretch], low: bytes, high: bytes) -> bytes:
    parts = [bytes([_PART_VERSION]), _sized(high), _sized(low)]
    for each_low, _, lsn in stretches:
        parts += [_sized(each_low), lsn.to_bytes(_LSN_BYTES, "big")]
    return b"".join(parts)


def _written(secret: bytes, container_rid: bytes, low: bytes, high: bytes, body: bytes) -> str:
    mac = _mac(secret, container_rid, low, high, body)
    return "".join([f"{byte:0{_DIGITS}}" for byte in mac + body])


def _parse(body: bytes, high: bytes, at: int) -> Positions:
    """A body whose signature was checked: it is well-formed because we wrote it."""
    first, at = _unsized(body, at)
    begun: list[tuple[bytes, int]] = []
    while at < len(body):
        low, at = _unsized(body, at)
        begun.append((low, int.from_bytes(body[at : at + _LSN_BYTES], "big")))
        at += _LSN_BYTES
    highs = [low for low, _ in begun[1:]] + [high]
    stretches = [Stretch(low, end, lsn) for (low, lsn), end in zip(begun, highs, strict=True)]
    # The one that is next may begin inside a stretch, where neighbours were joined.
    before = [each for each in stretches if each.high <= first]
    after = [each for each in stretches if each.high > first]
    if after and after[0].low < first:
        before.append(after[0]._replace(high=first))
        after[0] = after[0]._replace(low=first)
    return Positions((*after, *before))


def _joined(stretches: list[Stretch]) -> list[Stretch]:
    """Neighbours with the same lsn as one."""
    joined: list[Stretch] = []
    for each in stretches:
        if joined and joined[-1].lsn == each.lsn:
            joined[-1] = joined[-1]._replace(high=each.high)
        else:
            joined.append(each)
    return joined


def _sized(part: bytes) -> bytes:
    assert len(part) < 256, "an effective key is shorter"
    return bytes([len(part)]) + part


def _unsized(body: bytes, at: int) -> tuple[bytes, int]:
    end = at + 1 + body[at]
    return body[at + 1 : end], end


def _mac(secret: bytes, container_rid: bytes, low: bytes, high: bytes, body: bytes) -> bytes:
    context = _sized(container_rid) + _sized(low) + _sized(high)
    return hmac.digest(secret, b"changes" + context + body, "sha256")[:_MAC_BYTES]


def _bad_position() -> Failure:
    return bad_request(
        "The change feed position in If-None-Match is not one that was given for these keys of this container. Start "
        "again without it."
    )

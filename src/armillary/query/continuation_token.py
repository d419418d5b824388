"""Continuation tokens of queries and read feeds. A token has the position in each range of effective keys that is being
read, the key from which on nothing was read yet, the rows that OFFSET and LIMIT have left, and the state of unfinished
aggregates. Ranges of keys, not partitions, so a token stays valid after a split. It is signed, and bound to its
container and query.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

from armillary import limits
from armillary.errors import Failure, bad_request
from armillary.model.keys import SPACE_HIGH, SPACE_LOW

_VERSION = 3
_MAC_BYTES = 16
_FINGERPRINT_BYTES = 12
_RID_BYTES = 8
_HEAD, _FOOT = '{"token":"', '"}'  # the service's tokens are JSON, and clients look whether it is one of their own
_FORM = _HEAD + "%s" + _FOOT
_NUMBER_BYTES = 5  # 40 bits: rows still to skip or to give


_POSITIONS_MAX, _LONG_BYTES_MAX = (1 << 8) - 1, (1 << 16) - 2  # what a count and a length in a token hold
_SAME_ORDER = b"\xff\xff"  # in place of a length: the order of the position before


class Position(NamedTuple):
    low: bytes  # effective keys from here
    high: bytes  # to before here
    after_rid: int  # items up to this rid were read; -1: none yet
    order: bytes = b""  # where that item stands in the order, with ORDER BY
    given: int = 0  # rows of that item that were given, if it may have more


class Cursor(NamedTuple):
    positions: tuple[Position, ...]  # begun and not finished
    tail: bytes | None = None  # from this effective key on nothing was read; None: there is no such rest
    page: int = 0  # pages given so far: the first one pays for finding the way
    skip: int = 0  # rows still to leave out
    take: int | None = None  # rows still to give; None: all
    state: bytes = b""  # of half-made aggregates
    low: bytes = SPACE_LOW  # the stretch that was asked for; what lies outside is not the token's business
    high: bytes = SPACE_HIGH

    def encode(self, secret: bytes, container_rid: bytes, fingerprint: bytes) -> str:
        """Raises BAD_REQUEST rather than giving a token that `decode` would not take."""
        if len(self.positions) > _POSITIONS_MAX or max(len(self.state), *_orders(self.positions)) > _LONG_BYTES_MAX:
            raise _too_long()
        parts = [bytes([_VERSION]), self.page.to_bytes(_NUMBER_BYTES, "big"), bytes([len(self.positions)])]
        before = b""
        for low, high, after_rid, order, given in self.positions:
            stored = _SAME_ORDER if order and order == before else _long(order)
            parts += [_sized(low), _sized(high), (after_rid + 1).to_bytes(_RID_BYTES, "big"), stored]
            parts.append(given.to_bytes(_NUMBER_BYTES, "big"))
            before = order
        parts.append(b"\x00" if self.tail is None else b"\x01" + _sized(self.tail))
        take = 0 if self.take is None else self.take + 1
        parts += [self.skip.to_bytes(_NUMBER_BYTES, "big"), take.to_bytes(_NUMBER_BYTES, "big"), _long(self.state)]
        parts += [_sized(self.low), _sized(self.high)]
        body = b"".join(parts)
        token = _mac(secret, container_rid, fingerprint, body) + body
        text = _FORM % base64.urlsafe_b64encode(token).decode().rstrip("=")
        if len(text) > limits.CONTINUATION_BYTES_MAX:
            raise _too_long()
        return text


def decode(token: str, secret: bytes, container_rid: bytes, fingerprint: bytes) -> Cursor:
    """The cursor behind a token of `Cursor.encode`; BAD_REQUEST for everything else."""
    try:
        if len(token) > limits.CONTINUATION_BYTES_MAX:
            raise bad_token()
        text = token[len(_HEAD) : -len(_FOOT)].encode("ascii")
        raw = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise bad_token() from None
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    expected = _mac(secret, container_rid, fingerprint, body)
    # The same bytes have several spellings in base64; only ours is ours.
    is_ours = _FORM % base64.urlsafe_b64encode(raw).decode().rstrip("=") == token
    if not hmac.compare_digest(mac, expected) or not is_ours or body[:1] != bytes([_VERSION]):
        raise bad_token()
    return _Reader(body).cursor()


def fingerprint_of(parts: Iterable[bytes]) -> bytes:
    """What a continuation is bound to besides its container: the query's text and parameters, say."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()[:_FINGERPRINT_BYTES]


class _Reader:
    """Reads a body whose signature was checked: it is well-formed because we wrote it."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 1
        self._before = b""  # the order of the last position

    def cursor(self) -> Cursor:
        page = self._number()
        positions = tuple(self._position() for _ in range(self._take(1)[0]))
        tail = self._sized() if self._take(1) == b"\x01" else None
        skip, take = self._number(), self._number()
        state = self._long()
        low, high = self._sized(), self._sized()
        if self._at != len(self._body):  # signed, and of another form
            raise bad_token()
        return Cursor(positions, tail, page, skip, take - 1 if take else None, state, low, high)

    def _position(self) -> Position:
        low, high = self._sized(), self._sized()
        after_rid = int.from_bytes(self._take(_RID_BYTES), "big") - 1
        if self._body[self._at : self._at + len(_SAME_ORDER)] == _SAME_ORDER:
            self._at += len(_SAME_ORDER)
        else:
            self._before = self._long()
        return Position(low, high, after_rid, self._before, self._number())

    def _number(self) -> int:
        return int.from_bytes(self._take(_NUMBER_BYTES), "big")

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._body[self._at - count : self._at]

    def _sized(self) -> bytes:
        return self._take(self._take(1)[0])

    def _long(self) -> bytes:
        return self._take(int.from_bytes(self._take(2), "big"))


def _sized(part: bytes) -> bytes:
    return bytes([len(part)]) + part


def _long(part: bytes) -> bytes:
    return len(part).to_bytes(2, "big") + part


def _mac(secret: bytes, container_rid: bytes, fingerprint: bytes, body: bytes) -> bytes:
    context = _sized(container_rid) + _sized(fingerprint)
    return hmac.digest(secret, b"continuation" + context + body, "sha256")[:_MAC_BYTES]


def _orders(positions: Iterable[Position]) -> list[int]:
    return [0, *[len(each.order) for each in positions]]


def _too_long() -> Failure:
    return bad_request(
        "The query cannot be continued: the places of the partitions that it is reading do not fit one continuation "
        "token. Ask for larger pages, or query by partition key ranges or partition keys."
    )


def bad_token() -> Failure:
    return bad_request(
        "Invalid Continuation Token: it is not one that was given for this query on this container. Start again "
        "without it."
    )

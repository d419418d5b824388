"""Continuations: they come back as they were, only where they belong, and nothing else is taken for one."""

from __future__ import annotations

import base64
import random

import pytest
from support.portions import Amount

from armillary.errors import Failure, Kind
from armillary.query.continuation_token import Cursor, Position, decode, fingerprint_of

SECRET, RID, QUERY = b"s" * 32, b"\x01\x02\x03\x04\x05\x06\x07\x08", fingerprint_of([b"SELECT * FROM c", b"{}"])


def epk(number: int) -> bytes:
    return number.to_bytes(16, "big")


CURSORS = [
    Cursor(()),
    Cursor((), b""),
    Cursor((Position(b"", b"\xff", -1),)),
    Cursor((Position(epk(1), epk(2**120), 2**64 - 2),), epk(2**120), 3),
    Cursor(tuple(Position(epk(n) * 3, epk(n + 1) * 3, n) for n in range(8)), None, 2**40 - 1),
]


@pytest.mark.parametrize("cursor", CURSORS)
def test_round_trip(cursor: Cursor) -> None:
    token = cursor.encode(SECRET, RID, QUERY)
    assert token.isascii() and len(token) <= 1024 * 3
    assert decode(token, SECRET, RID, QUERY) == cursor


@pytest.mark.parametrize(
    "cursor",
    [
        Cursor(tuple(Position(bytes([low // 256, low % 256]), b"\xff", low) for low in range(256))),
        Cursor((Position(b"", b"\xff", 1, b"x" * 65_536),)),
        Cursor((), state=b"x" * 65_536),
        Cursor((), state=b"x" * 20_000),
    ],
    ids=["positions", "order", "state", "all of it"],
)
def test_what_does_not_fit_is_refused_when_it_is_made(cursor: Cursor) -> None:
    with pytest.raises(Failure, match="do not fit one continuation") as caught:
        cursor.encode(SECRET, RID, QUERY)
    assert caught.value.kind is Kind.BAD_REQUEST


def test_typical_token_is_short() -> None:
    assert len(Cursor((Position(epk(1), epk(2), 5),), epk(2)).encode(SECRET, RID, QUERY)) < 160


@pytest.mark.parametrize(
    ("secret", "rid", "query"),
    [(b"t" * 32, RID, QUERY), (SECRET, b"\x01\x02\x03\x04\x05\x06\x07\x09", QUERY), (SECRET, RID, b"\x00" * 12)],
)
def test_good_for_nothing_else(secret: bytes, rid: bytes, query: bytes) -> None:
    token = CURSORS[3].encode(SECRET, RID, QUERY)
    with pytest.raises(Failure) as caught:
        decode(token, secret, rid, query)
    assert caught.value.kind is Kind.BAD_REQUEST


def test_fingerprint_tells_parts_apart() -> None:
    assert fingerprint_of([b"ab", b"c"]) != fingerprint_of([b"a", b"bc"])


def test_fuzz_tampered_tokens(amount: Amount) -> None:
    seed = 77
    dice = random.Random(seed)
    tokens = [cursor.encode(SECRET, RID, QUERY) for cursor in CURSORS]
    letters = 'ABCabc019-_=+/ \n\x00é😀{}"'
    for number in range(amount(20_000)):
        token = dice.choice(tokens)
        changed = list(token)
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(changed) + 1)
            match dice.randrange(4):
                case 0:
                    changed[at:] = []
                case 1:
                    changed.insert(at, dice.choice(letters))
                case 2 if at < len(changed):
                    changed[at] = dice.choice(letters)
                case _:
                    changed = list(base64.urlsafe_b64encode(dice.randbytes(dice.randrange(60))).decode())
        text = "".join(changed)
        if text == token:
            continue
        try:
            decode(text, SECRET, RID, QUERY)
        except Failure as failure:
            is_right = failure.kind is Kind.BAD_REQUEST
        else:
            is_right = False
        assert is_right, f"seed {seed}, number {number}: {text!r}"
    with pytest.raises(Failure):
        decode("A" * 1_000_000, SECRET, RID, QUERY)

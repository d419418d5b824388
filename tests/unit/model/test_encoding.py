from __future__ import annotations

import functools
import itertools
import random

import pytest

from armillary.errors import Failure, Kind
from armillary.limits import TERM_BYTES_MAX
from armillary.model import encoding
from armillary.model.encoding import (
    ARRAY_MARK,
    FLAG_INDEXED,
    FORMAT_BSON,
    FORMAT_JSON,
    OBJECT_MARK,
    ItemHeader,
    decode_value,
    encode_term,
    encode_value,
    is_cut,
    pack_item,
    payload_of,
    unpack_header,
)
from armillary.model.values import UNDEFINED, Value, compare, equal

SEED = 20_240_229
PAIRS = 10_000
CHARACTERS = "\x00\x00\x01\x01\x02ab~\x7f\x80éÿĀ你\ud7ff\ue000\uffff😀\U0010ffff\ud800\udfff"
NUMBERS = [0, -0.0, 1, -1, 0.5, 5e-324, -5e-324, 1e308, -1e308, 2**53, -(2**53), 2**53 + 1, 2**64, 10**400]


def random_text(dice: random.Random) -> str:
    length = dice.choice((0, 1, 1, 2, 3, 8, 60, 124, 125, 126, 127, 128, 129, 400))
    if length > 8:
        # Long texts that differ late or not at all are where the cut matters.
        return dice.choice(CHARACTERS[:8]) * (length - 2) + "".join(dice.choices(CHARACTERS, k=dice.randrange(4)))
    return "".join(dice.choices(CHARACTERS, k=length))


def random_value(dice: random.Random, depth: int = 4) -> Value:
    kind = dice.randrange(9 if depth else 6)
    if kind == 0:
        return dice.choice((None, True, False, UNDEFINED))
    if kind == 1:
        return dice.choice(NUMBERS)
    if kind == 2:
        return dice.choice((dice.randrange(-5, 5), dice.gauss(0, 1), dice.randrange(-(2**70), 2**70)))
    if kind <= 5:
        return random_text(dice)
    if kind <= 6:
        return [random_value(dice, depth - 1) for _ in range(dice.randrange(4))]
    return {random_text(dice): random_value(dice, depth - 1) for _ in range(dice.randrange(4))}


def neighbour(dice: random.Random, value: Value) -> Value:
    """A value that differs from another late, if at all: where an encoding is most likely to be wrong."""
    if isinstance(value, str):
        return value + dice.choice(CHARACTERS) if dice.random() < 0.5 else value[:-1]
    if isinstance(value, list):
        if value and dice.random() < 0.7:
            return [*value[:-1], neighbour(dice, value[-1])]
        return [*value, random_value(dice, 1)]
    if isinstance(value, dict):
        if value and dice.random() < 0.7:
            name = dice.choice(list(value))
            return {**value, name: neighbour(dice, value[name])}
        return {**value, random_text(dice): random_value(dice, 1)}
    if isinstance(value, float) and abs(value) < 1e300:
        return value * (1 + 2**-52)
    return value


def order(first: bytes, second: bytes) -> int:
    return (first > second) - (first < second)


def random_pairs() -> list[tuple[Value, Value]]:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    pairs = []
    for _ in range(PAIRS):
        value = random_value(dice)
        pairs.append((value, neighbour(dice, value) if dice.random() < 0.5 else random_value(dice)))
    return pairs


def test_byte_order_is_the_order_of_the_values() -> None:
    seen = set()
    for first, second in random_pairs():
        expected = compare(first, second)
        seen.add(expected)
        assert order(encode_value(first), encode_value(second)) == expected, (first, second)
    assert seen == {-1, 0, 1}


def test_terms_keep_the_order_and_remember_a_cut() -> None:
    cuts = 0
    for first, second in random_pairs():
        low, high = (first, second) if compare(first, second) <= 0 else (second, first)
        low_term, high_term = encode_term(low), encode_term(high)
        assert low_term <= high_term, (low, high)
        assert len(low_term) <= TERM_BYTES_MAX
        if low_term == high_term and not isinstance(low, list | dict):
            assert is_cut(low_term) or equal(low, high), (low, high)
        if not isinstance(low, list | dict) and not is_cut(low_term):
            assert low_term == encode_value(low)
        cuts += is_cut(low_term)
    assert cuts > 100


def test_no_term_is_a_prefix_of_another() -> None:
    terms = sorted({encode_term(value) for pair in random_pairs() for value in pair})
    for low, high in itertools.pairwise(terms):
        assert not high.startswith(low), (low, high)


def test_values_come_back() -> None:
    for value, _ in random_pairs():
        encoded = encode_value(value)
        decoded, end = decode_value(b"\x99" + encoded + b"\x00rest", 1)
        assert end == 1 + len(encoded)
        assert equal(decoded, value), value


def test_encodings_side_by_side_order_like_tuples_also_inverted() -> None:
    inverted = bytes(255 - byte for byte in range(256))
    pairs = random_pairs()[:2000]
    for (a, b), (c, d) in itertools.pairwise(pairs):
        expected = compare(a, c) or -compare(b, d)
        first = encode_value(a) + encode_value(b).translate(inverted)
        second = encode_value(c) + encode_value(d).translate(inverted)
        assert order(first, second) == expected


def test_sorting_by_bytes_sorts_values() -> None:
    values = [value for value, _ in random_pairs()[:1000]]
    by_value = sorted(values, key=functools.cmp_to_key(compare))
    by_bytes = sorted(values, key=encode_value)
    assert all(map(equal, by_value, by_bytes))


def test_numbers_come_back_as_int_when_whole() -> None:
    for number, expected in ((1.0, 1), (-0.0, 0), (2**53, 2**53), (-7, -7)):
        decoded, _ = decode_value(encode_value(number))
        assert type(decoded) is int
        assert decoded == expected
    for number in (0.1, 1e300, float("inf"), float("-inf"), 2.0**60):
        decoded, _ = decode_value(encode_value(number))
        assert type(decoded) is float
        assert decoded == number
    decoded, _ = decode_value(encode_value(float("nan")))
    assert decoded != decoded


@pytest.mark.parametrize("length", [TERM_BYTES_MAX - 2, TERM_BYTES_MAX - 1])
def test_a_string_is_cut_just_beyond_the_limit(length: int) -> None:
    term = encode_term("x" * length)
    assert len(term) == TERM_BYTES_MAX
    assert is_cut(term) == (length > TERM_BYTES_MAX - 2)
    assert encode_term("x" * (length + 1)) >= term


def test_a_cut_inside_a_character_or_an_escape_is_fine() -> None:
    for prefix in range(TERM_BYTES_MAX - 8, TERM_BYTES_MAX):
        for character in "😀\x00\x01":
            text = "x" * prefix + character * 2
            assert encode_term("x" * prefix) <= encode_term(text) <= encode_term(text + "\x00")


def test_arrays_and_objects_have_one_term_each() -> None:
    assert encode_term([]) == encode_term([1, 2]) == ARRAY_MARK
    assert encode_term({}) == encode_term({"a": 1}) == OBJECT_MARK
    assert encode_term("\U0010ffff" * 100) < ARRAY_MARK < OBJECT_MARK
    assert not is_cut(ARRAY_MARK)
    assert not is_cut(encode_term(1))


def test_huge_strings_make_terms_without_being_encoded() -> None:
    assert is_cut(encode_term("é" * 2_000_000))


def test_broken_bytes_are_corrupt_and_nothing_else() -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    kinds = []
    for _ in range(2000):
        encoded = bytearray(encode_value(random_value(dice)))
        encoded[dice.randrange(len(encoded))] = dice.randrange(256)
        try:
            decode_value(bytes(encoded[: dice.randrange(len(encoded) + 1)]))
        except Failure as failure:
            kinds.append(failure.kind)
    assert len(kinds) > 100
    assert set(kinds) == {Kind.CORRUPT}
    with pytest.raises(Failure) as caught:
        decode_value(encoding.TAG_ARRAY * 100_000)
    assert caught.value.kind is Kind.CORRUPT


@pytest.mark.parametrize(
    "header",
    [
        ItemHeader(FORMAT_JSON, FLAG_INDEXED, 1, 57, 1_700_000_000, -1, b"\x3f" * 16),
        ItemHeader(FORMAT_BSON, 0, 0, 0, 0, 0, b""),
        ItemHeader(FORMAT_JSON, 255, 65535, 2**64 - 1, 2**32 - 1, 2**31 - 1, b"\xfe" * 255),
    ],
)
@pytest.mark.parametrize("payload", [b"", b'{"id":"a"}'])
def test_items_come_back(header: ItemHeader, payload: bytes) -> None:
    stored = pack_item(header, payload)
    assert unpack_header(stored) == header
    assert payload_of(stored) == payload

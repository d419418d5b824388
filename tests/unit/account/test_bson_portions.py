"""Large BSON documents decoded and encoded in portions: the same values, and the same refusals, as of the `bson`
package itself."""

from __future__ import annotations

import random
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from support.limits import WithLimits

from armillary import limits
from armillary.doors.mongo.wire.messages import decode_document
from armillary.errors import Failure
from armillary.model.bson import bson_portions
from armillary.model.bson.bson_values import CODEC, decode, encode

_SCALARS: list[Any] = [
    *(
        None,
        True,
        False,
        1,
        -1,
        Int64(5),
        1.5,
        "",
        "text",
        "é\0x",
        b"bytes",
        Binary(b"", 128),
        Binary(b"u" * 16, 4),
        ObjectId(b"a" * 12),
    ),
    *(Regex("a.b", "im"), Code("x"), Code("x", {"y": 1}), Timestamp(1, 2), Decimal128("1.5"), MinKey(), MaxKey()),
    *(DBRef("c", 1), DBRef("c", 1, "d", more=[1, 2])),
]


def _value(dice: random.Random, depth: int) -> Any:
    roll = dice.random()
    if depth and roll < 0.15:
        return {f"k{n}": _value(dice, depth - 1) for n in range(dice.randrange(40))}
    if depth and roll < 0.3:
        return [_value(dice, depth - 1) for _ in range(dice.randrange(40))]
    if roll < 0.35:
        return "long" * dice.randrange(100)
    return dice.choice(_SCALARS)


def _decoded(decoder: Any, encoded: bytes) -> Any:
    try:
        return bson.encode(decoder(encoded), codec_options=CODEC)
    except Exception as error:
        return type(error)


@pytest.fixture(autouse=True)
def _small(with_limits: WithLimits) -> None:
    with_limits(WORK_AT_ONCE_BSON_BYTES=80, WORK_AT_ONCE_BSON_ELEMENTS=7)  # portions are half of the former


def _in_portions(encoded: bytes) -> dict[str, Any]:
    return bson_portions.decode_in_portions(encoded, CODEC)


def test_the_same_values(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        document = {f"f{n}": _value(dice, 3) for n in range(dice.randrange(30))}
        encoded = bson.encode(document, codec_options=CODEC)
        assert _in_portions(encoded) == bson.decode(encoded, CODEC)
        assert bson.encode(_in_portions(encoded), codec_options=CODEC) == encoded
        assert bson_portions.encode_in_portions(document, CODEC) == encoded


def test_ids_are_written_first_where_the_encoder_does() -> None:
    document = {"a": [{"b": n, "_id": n} for n in range(9)], "d": {f"f{n}": n for n in range(9)} | {"_id": 3}, "_id": 1}
    assert bson_portions.encode_in_portions(document, CODEC) == bson.encode(document, codec_options=CODEC)


@pytest.mark.parametrize("value", [1 << 64, object(), "\ud800", {1: 1}, {"a\0": 1}, {1: [0] * 50}, {"a\0": [0] * 50}])
def test_the_same_refusals_of_the_encoder(value: Any) -> None:
    document = {"a": [*range(20), value]}
    with pytest.raises(Exception) as expected:
        bson.encode(document, codec_options=CODEC)
    with pytest.raises(type(expected.value)):
        bson_portions.encode_in_portions(document, CODEC)


def test_the_same_refusals(seed: int) -> None:
    dice = random.Random(seed)
    refused = 0
    for _ in range(12):
        document = {f"f{n}": _value(dice, 1) for n in range(1, 12)}
        encoded = bson.encode(document, codec_options=CODEC)
        for _ in range(50):
            broken = bytearray(encoded)
            broken[dice.randrange(4, len(broken))] = dice.choice([0, 1, 3, 4, 5, 11, 15, 127, 255, dice.randrange(256)])
            expected = _decoded(lambda raw: bson.decode(raw, CODEC), bytes(broken))
            found = _decoded(_in_portions, bytes(broken))
            refused += isinstance(expected, type)
            assert found == expected or (isinstance(found, type) and isinstance(expected, type)), bytes(broken)
    assert refused > 40


def test_names_that_are_there_twice() -> None:
    elements = b"".join(b"\x10n\0" + number.to_bytes(4, "little") for number in range(100))
    size = len(elements) + 5
    array = b"\4a\0" + size.to_bytes(4, "little") + elements + b"\0"
    document = b"\3d\0" + size.to_bytes(4, "little") + elements + b"\0"
    whole = (len(array + document) + 5).to_bytes(4, "little") + array + document + b"\0"
    assert _in_portions(whole) == bson.decode(whole, CODEC) == {"a": list(range(100)), "d": {"n": 99}}


def test_a_document_that_is_nested_too_deep_is_refused() -> None:
    encoded = b"\5\0\0\0\0"
    for _ in range(2_000):
        encoded = (len(encoded) + 8).to_bytes(4, "little") + b"\3a\0" + encoded + b"\0"
    with pytest.raises(Failure):
        decode_document(encoded)


def test_it_gives_way(monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits) -> None:
    with_limits.restore()
    spent: list[int] = []
    monkeypatch.setattr(bson_portions, "spend", spent.append)
    document = {"a": [{"x": n, "y": "text"} for n in range(30_000)], "b": {f"f{n}": n for n in range(30_000)}}
    encoded = bson.encode(document)
    assert decode(encoded) == document
    assert len(spent) > 20 and max(spent) < limits.WORK_SLICE_UNITS, "at most a slice at a time"
    spent.clear()
    assert encode(document) == encoded
    assert len(spent) > 20 and max(spent) < limits.WORK_SLICE_UNITS, "at most a slice at a time"

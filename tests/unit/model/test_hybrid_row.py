"""HybridRow: rows and record streams of the format's own tests read and written byte for byte, and hostile ones."""

from __future__ import annotations

import random
from typing import Any

import pytest

from armillary.errors import Failure, Kind
from armillary.model.hybrid_row.record_stream import read_records, write_records
from armillary.model.hybrid_row.rows import Column, Layout, Storage, Type, read_row, write_row

# Of CrossVersioningExpected.json, the file of rows that every version of the format must write: the columns of the
# types that are here, at the tokens that they have there. The others stand for columns in between.
_SPARSE_NAMES = [
    *("null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"),
    *("float128", "decimal", "datetime", "unixdatetime", "guid", "mongodbobjectid", "utf8", "binary"),
]
_TYPES = {
    "bool": Type.BOOLEAN,
    "int32": Type.INT32,
    "uint32": Type.UINT32,
    "float64": Type.FLOAT64,
    "utf8": Type.UTF8,
    "binary": Type.BINARY,
}
SPARSE = Layout(3, [Column(name, _TYPES.get(name, Type.INT32), Storage.SPARSE) for name in _SPARSE_NAMES])
SPARSE_ROW = bytes.fromhex(
    "8103000000" + "0302" + "0705AAAAAAAA" + "0B09AAAAAAAA" + "100C555555555555D53F" + "141303616263" + "151403000102"
)
SPARSE_VALUES: dict[str, Any] = {
    "bool": True,
    "int32": -0x55555556,
    "uint32": 0xAAAAAAAA,
    "float64": 1 / 3,
    "utf8": "abc",
    "binary": b"\0\1\2",
}
# Of the same file's "Variable": its two numbers are read as bytes of no length here.
VARIABLE = Layout(2, [Column(name, _TYPES[name], Storage.VARIABLE) for name in ("utf8", "binary")])
# The first two records of RoomsSchemaExpected.hr, as they stand there, after a segment without a comment.
ROOMS = bytes.fromhex(
    "81f0d8ff7f010a000000"
    "81f1d8ff7f17000000848c9fff81040000001feeb9b4ec97a80000d6a7e13d233a2825af"
    "81f1d8ff7f1700000009de91f081040000000fea8790e485bd000027eeee80d264512535"
)
# The beginning of that file: a segment with a comment and a schema.
COMMENTED = bytes.fromhex("81f0d8ff7f01320000001402") + b"\x25HybridRow.Tests.Perf Expected Results"


def test_rows_of_the_formats_own_tests() -> None:
    assert write_row(SPARSE, SPARSE_VALUES) == SPARSE_ROW
    assert read_row(SPARSE, SPARSE_ROW) == SPARSE_VALUES
    assert write_row(SPARSE, {}) == bytes.fromhex("8103000000")
    assert write_row(VARIABLE, {}) == bytes.fromhex("810200000000")
    variable = write_row(VARIABLE, {"utf8": "abc", "binary": b"\0\1\2"})
    assert variable == bytes.fromhex("8102000000" + "03" + "0361626303000102")
    assert read_row(VARIABLE, variable) == {"utf8": "abc", "binary": b"\0\1\2"}


def test_records_of_the_formats_own_tests() -> None:
    records = list(read_records(ROOMS))
    assert [len(each) for each in records] == [23, 23]
    assert write_records(records) == ROOMS
    assert list(read_records(COMMENTED + ROOMS)) == records  # several segments


def test_what_is_absent_and_what_is_empty() -> None:
    layout = Layout(7, [Column("n", Type.INT32, Storage.FIXED), Column("t", Type.UTF8, Storage.VARIABLE)])
    for values in ({}, {"n": 0}, {"t": ""}, {"n": -1, "t": "é" * 100}):
        assert read_row(layout, write_row(layout, values)) == values
    assert write_row(layout, {"n": None}) == write_row(layout, {})
    false = write_row(SPARSE, {"bool": False})
    assert (false[-2:], read_row(SPARSE, false)) == (b"\x02\x02", {"bool": False})


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (b"", "its fixed columns take"),
        (bytes.fromhex("8003000000"), "the version 128"),
        (bytes.fromhex("8104000000"), "the schema 4"),
        (bytes.fromhex("8103000000" + "0705AAAAAA"), "ends in the middle of 'int32'"),
        (bytes.fromhex("8103000000" + "1413FF"), "a length does not end"),
        (bytes.fromhex("8103000000" + "1413FFFFFFFFFF01"), "a length does not end"),
        (bytes.fromhex("8103000000" + "141304616263"), "longer than the rest"),
        (bytes.fromhex("8103000000" + "141302C328"), "not valid UTF-8"),
        (bytes.fromhex("8103000000" + "0713AAAAAAAA"), "type code 7, not 20"),
        (bytes.fromhex("8103000000" + "0302" + "0302"), "twice"),
        (bytes.fromhex("8103000000" + "1419") + b"name", "unknown sparse column 'name'"),
        (bytes.fromhex("8103000000" + "07"), "a length does not end"),
    ],
)
def test_malformed_rows_are_refused_with_the_cause(row: bytes, cause: str) -> None:
    with pytest.raises(Failure) as caught:
        read_row(SPARSE, row)
    assert caught.value.kind is Kind.BAD_REQUEST
    assert cause in caught.value.message


@pytest.mark.parametrize(
    ("stream", "cause"),
    [
        (b"\x81", "its fixed columns take"),
        (ROOMS[10:], "not 129 and 2147473648"),
        (ROOMS[:-1], "a record of 23 bytes where 22 follow"),
        (ROOMS[:6], "its fixed columns take"),
        (ROOMS[:13], "ends in the middle of a row"),
        (ROOMS[:-1] + b"\0", "the CRC-32 of the record"),
        (bytes.fromhex("81f0d8ff7f000a000000"), "a segment header of 0 bytes"),
        (bytes.fromhex("81f0d8ff7f01ffffffff"), "a segment header of -1 bytes"),
        (bytes.fromhex("81f0d8ff7f010a00000081f1d8ff7f0000000000000000"), "a record of 0 bytes"),
        (bytes.fromhex("81f0d8ff7f010a00000081f1d8ff7fffffffff00000000"), "a record of -1 bytes"),
        (bytes.fromhex("81f0d8ff7f011100000044f3d8ff7f04"), "a segment header of 17 bytes"),
        (bytes.fromhex("81f0d8ff7f010c0000004404"), "unknown sparse column"),
    ],
)
def test_malformed_streams_are_refused_with_the_cause(stream: bytes, cause: str) -> None:
    with pytest.raises(Failure) as caught:
        list(read_records(stream))
    assert caught.value.kind is Kind.BAD_REQUEST
    assert cause in caught.value.message


def test_random_rows_survive(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(500):
        values = {name: value for name, value in SPARSE_VALUES.items() if dice.random() < 0.5}
        if "binary" in values:
            values["binary"] = dice.randbytes(dice.choice([0, 1, 127, 128, 16_383, 16_384]))
        row = write_row(SPARSE, values)
        assert read_row(SPARSE, row) == values
        assert list(read_records(write_records([row, row]))) == [row, row]


def test_mutated_rows_are_read_or_refused(seed: int) -> None:
    """The CRC-32 is made after the mutation, so that the row itself is read."""
    dice = random.Random(seed)
    refused = []
    for _ in range(2_000):
        row = bytearray(SPARSE_ROW)
        for _ in range(dice.randint(1, 3)):
            row[dice.randrange(len(row))] = dice.randrange(256)
        del row[dice.choice([len(row), dice.randrange(len(row))]) :]
        try:
            read_row(SPARSE, bytes(row))
        except Failure as failure:
            refused.append(failure.kind)
    assert set(refused) == {Kind.BAD_REQUEST}
    assert len(refused) > 500

"""Cosmos binary JSON: known answers of the clients' own tests, documents in every form there and back, and bodies that
are malformed or that stand for more than they are."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest
from support.binary_forms import AnyForm, random_document, random_text
from support.portions import Amount

from armillary import limits
from armillary.errors import Failure
from armillary.model.binary_json.binary_reader import decode
from armillary.model.binary_json.binary_writer import encode
from armillary.model.binary_json.packed_strings import pack
from armillary.model.binary_json.type_markers import SYSTEM_STRINGS

COUNT = 100_000
FIXTURES = Path(__file__).parents[2] / "fixtures"

# The test vectors of the Rust client (testdata/binary_json_vectors.json of azure_data_cosmos_driver), without those of
# GUID strings, whose digits it reads in another order than the .NET client writes them.
RUST: list[tuple[str, Any]] = [
    *(("80D0", None), ("80D1", False), ("80D2", True), ("8000", 0), ("801F", 31), ("80C8C8", 200), ("80C918FC", -1000)),
    *(("80CA70110100", 70000), ("80CB000EFAD5FEFFFFFF", -5000000000), ("80C7FEFFFFFFFFFFFFFF", 18446744073709551614)),
    *(("80CC0000000000000C40", 3.5), ("80D8FB", -5), ("80D7C8", 200), ("80D918FC", -1000), ("80DA90EEFEFF", -70000)),
    *(("80DB000EFAD5FEFFFFFF", -5000000000), ("80DCFEFFFFFF", 4294967294), ("80CD0000C03F", 1.5)),
    *(("80CE00000000000002C0", -2.25), ("802C", "id"), ("8080", ""), ("80826869", "hi"), ("80C00568656C6C6F", "hello")),
    *(
        ("80C12C01" + "61" * 300, "a" * 300),
        ("80710100666F6F", "Zm9v"),
        ("80710101666F", "Zm8="),
        ("8071010241", "QQ=="),
    ),
    *(("807101FD41", "QQ"), ("8072020000666F6F626172", "Zm9vYmFy"), ("80710100FBFFFE", "+//+")),
    *(("80730100FBFFFE", "-__-"), ("807804A1B2", "1a2b"), ("807904A1B2", "1A2B"), ("8078010F", "f")),
    *(("807A0713531C02", "2024-01"), ("807E02C834", "Hi"), ("807B04301032", "0123"), ("807C03612008", "abc")),
    *(("807D046140200C", "abcd"), ("807F0200C834", "Hi"), ("80DD04DEADBEEF", "3q2+7w=="), ("80DD00", "")),
    *(("80D3000102030405060708090A0B0C0D0E0F", "03020100-0504-0706-0809-0a0b0c0d0e0f"), ("80DE0300010203", "AQID")),
    *(("80F0DA03010000000200000003000000", [1, 2, 3]), ("80F0D7030A141E", [10, 20, 30]), ("80F0DA00", [])),
    *(("80F1D90300FFFF0000E803", [-1, 0, 1000]), ("80F0CD020000C03F000080BE", [1.5, -0.25])),
    *(
        ("80F2F0DA020201000000020000000300000004000000", [[1, 2], [3, 4]]),
        ("80E0", []),
        ("80E8", {}),
        ("80E1D2", [True]),
    ),
    *(("80E92CD2", {"id": True}), ("80E2030001D0", [0, 1, None]), ("80E503030001D0", [0, 1, None])),
    *(("80EA042C003B01", {"id": 0, "type": 1}), ("80ED04022C003B01", {"id": 0, "type": 1})),
    ("80E205E100E92C01", [[0], {"id": 1}]),
]
# Those of the .NET client's JsonReaderTests.GuidStringsTest: the first digit is the low half of the first byte.
NET: list[tuple[str, Any]] = [
    ("8075" + "00" * 16, "00000000-0000-0000-0000-000000000000"),
    ("8075" + "DEE783AA70E4A447AB0BA2F41470B9AA", "ed7e38aa-074e-4a74-bab0-2a4f41079baa"),
    ("8076" + "DEE783AA70E4A447AB0BA2F41470B9AA", "ED7E38AA-074E-4A74-BAB0-2A4F41079BAA"),
    ("8077" + "DEE783AA70E4A447AB0BA2F41470B9AA", '"ed7e38aa-074e-4a74-bab0-2a4f41079baa"'),
]


@pytest.mark.parametrize(("body", "value"), RUST + NET)
def test_known_answers(body: str, value: Any) -> None:
    found = decode(bytes.fromhex(body))
    assert (found, type(found)) == (value, type(value))


# What the Rust client's codec (azure_data_cosmos_driver 1.0.0) writes for a value, and what is written for it here, as
# that codec has read it. The client writes the names of an object in alphabetical order.
ANSWERS = [json.loads(line) for line in (FIXTURES / "binary_json_answers.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_known_answers_both_ways(answer: dict[str, Any]) -> None:
    value = answer["value"]
    text = orjson.dumps(value)
    assert encode(value, len(text)).hex().upper() == answer["server"]
    assert orjson.dumps(decode(bytes.fromhex(answer["server"]))) == text
    read = decode(bytes.fromhex(answer["client"]))
    assert orjson.dumps(read, option=orjson.OPT_SORT_KEYS) == orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def test_system_strings() -> None:
    found = [decode(bytes([0x80, marker])) for marker in range(0x20, 0x40)]
    assert found == list(SYSTEM_STRINGS)
    assert (found[0], found[12], found[31]) == ("$s", "id", "_id")


def test_every_form_is_read(seed: int, amount: Amount) -> None:
    dice = random.Random(f"{seed}/forms")
    for number in range(amount(amount(COUNT)) // 2):
        document = random_document(dice)
        body = AnyForm(dice).write(document, wraps=number % 2 == 0)
        read = decode(body)
        read = read[-1] if type(read) is list else read
        assert orjson.dumps(read) == orjson.dumps(document), f"{number}: {body.hex()}"


def test_what_is_written_is_read(seed: int, amount: Amount) -> None:
    dice = random.Random(f"{seed}/written")
    for number in range(amount(amount(COUNT)) // 2):
        document = random_document(dice)
        text = orjson.dumps(document)
        assert orjson.dumps(decode(encode(document, len(text)))) == text, f"{number}: {text!r}"


def test_a_long_document_has_longer_lengths_and_references() -> None:
    rows = [
        {"id": str(number), "a rather long name": "a value that is repeated", "n": number} for number in range(5_000)
    ]
    text = orjson.dumps(rows)
    body = encode(rows, len(text))
    assert len(body) < len(text) / 2
    assert decode(body) == rows


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("0123456789abcdef", 0x78),
        ("0123456789ABCDEF", 0x79),
        ("2024-01-31T12:00:00.000Z", 0x7A),
        ("abcdefghijklmnop" * 2, 0x7B),
        ("abcdefghijklmnopqrstuvwxyz" * 2, 0x7C),
        ("The quick brown fox " * 2, None),
        ("THE QUICK BROWN FOX 0123" * 2, 0x7D),
        ("The quick brown fox " * 5, 0x7E),
        ("The quick brown fox " * 50, 0x7F),
        ("short", None),
        ("0123456789abcdeä", None),
    ],
)
def test_forms_of_packed_strings(text: str, marker: int | None) -> None:
    packed = pack(text)
    assert (packed[0] if packed else None) == marker
    if packed:
        assert len(packed) < len(text)
        assert decode(b"\x80" + packed) == text


MALFORMED = {
    "nothing": ("80", "ends in the middle"),
    "a short number": ("80CA7011", "ends in the middle"),
    "a short string": ("808568", "ends in the middle"),
    "a short length": ("80C12C", "ends in the middle"),
    "a short packed string": ("807804A1", "ends in the middle"),
    "a short container": ("80E20500", "ends in the middle"),
    "a short array of numbers": ("80F0DA0301", "ends in the middle"),
    "bytes after the value": ("80D0D0", "1 bytes follow the value"),
    "not UTF-8": ("8081FF", "not valid UTF-8"),
    "NaN": ("80CC000000000000F87F", "no NaN"),
    "infinity in an array": ("80F0CD010000807F", "no NaN"),
    "an unknown marker": ("80D4", "0xD4 is unknown"),
    "an unknown string": ("8068", "0x68 is unknown"),
    "an unknown container": ("80F4", "0xF4 is unknown"),
    "the invalid marker": ("80FF", "0xFF is unknown"),
    "a name that is no string": ("80E900D0", "which a property name must be"),
    "a count that is wrong": ("80E503040001D0", "has 3 values and says 4"),
    "a value that is too long": ("80E204E2018161", "extends past"),
    "a user string": ("8045", "the user string 5 "),
    "a user string of two bytes": ("806102", "the user string 290 "),
    "a reference out of the body": ("80E203C37F00", "leads to byte 127"),
    "a reference to itself": ("80C301", "leads to byte 1,"),
    "a reference to a reference": ("80E2068161C303C305", "leads to byte 5,"),
    "a reference to a number": ("80E2040000C304", "leads to byte 4,"),
    "a reference to the preamble": ("80E2048161C300", "leads to byte 0"),
    "bits to spare": ("8078011F", "bits after the last character"),
    "characters beyond ASCII": ("807B017F01", "packed string is malformed"),
    "a padding that is none": ("8071010341", "not a padding"),
    "nothing but padding": ("80710002", "all padding"),
    "another type of inner arrays": ("80F2F1DA0101", "names another type"),
    "numbers of no type": ("80F0C80101", "0xC8 is not one that an array of numbers may have"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bodies_are_refused_with_the_cause(name: str) -> None:
    body, cause = MALFORMED[name]
    with pytest.raises(Failure) as caught:
        decode(bytes.fromhex(body))
    assert caught.value.message.startswith("The request body is not valid Cosmos binary JSON: ")
    assert cause in caught.value.message


def test_depth() -> None:
    deepest = limits.ITEM_DEPTH_MAX
    assert decode(b"\x80" + b"\xe1" * (deepest - 1) + b"\xe0") is not None
    for body in (
        b"\xe1" * deepest + b"\xe0",
        b"\xe1" * 1_000_000,
        b"\xe1" * (deepest - 1) + b"\xf2\xf0\xda\x01\x01" + b"0000",
    ):
        with pytest.raises(Failure, match="nested deeper than 128 levels"):
            decode(b"\x80" + body)


@contextlib.contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """How often the decoder calls each of its functions: its work, however fast the machine is."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_small_bodies_do_not_stand_for_large_documents() -> None:
    """References to a long string, arrays of empty arrays, and the longest system string: 2 MB of each."""
    text = b"\xc2" + (1_000_000).to_bytes(4, "little") + b"a" * 1_000_000
    references = text + b"\xc3\x06" * 500_000
    arrays = b"\xf3\xf1\xda\x00\x00\xff\xff" * 280_000
    names = b"\x2b" * 2_000_000
    for payload in (references, arrays, names):
        body = b"\x80\xe4" + len(payload).to_bytes(4, "little") + payload
        counted = counted_calls() if payload is arrays else contextlib.nullcontext(Counter[str]())
        with pytest.raises(Failure, match="stands for a text of more than 4 MB"), counted as calls:
            decode(body)
        assert calls.total() < 1_000, calls


def test_long_packed_strings_take_linear_time(seed: int) -> None:
    """A string of 16 times the length takes about 16 times as long, and not 256 times. The least of five, in turns, is
    the same on a busy machine."""
    dice = random.Random(f"{seed}/long")
    long = "".join(random_text(dice) for _ in range(400)).encode("ascii", "ignore").decode()[:64_000]
    taken_s: dict[str, float] = {}
    for _ in range(5):
        for text in (long, long[:4_000]):
            packed = pack(text)
            assert packed is not None and packed[0] == 0x7F
            began_s = time.thread_time()
            assert decode(b"\x80" + packed) == text
            taken_s[text] = min(taken_s.get(text, 60.0), time.thread_time() - began_s)
    assert taken_s[long] < 80 * taken_s[long[:4_000]]

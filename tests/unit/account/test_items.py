"""Items from bytes and back: what is accepted, what is refused and how, and that nothing else can happen."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from support.portions import Amount
from support.refusals import refused

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model import items


def nested(levels: int, inner: str = "") -> bytes:
    """An object around arrays, `levels` containers in all."""
    return f'{{"id":"x","a":{"[" * (levels - 1)}{inner}{"]" * (levels - 1)}}}'.encode()


@pytest.mark.parametrize("body", [b"", b" ", b"{", b'{"a":}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}'])
def test_broken_json_is_refused(body: bytes) -> None:
    refused(lambda: items.parse_document(body), "not valid JSON")


@pytest.mark.parametrize(
    "body",
    [
        rb'{"a":"\ud800"}',  # lone surrogates, escaped and raw
        rb'{"a":"\udc00\ud800"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xff"}',
        b'{"a":1e400}',
        b'{"a":-1e999}',
        b'{"a":' + b"9" * 400 + b"}",
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1}{"b":2}',
        b'{"a":"\x00"}',
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":01}',
    ],
)
def test_hostile_json_is_refused(body: bytes) -> None:
    refused(lambda: items.parse_document(body), "not valid JSON")


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"true", b"[{}]"])
def test_only_objects_are_documents(body: bytes) -> None:
    refused(lambda: items.parse_document(body), "must be a JSON object")
    items.parse_json(body)


def test_depth_is_exact() -> None:
    assert items.parse_document(nested(limits.ITEM_DEPTH_MAX, "1"))["id"] == "x"
    assert items.parse_document(nested(limits.ITEM_DEPTH_MAX))["id"] == "x"  # an empty array is a level too
    refused(lambda: items.parse_document(nested(limits.ITEM_DEPTH_MAX + 1)), "128 levels")
    refused(lambda: items.parse_document(nested(limits.ITEM_DEPTH_MAX + 1, "1")), "128 levels")
    for levels in (300, 1000, 1023, 1024, 1025, 5000, 100_000):
        refused(lambda levels=levels: items.parse_document(nested(levels)))  # type: ignore[misc]
    objects = b'{"id":"x","a":' + b'{"a":' * 128 + b"1" + b"}" * 128 + b"}"
    refused(lambda: items.parse_document(objects), "128 levels")


def test_many_brackets_are_not_depth() -> None:
    assert len(items.parse_document(b'{"a":[' + b",".join([b"[{}]"] * 5000) + b"]}")["a"]) == 5000
    assert items.parse_document(b'{"a":"' + b"[{" * 500 + b'"}')["a"] == "[{" * 500


def test_numbers_keep_what_can_be_kept() -> None:
    document = items.parse_document(
        b'{"a":9007199254740993,"b":1.0,"c":18446744073709551615,"d":1e2,"e":-9223372036854775808}'
    )
    assert document == {"a": 9007199254740993, "b": 1.0, "c": 18446744073709551615, "d": 100.0, "e": -(2**63)}
    assert type(items.parse_document(b'{"a":18446744073709551616}')["a"]) is float
    assert items.open_text({"a": 2**53 - 1, "b": 1.0, "c": 1}) == b'{"a":9007199254740991,"b":1.0,"c":1'


def test_last_of_equal_names_counts() -> None:
    assert items.parse_document(b'{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}


def test_item_ids() -> None:
    for good in ("a", "é" * 511, "x" * 1023, "😀" * 255, "!@$%^&*()-~`'_[]{}|;:,.<>", " a", "a b", "\x00", "1"):
        assert items.validate_item_id({"id": good}) == good
    for tolerated in ("a ", "a?b", "a\tb", "a\rb", "a\n"):
        assert items.validate_item_id({"id": tolerated}) == tolerated
    refused(lambda: items.validate_item_id({}), "'id; ' - are missing")
    refused(lambda: items.validate_item_id({"ID": "a"}), "'id; ' - are missing")
    refused(lambda: items.validate_item_id({"id": ""}), "'id; ' - are missing")
    for bad in (None, 1, 1.5, True, ["a"], {"a": 1}):
        refused(lambda bad=bad: items.validate_item_id({"id": bad}), "must be a string")  # type: ignore[misc]
    for character in "/\\#":
        refused(lambda c=character: items.validate_item_id({"id": f"a{c}b"}), repr(character))  # type: ignore[misc]
    refused(lambda: items.validate_item_id({"id": "x" * 1024}), "1023 bytes")
    refused(lambda: items.validate_item_id({"id": "é" * 512}), "1023 bytes")


def test_names() -> None:
    assert items.validate_name("x" * 255) == "x" * 255
    assert items.validate_name("é" * 255) == "é" * 255
    refused(lambda: items.validate_name("x" * 256), "255 characters")
    refused(lambda: items.validate_name("a "), "ends with a space")
    for bad in ("", "a/b", "a\\b", "a?", "a#b", "a\t", "a\r", "a\n", None, 7):
        refused(lambda bad=bad: items.validate_name(bad))  # type: ignore[misc]


def test_ttl() -> None:
    assert items.item_ttl({}) == 0
    assert items.item_ttl({"ttl": -1}) == -1
    assert items.item_ttl({"ttl": 1}) == 1
    assert items.item_ttl({"ttl": 5.0}) == 5
    assert items.item_ttl({"ttl": 2147483647}) == 2147483647
    values: list[Any] = [0, None, -10, -2, "5", True, 1.5, 2147483648, 1e300, [], {}, 0.0]
    for bad in values:
        refused(lambda bad=bad: items.item_ttl({"ttl": bad}), "is invalid")  # type: ignore[misc]


def test_text_of_an_item() -> None:
    document = {"_ts": 1, "id": "a", "_rid": "forged", "n": [1, {"_rid": "kept"}], "_etag": 4, "_lsn": 9, "_self": 1}
    before = json.dumps(document)
    text = items.open_text(document) + items.close_text("AAAA==", "dbs/AAAA==/", '"x-1"', 1700000000)
    assert text == (
        b'{"id":"a","n":[1,{"_rid":"kept"}],"_rid":"AAAA==","_self":"dbs/AAAA==/","_etag":"\\"x-1\\"",'
        b'"_attachments":"attachments/","_ts":1700000000}'
    )
    assert json.loads(text)["_etag"] == '"x-1"'
    assert json.dumps(document) == before
    plain = {"id": "é"}
    assert items.strip_system_properties(plain) is plain
    assert items.open_text(plain) == '{"id":"é"'.encode()


def test_etags_tell_writes_apart() -> None:
    assert items.etag(0x010203040506, 0x1122334455667788, 9, 0x65) == '"55667788-3344-0009-0001-000000650506"'
    assert len({items.etag(1, lsn, step, 7) for step in range(50) for lsn in range(50)}) == 2500


def test_size() -> None:
    items.check_size(limits.ITEM_BYTES_MAX)
    refused(lambda: items.check_size(limits.ITEM_BYTES_MAX + 1), "Request size is too large", kind=Kind.TOO_LARGE)


def test_messages_do_not_repeat_long_input() -> None:
    assert len(refused(lambda: items.validate_item_id({"id": "x" * 900 + "/"}))) < 400
    assert len(refused(lambda: items.item_ttl({"ttl": "9" * 100_000}))) < 400


def test_fuzz_bodies(amount: Amount) -> None:
    seed = 20_240_601
    print("seed", seed)
    dice = random.Random(seed)
    pieces = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"',
        "\\",
        "\\u",
        "d800",
        "1",
        "e",
        "-",
        ".",
        "true",
        "null",
        "NaN",
        " ",
        "é",
    ]
    pieces += ['"id"', '"a":', '{"id":"x"}', '"ttl":', "0", "\x00", "9" * 30, "[" * 200, '{"a":' * 150]
    whole = b'{"id":"some id","ttl":5,"a":[1,2.5,{"b":null}],"c":"\\u00e9\\ud83d\\ude00"}'
    counts = {"accepted": 0, "refused": 0}
    for _ in range(amount(20_000)):
        if dice.random() < 0.5:
            body = "".join(dice.choices(pieces, k=dice.randrange(12))).encode()
        else:
            changed = bytearray(whole)
            for _ in range(dice.randrange(4)):
                changed[dice.randrange(len(changed))] = dice.choice(b'{}[]:,"\\0e-. x\xff\xc3')
            body = bytes(changed)
        try:
            document = items.parse_document(body)
            items.validate_item_id(document)
            items.item_ttl(document)
            text = items.open_text(document) + items.close_text("r", "s", '"e"', 1)
            assert _same(json.loads(text)["id"], document["id"])
            counts["accepted"] += 1
        except Failure as failure:
            assert failure.kind is Kind.BAD_REQUEST  # noqa: PT017
            counts["refused"] += 1
    assert min(counts.values()) > amount(1_000), counts


def _same(a: Any, b: Any) -> bool:
    return bool(a == b)

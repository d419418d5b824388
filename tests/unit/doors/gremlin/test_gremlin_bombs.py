"""Small messages that stand for much: they are refused while their values are made, within bounds of memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest
from support.gremlin_house import GremlinHouse, Wire, asked, credentials, framed

from armillary import limits
from armillary.doors.gremlin.authentication import Client
from armillary.doors.gremlin.forms import FORMS
from armillary.errors import Failure
from armillary.languages.gremlin.formats import graphbinary_read, graphson_read
from armillary.languages.gremlin.formats.message_limits import Allowance
from armillary.languages.gremlin.values.comparing import identity, map_key, unique
from armillary.languages.gremlin.values.typed_values import BigInt

P = 2**61 - 1  # whole numbers that differ by a multiple of it have one hash


def binary_list(*values: bytes) -> bytes:
    return b"\x09\x00" + struct.pack(">i", len(values)) + b"".join(values)


def binary_bulk(value: bytes, count: int) -> bytes:
    return b"\x2a\x00" + struct.pack(">i", 1) + value + struct.pack(">q", count)


def binary_map(*entries: bytes) -> bytes:
    return b"\x0a\x00" + struct.pack(">i", len(entries) // 2) + b"".join(entries)


INT = b"\x01\x00\x00\x00\x00\x07"
TEXT = b"\x03\x00\x00\x00\x00\x01x"


def nested_key(levels: int, inmost: bytes) -> bytes:
    for _ in range(levels):
        inmost = binary_map(inmost, INT)
    return inmost


def nested_set(levels: int, inmost: bytes) -> bytes:
    for _ in range(levels):
        inmost = b"\x0b\x00" + struct.pack(">i", 1) + inmost
    return inmost


BINARY: dict[str, Callable[[], bytes]] = {
    "bulk sets side by side": lambda: binary_list(*[binary_bulk(INT, 1_000_000)] * 300),
    "bulk sets in one another": lambda: binary_bulk(binary_bulk(INT, 1_000_000), 1_000_000),
    "bulk sets as members of a set": lambda: nested_set(1, binary_bulk(binary_bulk(INT, 3_000), 3_000)),
    "keys of keys": lambda: nested_key(90, binary_list(*[INT] * 6_000)),
    "sets of sets": lambda: nested_set(90, binary_list(*[INT] * 6_000)),
    "empty lists": lambda: binary_list(*[binary_list()] * 100_000),
}
JSON: dict[str, Callable[[], Any]] = {
    "bulk sets side by side": lambda: [{"@type": "g:BulkSet", "@value": [1, 1_000_000]}] * 300,
    "bulk sets in one another": lambda: {
        "@type": "g:BulkSet",
        "@value": [{"@type": "g:BulkSet", "@value": ["a", 1_000_000]}, 1_000_000],
    },
    "sets of sets": lambda: _sets(90, [1] * 6_000),
}


def _sets(levels: int, inmost: Any) -> Any:
    for _ in range(levels):
        inmost = {"@type": "g:Set", "@value": [inmost]}
    return inmost


def grown_bytes(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def too_large(act: Callable[[], object]) -> None:
    with pytest.raises(Failure, match=r"would take more|too large|with counts"):
        act()


@pytest.mark.parametrize("name", BINARY)
def test_graphbinary(name: str) -> None:
    content = BINARY[name]()
    assert len(content) <= limits.GREMLIN_MESSAGE_BYTES_MAX
    # Strangers' messages have a small allowance, so this is quick; the large one is a matter of the same count.
    reader = graphbinary_read.Reader(content, Allowance(limits.MB))
    assert grown_bytes(lambda: too_large(reader.value)) < 3 * limits.MB


@pytest.mark.parametrize("name", ["bulk sets side by side", "bulk sets in one another"])
def test_the_whole_allowance(name: str) -> None:
    content = BINARY[name]()
    most = 2 * limits.GREMLIN_MESSAGE_MEMORY_BYTES_MAX
    assert grown_bytes(lambda: too_large(lambda: graphbinary_read.read(content))) < most
    assert grown_bytes(lambda: too_large(lambda: graphson_read.read(JSON[name]()))) < most


@pytest.mark.parametrize("name", JSON)
def test_graphson(name: str) -> None:
    given = JSON[name]()
    assert grown_bytes(lambda: too_large(lambda: graphson_read.read(given, Allowance(limits.MB)))) < 3 * limits.MB


def test_json_that_is_all_signs_is_not_parsed() -> None:
    body = b'{"requestId":"r","op":"eval","args":{"x":[' + b"{}," * 800_000 + b"{}]}}"
    form = FORMS["application/json"]
    assert len(body) <= limits.GREMLIN_MESSAGE_BYTES_MAX
    assert grown_bytes(lambda: too_large(lambda: form.read(body, lambda _: None, is_known=True))) < 4 * len(body)
    # Signs inside of a text are a text.
    text = b'{"requestId":"r","op":"eval","args":{"x":"' + b'{},\\"' * 800_000 + b'"}}'
    assert len(form.read(text, lambda _: None, is_known=True).arguments["x"]) == 3_200_000


def test_numbers_whose_hashes_agree_are_looked_up_at_once() -> None:
    """With Python's hashes, each look-up would go through all the keys before it."""
    many = [BigInt(7 + number * P * 2**10) for number in range(1, 20_001)]
    assert len({hash(int(each)) for each in many}) == 1
    for keys in ([map_key(each) for each in many], [identity(each) for each in many], many):
        assert len({hash(key) for key in keys}) == len(many)
    assert len(unique(many)) == len(many)
    decimals = [Decimal(7 + number * P * 2**10) for number in range(1, 1000)]
    assert len({hash(map_key(each)) for each in decimals}) == len(decimals)
    parts = [Decimal(7 * 10 + number * P * 10) / Decimal(10) + Decimal("0.1") for number in range(1, 300)]
    assert len({hash(map_key(each)) for each in parts}) == len(parts)


def test_equal_numbers_are_one_key_whatever_their_type() -> None:
    groups: list[list[Any]] = [
        [0, 0.0, Decimal("0.0"), BigInt(0)],
        [1, 1.0, Decimal("1.00")],
        [2**63, BigInt(2**63), float(2**63), Decimal(2**63)],
        [-(2**70), BigInt(-(2**70)), -(2.0**70), Decimal(-(2**70))],
        [0.5, Decimal("0.50")],
        [Decimal("0.1"), Decimal("0.10")],
        [0.1, Decimal.from_float(0.1)],
        [float("inf"), Decimal("Infinity")],
        [Decimal("1E5000"), Decimal("10E4999")],
        [10**30, 1e30 if Fraction(1e30) == 10**30 else BigInt(10**30), Decimal("1E30")],
    ]
    keys = [{map_key(each) for each in group} for group in groups]
    assert [len(group) for group in keys] == [1] * len(groups)
    assert len({identity(group[0]) for group in groups}) == len(groups)
    assert len({key for group in keys for key in group}) == len(groups)


def test_identities_of_what_holds_numbers() -> None:
    """Collections of numbers, whose hashes could be foreseen, have ones that cannot."""
    assert identity([1, 2]) == identity([1.0, Decimal(2)]) != identity([2, 1])
    assert identity({"a": [1]}) == identity({"a": [1.0]}) != identity({"a": 1})
    assert identity(unique([1, 2])) == identity(unique([2.0, 1])) != identity([1, 2])


@pytest.mark.parametrize("kind", ["graphson", "graphbinary"])
def test_ids_of_elements_are_plain(kind: str) -> None:
    for wrong in ([1], {"a": 1}, True):
        value = {list: binary_list(INT), dict: binary_map(TEXT, INT), bool: b"\x27\x00\x01"}[type(wrong)]
        message = b"\x11\x00" + value + struct.pack(">i", 0) + b"\xfe\x01"
        json = {"@type": "g:Vertex", "@value": {"id": wrong, "label": "x"}}
        with pytest.raises(Failure, match="id of an element"):
            graphson_read.read(json) if kind == "graphson" else graphbinary_read.read(message)


async def test_requests_of_strangers_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only their envelope is, until their credentials have come; then everything is answered."""
    house = await GremlinHouse.open()
    await house.graph()
    read: list[Any] = []
    reading = graphson_read.read

    def noted(given: Any, *rest: Any) -> Any:
        read.append(given)
        return reading(given, *rest)

    monkeypatch.setattr(graphson_read, "read", noted)
    wire = Wire()
    client = Client(wire)
    bomb = {"@type": "g:BulkSet", "@value": ["a", 10]}
    await house.door.answer(client, framed(asked("g.inject(x)", bindings={"x": bomb})), False)
    await house.door.answer(client, framed(asked("g.inject(2)", "r2")), False)
    assert read == []
    assert [orjson.loads(each)["status"]["code"] for each in wire.sent] == [407, 407]
    await house.door.answer(client, framed(credentials()), False)
    assert len(read) >= 3
    assert [orjson.loads(each)["status"]["code"] for each in wire.sent[2:]][-1] == 200
    await house.close()


async def test_what_strangers_leave_is_bounded() -> None:
    house = await GremlinHouse.open()
    wire = Wire()
    client = Client(wire)
    kept = 0
    for number in range(100):
        await house.door.answer(client, framed(asked("g.inject('" + "x" * 60_000 + "')", f"r{number}")), False)
        kept = max(kept, sum(len(message) for message, *_ in client.pending.values()))
    assert kept <= limits.GREMLIN_PENDING_BYTES_MAX
    assert wire.closed_with is not None
    await house.close()


async def test_long_messages_are_answered() -> None:
    """They are read beside the loop."""
    house = await GremlinHouse.open()
    await house.graph()
    wire = Wire()
    client = Client(wire)
    await house.door.answer(client, framed(credentials()), False)
    await house.door.answer(client, framed(asked("g.inject(x).unfold().count()", bindings={"x": [1] * 100_000})), False)
    answer = orjson.loads(wire.sent[-1])
    assert answer["status"]["code"] == 200
    assert answer["result"]["data"] == [100_000]
    await house.close()

"""Whether the first message of a connection asks for load balancing: the handshakes that drivers send, and garbage."""

from __future__ import annotations

import random
import struct
from typing import Any

import bson
import pytest
from support.mongo_house import frame_of

from armillary import limits
from armillary.doors.mongo.wire.messages import wants_load_balancing


def query_of(body: dict[str, Any], namespace: str = "admin.$cmd") -> bytes:
    content = struct.pack("<i", 4) + namespace.encode() + b"\x00" + struct.pack("<ii", 0, -1) + bson.encode(body)
    return struct.pack("<iiii", 16 + len(content), 1, 0, 2004) + content


CLIENT = {"driver": {"name": "x", "version": "1"}, "loadBalanced": True}
ASKING = [
    frame_of({"hello": 1, "helloOk": True, "loadBalanced": True, "client": CLIENT, "$db": "admin"}),
    query_of({"hello": 1, "loadBalanced": True}),
    query_of({"ismaster": 1, "helloOk": True, "loadBalanced": True}),
    query_of({"$query": {"isMaster": 1, "loadBalanced": True}, "$readPreference": {"mode": "nearest"}}),
]
NOT_ASKING = [
    frame_of({"hello": 1, "$db": "admin", "client": CLIENT}),
    frame_of({"hello": 1, "loadBalanced": False, "$db": "admin"}),
    frame_of({"hello": 1, "loadBalanced": "true", "$db": "admin"}),
    frame_of({"find": "hello", "loadBalanced": True, "$db": "admin"}),
    query_of({"ismaster": 1}),
    query_of({"find": "x", "loadBalanced": True}),
    query_of({"hello": 1, "loadBalanced": True}, "admin.users"),
    frame_of({"$db": "admin"}),
]


@pytest.mark.parametrize("message", ASKING)
def test_asking(message: bytes) -> None:
    assert wants_load_balancing(message) is True
    assert wants_load_balancing(message + b"more") is True


@pytest.mark.parametrize("message", NOT_ASKING)
def test_not_asking(message: bytes) -> None:
    assert wants_load_balancing(message) is False


@pytest.mark.parametrize("message", [*ASKING, *NOT_ASKING])
def test_more_bytes_are_needed(message: bytes) -> None:
    for size in range(len(message)):
        assert wants_load_balancing(message[:size]) is None


def test_garbage() -> None:
    assert wants_load_balancing(b"GET / HTTP/1.1\r\n\r\n") is False
    assert wants_load_balancing(struct.pack("<iiii", limits.MONGO_STRANGER_BYTES_MAX + 1, 1, 0, 2013)) is False
    assert wants_load_balancing(struct.pack("<iiii", -1, 1, 0, 2013)) is False
    assert wants_load_balancing(struct.pack("<iiii", 16, 1, 0, 2013)) is False
    assert wants_load_balancing(struct.pack("<iiii", 100, 1, 0, 2012)) is False  # compressed
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"a": deep}
    assert wants_load_balancing(frame_of({"hello": 1, "loadBalanced": True, "x": deep, "$db": "admin"})) in (
        True,
        False,
    )


def test_damaged_handshakes(seed: int) -> None:
    """Whatever the bytes are, there is an answer."""
    dice = random.Random(seed)
    for _ in range(5_000):
        message = bytearray(dice.choice(ASKING))
        for _ in range(dice.randint(1, 6)):
            message[dice.randrange(16, len(message))] = dice.randrange(256)
        assert wants_load_balancing(bytes(message)) in (True, False)
    for _ in range(5_000):
        assert wants_load_balancing(dice.randbytes(dice.randint(0, 60))) in (True, False, None)

"""Messages of MongoDB's protocol as drivers send them, and clients that send prepared messages only, so that the server
is measured and not the driver.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import bson
import uvloop
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

OP_MSG: Final = 2013
DATABASE: Final = "bench"
REGIONS: Final = 100
_HEADER: Final = struct.Struct("<iiii")
_TIME: Final = {"clusterTime": Timestamp(1, 1), "signature": {"hash": bytes(20), "keyId": Int64(0)}}


def document(number: int) -> dict[str, Any]:
    """A typical document of a kilobyte."""
    return {
        "_id": object_id(number),
        "region": region(number),
        "name": f"name {number}",
        "number": number,
        "decade": number // 10,
        "amount": number % 1000 * 0.25,
        "tags": ["red", "green", "blue"],
        "address": {"street": f"street {number % 977}", "city": "town", "zip": number % 1000},
        "isActive": number % 2 == 0,
        "since": None,
        "text": "x" * 740,
    }


def object_id(number: int) -> ObjectId:
    return ObjectId(number.to_bytes(12, "big"))


def region(number: int) -> str:
    return f"r{number % REGIONS:03}"


def key_of(number: int, *, is_sharded: bool) -> dict[str, Any]:
    """The filter that finds a document by its key."""
    return {"_id": object_id(number), "region": region(number)} if is_sharded else {"_id": object_id(number)}


def message(body: dict[str, Any], documents: Sequence[bytes] = ()) -> bytes:
    content = bytes(4) + b"\x00" + bson.encode({**body, "$db": DATABASE})
    if documents:
        inside = b"documents\x00" + b"".join(documents)
        content += b"\x01" + struct.pack("<i", len(inside) + 4) + inside
    return _HEADER.pack(_HEADER.size + len(content), 1, 0, OP_MSG) + content


def session() -> dict[str, Any]:
    return {"id": Binary(uuid.uuid4().bytes, 4)}


def find_one(collection: str, number: int, lsid: dict[str, Any], *, is_sharded: bool) -> bytes:
    wanted = key_of(number, is_sharded=is_sharded)
    return message(
        {"find": collection, "filter": wanted, "limit": 1, "singleBatch": True, "lsid": lsid, "$clusterTime": _TIME}
    )


def find_decade(collection: str, decade: int, lsid: dict[str, Any]) -> bytes:
    return message({"find": collection, "filter": {"decade": decade}, "lsid": lsid, "$clusterTime": _TIME})


def insert(
    collection: str, documents: Sequence[bytes], number: int, *, is_ordered: bool, lsid: dict[str, Any]
) -> bytes:
    """As insert_many sends it: a retryable write, with a transaction number."""
    body = {
        "insert": collection,
        "ordered": is_ordered,
        "lsid": lsid,
        "txnNumber": Int64(number),
        "$clusterTime": _TIME,
    }
    return message(body, documents)


class _Client(asyncio.Protocol):
    """A client with one message in flight."""

    def __init__(self, messages: Sequence[bytes], first: int, check: Callable[[bytes], None]) -> None:
        self._messages = messages
        self._at = first
        self._check = check
        self._received = bytearray()
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]
        self._send()

    def _send(self) -> None:
        self._at += 1
        self._write(self._messages[self._at % len(self._messages)])

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < int.from_bytes(self._received[:4], "little"):
            return
        if self.count % 512 == 0:
            self._check(bytes(self._received))
        self.count += 1
        self._received.clear()
        self._send()


def rate(
    port: int, messages: Sequence[bytes], *, connections: int, seconds: float, check: Callable[[bytes], None]
) -> float:
    """Answers a second."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        clients: list[_Client] = []
        transports = []
        begun_s = time.perf_counter()
        for each in range(connections):
            client = _Client(messages, each * len(messages) // connections, check)
            transport, _ = await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
            clients.append(client)
            transports.append(transport)
        await asyncio.sleep(seconds)
        taken_s = time.perf_counter() - begun_s
        count = sum(each.count for each in clients)
        for transport in transports:
            transport.abort()
        return count / taken_s

    return uvloop.run(run())


def once(port: int, messages: Iterable[bytes]) -> Iterator[bytes]:
    """Each message sent once, one after the other over one connection, and what was answered."""
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for each in messages:
            connection.sendall(each)
            yield _received(connection)


def _received(connection: socket.socket) -> bytes:
    received = b""
    while len(received) < 4 or len(received) < int.from_bytes(received[:4], "little"):
        piece = connection.recv(1 << 16)
        if not piece:
            raise RuntimeError("the server has closed the connection")
        received += piece
    return received


def answer_of(received: bytes) -> dict[str, Any]:
    return bson.decode(received[_HEADER.size + 5 :])


def check_found(count: int) -> Callable[[bytes], None]:
    def check(received: bytes) -> None:
        answer = answer_of(received)
        found = len(answer["cursor"]["firstBatch"])
        if found != count:
            raise RuntimeError(f"{found} documents were found instead of {count}")

    return check

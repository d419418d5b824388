"""Upper bound of the MongoDB API: a server that decodes every message as Armillary does and answers with the same
stored document. `python -m bench.mongo_echo`.
"""

from __future__ import annotations

import asyncio
import gc
from struct import Struct
from typing import Any, Final

import bson
import uvloop
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from armillary.model.bson.bson_values import CODEC
from bench.mongo_wire import OP_MSG, document

_HEADER: Final = Struct("<iiii")
_OP_QUERY: Final = 2004
_STORED: Final = RawBSONDocument(bson.encode(document(123_456)))
_TIME: Final[dict[str, Any]] = {
    "$clusterTime": {"clusterTime": Timestamp(1, 1), "signature": {"hash": bytes(20), "keyId": Int64(0)}},
    "operationTime": Timestamp(1, 1),
}
_HELLO: Final = {
    "helloOk": True,
    "ismaster": True,
    "isWritablePrimary": True,
    "maxBsonObjectSize": 16 << 20,
    "maxMessageSizeBytes": 48_000_000,
    "maxWriteBatchSize": 100_000,
    "logicalSessionTimeoutMinutes": 30,
    "minWireVersion": 0,
    "maxWireVersion": 21,
    "readOnly": False,
    "ok": 1.0,
}


class _Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        while len(received) >= _HEADER.size:
            size_bytes, number, _, kind = _HEADER.unpack_from(received)
            if len(received) < size_bytes:
                break
            self._write(_answer(received[:size_bytes], number, kind))
            received = received[size_bytes:]
        self._received = received


def _answer(message: bytes, number: int, kind: int) -> bytes:
    if kind == _OP_QUERY:  # the first that a driver sends
        content = Struct("<iqii").pack(8, 0, 0, 1) + bson.encode(_HELLO)
        return _HEADER.pack(_HEADER.size + len(content), number, number, 1) + content
    body = bson.decode(message[_HEADER.size + 5 :], CODEC)
    if "find" in body:
        namespace = f"{body['$db']}.{body['find']}"
        answer: dict[str, Any] = {
            "cursor": {"firstBatch": [_STORED], "id": Int64(0), "ns": namespace},
            "ok": 1.0,
            **_TIME,
        }
    elif "hello" in body or "ismaster" in body:
        answer = _HELLO
    else:
        answer = {"ok": 1.0, **_TIME}
    content = b"\x00\x00\x00\x00\x00" + bson.encode(answer)
    return _HEADER.pack(_HEADER.size + len(content), number, number, OP_MSG) + content


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    gc.freeze()
    print(f"ready mongo=mongodb://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())

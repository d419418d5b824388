"""A proxy of MongoDB's protocol that records commands and answers. Bytes pass as they are; what drivers say by
themselves (hello, sign-in, the end of sessions) is not recorded.
"""

from __future__ import annotations

import asyncio
import json
import struct
from contextlib import suppress
from typing import Any

import bson
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps
from bson.raw_bson import RawBSONDocument
from clients.recording.exchanges import UNRECORDED_PREFIX, Exchange, Recording

HEADER = struct.Struct("<iiii")
OP_MSG = 2013
MORE_TO_COME = 2
_CHECKSUM = 1
_UNRECORDED = frozenset(
    "hello ismaster saslstart saslcontinue authenticate endsessions logout getnonce ping".split()
)  # in lower case


class MongoProxy:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.port = 0  # of the server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        waiting: dict[int, Exchange] = {}
        try:
            await asyncio.gather(
                self._requests(reader, far_writer, waiting), self._answers(far_reader, writer, waiting)
            )
        finally:
            for each in (writer, far_writer):
                each.close()
                with suppress(OSError):
                    await each.wait_closed()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: dict[int, Exchange]
    ) -> None:
        while (message := await read_message(reader)) is not None:
            _, request_id, _, opcode = HEADER.unpack_from(message)
            if opcode == OP_MSG:
                exchange = _request_json(message)
                if exchange is not None:
                    self._recording.begin(exchange)
                    if not exchange["flags"] & MORE_TO_COME:
                        waiting[request_id] = exchange
            writer.write(message)
        waiting.clear()  # the client has left
        writer.close()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: dict[int, Exchange]
    ) -> None:
        while (message := await read_message(reader)) is not None:
            _, _, response_to, opcode = HEADER.unpack_from(message)
            exchange = waiting.pop(response_to, None)
            if exchange is not None and opcode == OP_MSG:
                _, document, _ = parse_message(message)
                exchange["answer"] = to_json(document)
            writer.write(message)
        for exchange in waiting.values():
            exchange["dropped"] = True
        writer.close()


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    try:
        head = await reader.readexactly(HEADER.size)
        return head + await reader.readexactly(HEADER.unpack(head)[0] - HEADER.size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def parse_message(message: bytes) -> tuple[int, RawBSONDocument, dict[str, list[RawBSONDocument]]]:
    """Flags, the document and the sequences of documents of an OP_MSG."""
    (flags,) = struct.unpack_from("<I", message, HEADER.size)
    end = len(message) - (4 if flags & _CHECKSUM else 0)
    place = HEADER.size + 4
    document: RawBSONDocument | None = None
    sequences: dict[str, list[RawBSONDocument]] = {}
    while place < end:
        kind = message[place]
        (size_bytes,) = struct.unpack_from("<i", message, place + 1)
        section = message[place + 1 : place + 1 + size_bytes]
        place += 1 + size_bytes
        if kind == 0:
            document = RawBSONDocument(section)
        else:
            name, _, documents = section[4:].partition(b"\0")
            sequences[name.decode()] = bson.decode_all(documents, _RAW)
    assert document is not None
    return flags & ~_CHECKSUM, document, sequences


_RAW: Any = bson.CodecOptions(document_class=RawBSONDocument)


def to_json(document: Any) -> Any:
    """In MongoDB's extended JSON, which keeps all types."""
    return json.loads(dumps(document, json_options=CANONICAL_JSON_OPTIONS))


def _request_json(message: bytes) -> Exchange | None:
    flags, document, sequences = parse_message(message)
    name = next(iter(document))
    if name.lower() in _UNRECORDED or _is_unrecorded(document.get(name)) or _is_unrecorded(document.get("collection")):
        return None
    return {
        "api": "mongo",
        "flags": flags,
        "document": to_json(document),
        "sequences": {each: to_json(documents) for each, documents in sequences.items()},
    }


def _is_unrecorded(collection: object) -> bool:
    return isinstance(collection, str) and collection.startswith(UNRECORDED_PREFIX)

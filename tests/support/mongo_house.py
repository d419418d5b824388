"""The MongoDB door in process, on an account in memory: commands in, answers out, without a socket."""

from __future__ import annotations

import struct
from typing import Any, Self

import bson

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.clock import Clock, VirtualClock
from armillary.doors.mongo.client import Client
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.doors.mongo.wire import messages
from armillary.model.bson.bson_values import CODEC
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
READ_KEY = "cmVhZC1vbmx5LWtleS1vZi10aGUtdGVzdHMtb2YtYXJtaWxsYXJ5"


class Line:
    """Takes the answers that come without being asked for."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send(self, answer: bytes) -> bool:
        self.sent.append(answer)
        return True

    def retire(self) -> None:
        """The door ends the connection after its last answer; there is none to end here."""


def frame_of(
    body: dict[str, Any], sequences: dict[str, list[Any]] | None = None, *, flags: int = 0, request_id: int = 1
) -> bytes:
    sections = b"\x00" + bson.encode(body, codec_options=CODEC)
    for name, documents in (sequences or {}).items():
        inside = (
            name.encode()
            + b"\x00"
            + b"".join(
                each if isinstance(each, bytes) else bson.encode(each, codec_options=CODEC) for each in documents
            )
        )
        sections += b"\x01" + struct.pack("<i", len(inside) + 4) + inside
    content = struct.pack("<I", flags) + sections
    return struct.pack("<iiii", 16 + len(content), request_id, 0, messages.OP_MSG) + content


def document_in(answer: bytes) -> dict[str, Any]:
    """The document of an answer, whichever kind of message it is."""
    op_code = struct.unpack_from("<i", answer, 12)[0]
    return bson.decode(answer[36 if op_code == messages.OP_REPLY else 21 :], codec_options=CODEC)


class MongoHouse:
    def __init__(self, engine: Engine, account: Account, door: MongoDoor) -> None:
        self.engine, self.account, self.door = engine, account, door
        self.client = self.visitor()

    @classmethod
    async def open(
        cls,
        engine: Engine | None = None,
        clock: Clock | None = None,
        account: AccountSettings | None = None,
        **options: Any,
    ) -> Self:
        engine, clock = engine or MemoryEngine(), clock or VirtualClock()
        opened = await Account.open(engine, clock, account)
        settings = MongoSettings(**{"needs_authentication": False, **options})
        return cls(engine, opened, MongoDoor(opened, (KEY,), (READ_KEY,), settings, machine=clock))

    def visitor(self, *, is_tls: bool = False) -> Client:
        return self.door.welcome(Line(), is_tls=is_tls, remote=("127.0.0.1", 50000), local=("127.0.0.1", 10255))

    async def close(self) -> None:
        await self.door.close()
        await self.account.close()
        await self.engine.close()

    async def send(self, frame: bytes, client: Client | None = None) -> bytes | None:
        client = client or self.client
        return self.door.answer_at_once(client, frame) or await self.door.answer(client, messages.open_frame(frame))

    async def ask(
        self,
        body: dict[str, Any],
        sequences: dict[str, list[Any]] | None = None,
        *,
        client: Client | None = None,
        database: str = "test",
    ) -> dict[str, Any]:
        answer = await self.send(frame_of({**body, "$db": body.get("$db", database)}, sequences), client)
        assert answer, "an answer is expected"
        return document_in(answer)


def mongo_at(account: Account, **options: Any) -> MongoHouse:
    """The door on an account that is open."""
    settings = MongoSettings(**{"needs_authentication": False, **options})
    door = MongoDoor(account, (KEY,), (READ_KEY,), settings, machine=account.clock)
    return MongoHouse(account.engine, account, door)

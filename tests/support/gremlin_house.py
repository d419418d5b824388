"""The Gremlin door in this process: requests in any form, answers as they would go out."""

from __future__ import annotations

import base64
from typing import Any, Self

import orjson
from support.process import KEY

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import Clock, SystemClock
from armillary.doors.gremlin.authentication import Client, Keys, Principal
from armillary.doors.gremlin.door import GremlinDoor, GremlinSettings
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.storage.memory import MemoryEngine

READ_ONLY_KEY = base64.b64encode(b"only for reading" * 4).decode()
JSON = "application/json"
PARTITION_KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


class Wire:
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed_with: int | None = None
        self.is_hung_up = False

    def send(self, message: bytes, is_text: bool) -> None:
        self.sent.append(message)

    async def drained(self) -> None:
        pass

    def close(self, code: int) -> None:
        self.closed_with = code

    def hang_up(self) -> None:
        self.is_hung_up = True


def framed(request: dict[str, Any], form: str = JSON) -> bytes:
    return bytes([len(form)]) + form.encode() + orjson.dumps(request)


def asked(script: Any, request_id: str = "r1", **arguments: Any) -> dict[str, Any]:
    return {"requestId": request_id, "op": "eval", "processor": "", "args": {"gremlin": script, **arguments}}


def credentials(
    user: str = "/dbs/d/colls/g", key: str = KEY, request_id: str = "r1", name: str = "sasl"
) -> dict[str, Any]:
    given = base64.b64encode(f"\0{user}\0{key}".encode()).decode()
    return {"requestId": request_id, "op": "authentication", "processor": "", "args": {name: given}}


class GremlinHouse:
    def __init__(self, engine: MemoryEngine, account: Account, creates: str | None) -> None:
        self.engine, self.account = engine, account
        self.tokens = TokenAuthority(account.settings.name, b"a secret of at least so many bytes", account.clock)
        self.keys = Keys((KEY,), (READ_ONLY_KEY,))
        self.door = GremlinDoor(account, self.keys, GremlinSettings(creates), self.tokens)

    @classmethod
    async def open(cls, creates: str | None = None, *, clock: Clock | None = None, **settings: Any) -> Self:
        engine = MemoryEngine()
        return cls(engine, await Account.open(engine, clock or SystemClock(), AccountSettings(**settings)), creates)

    async def close(self) -> None:
        await self.account.close()
        await self.engine.close()

    async def graph(self, name: str = "g", throughput_ru: int = 400, **body: Any) -> Container:
        database = await containers.create_database(self.account, {"id": "d"}, None)
        given = {"id": name, "partitionKey": PARTITION_KEY, **body}
        return await containers.create_container(self.account, database, given, Throughput.manual(throughput_ru))

    async def send(
        self, client: Client, request: dict[str, Any] | bytes, form: str | None = JSON
    ) -> list[dict[str, Any]]:
        """The answers to one message. Without a form it is a text."""
        assert isinstance(client.line, Wire)
        before = len(client.line.sent)
        if isinstance(request, dict):
            message = orjson.dumps(request) if form is None else framed(request, form)
        else:
            message = request
        await self.door.answer(client, message, form is None)
        return [orjson.loads(each) for each in client.line.sent[before:]]

    def stranger(self) -> Client:
        return Client(Wire())

    def friend(self, *, is_read_only: bool = False, graph: str = "g") -> Client:
        client = Client(Wire())
        client.principal = Principal("d", graph, is_read_only, came_with=KEY.encode())
        return client

    async def answers(self, script: str, client: Client | None = None, **arguments: Any) -> list[dict[str, Any]]:
        return await self.send(client or self.friend(), asked(script, **arguments))

    async def run(self, script: str, **bindings: Any) -> list[Any]:
        """The results of a script that succeeds."""
        answers = await self.answers(script, bindings=bindings)
        assert answers[-1]["status"]["code"] in (200, 204), answers[-1]["status"]
        return [value for answer in answers for value in answer["result"]["data"]]

    async def refusal(self, script: str, client: Client | None = None, **arguments: Any) -> tuple[int, int, str]:
        """Status, x-ms-status-code and message of a script that fails."""
        status = (await self.answers(script, client, **arguments))[-1]["status"]
        assert status["code"] >= 400, status
        return status["code"], status["attributes"]["x-ms-status-code"], status["message"]

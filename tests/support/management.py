"""A management door in this process, and requests with the control key."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Self

import orjson
from support.process import KEY

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.security.credentials import Credentials
from armillary.clock import VirtualClock
from armillary.doors.management.call import ManagementSettings
from armillary.doors.management.door import ManagementDoor
from armillary.net.control_keys import ControlKeys
from armillary.net.http import Request, Response
from armillary.storage.memory import MemoryEngine

CONTROL_KEY = base64.b64encode(b"the control key " * 4).decode()
READ_ONLY_KEY = base64.b64encode(b"only for reading" * 4).decode()
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
VERSION = "?api-version=2025-04-15"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/group"
ACCOUNT = f"{GROUP}/providers/Microsoft.DocumentDB/databaseAccounts/localhost"


class ManagementHouse:
    def __init__(
        self, account: Account, engine: MemoryEngine, credentials: Credentials, *, needs_certificate: bool = False
    ) -> None:
        self.account, self.engine, self.credentials = account, engine, credentials
        self.door = ManagementDoor(
            account,
            ControlKeys("management", CONTROL_KEY, READ_ONLY_KEY, needs_certificate=needs_certificate),
            credentials,
            ManagementSettings(),
        )
        self.door.addresses = {"sql": "http://localhost:8081", "mongo": "mongodb://localhost:10255"}

    @classmethod
    async def open(
        cls, settings: AccountSettings | None = None, engine: MemoryEngine | None = None, **options: Any
    ) -> Self:
        engine = engine or MemoryEngine()
        account = await Account.open(engine, VirtualClock(), settings)
        credentials = await Credentials.open(account, (KEY, None, READ_ONLY_KEY, None))
        return cls(account, engine, credentials, **options)

    async def close(self) -> None:
        await self.account.close()
        await self.engine.close()

    async def send(
        self, method: str, target: str | bytes, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        given = {"host": "localhost", "authorization": f"Bearer {CONTROL_KEY}", **(headers or {})}
        raw = {name.encode(): value.encode("latin-1") for name, value in given.items() if value}
        if isinstance(target, str):
            target = target.encode()
        return await self.door.answer(Request(method, target, raw, body, False, "127.0.0.1"))

    async def ask(self, method: str, path: str, content: Any = None, key: str = CONTROL_KEY) -> Response:
        """`path`: after the account."""
        headers = {"authorization": f"Bearer {key}"}
        if content is None:
            return await self.send(method, f"{ACCOUNT}{path}{VERSION}", headers)
        headers["content-type"] = "application/json"
        return await self.send(method, f"{ACCOUNT}{path}{VERSION}", headers, orjson.dumps(content))

    async def get(self, path: str) -> Any:
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer.body
        return orjson.loads(answer.body)

    async def put(self, path: str, resource: Any, **options: Any) -> Any:
        """Of a PUT that succeeds, the answered resource."""
        answer = await self.ask("PUT", path, {"properties": {"resource": resource, "options": options}})
        assert answer.status == 200, answer.body
        return orjson.loads(answer.body)["properties"]["resource"]


def error_of(answer: Response) -> tuple[int, str, str]:
    """Status, code and message."""
    error = orjson.loads(answer.body)["error"]
    return answer.status, error["code"], error["message"]

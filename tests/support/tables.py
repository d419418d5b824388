"""Tables and their door in process, and a plain evaluator of filters to hold the compiled ones against: it reads the
text with its own few lines and knows neither conditions nor an index.
"""

from __future__ import annotations

import base64
import hmac
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any, Self

import orjson
from support.process import KEY

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.queries import item_pages
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.doors.table.access.authentication import Keys
from armillary.doors.table.call import TableSettings
from armillary.doors.table.door import TableDoor
from armillary.doors.table.entities.entities import Form, entity_json, item_of, read_entity
from armillary.languages.odata.compile import compile_filter
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType
from armillary.net.http import Request, Response
from armillary.storage.memory import MemoryEngine

Headers = dict[bytes, bytes]

READ_ONLY_KEY = base64.b64encode(b"only for reading" * 4).decode()
PARTITION_KEY = {"paths": ["/$pk"], "kind": "Hash", "version": 2}
NO_INDEX = {"indexingMode": "none", "automatic": False}


async def new_table(account: Account, name: str = "people", throughput_ru: int = 400, **policies: Any) -> Container:
    if account.catalog.find(ResourceType.DATABASE, b"", "TablesDB") is None:
        await containers.create_database(account, {"id": "TablesDB"}, None)
    body = {"id": name, "partitionKey": PARTITION_KEY, **policies}
    return await containers.create_container(
        account, account.database("TablesDB"), body, Throughput.manual(throughput_ru)
    )


async def put(account: Account, table: Container, *entities: dict[str, Any]) -> None:
    for entity in entities:
        sent = read_entity(entity)
        assert sent.partition_key is not None and sent.row_key is not None
        item = item_of(sent.partition_key, sent.row_key, sent.members)
        await items.upsert(table, item, ItemOptions(key=Key((sent.partition_key,))), account.clock)


async def filtered(account: Account, table: Container, text: str, page_items: int = 1000) -> list[dict[str, Any]]:
    """The entities that a filter finds, all pages joined, in their order."""
    selection = compile_filter(text).selection()
    found: list[dict[str, Any]] = []
    continuation = None
    while True:
        options = FeedOptions(page_items=page_items, continuation=continuation)
        page = await item_pages.select(account, table, selection, text.encode(), options)
        for row in page.rows:
            entity = entity_json(orjson.loads(row), Form())
            assert entity is not None
            found.append(entity)
        continuation = page.continuation
        if continuation is None:
            return found


class TableHouse:
    """A Table door in this process. Requests are signed with the account's key unless they bring a signature."""

    def __init__(self, account: Account, engine: MemoryEngine, settings: TableSettings) -> None:
        self.account, self.engine = account, engine
        self.door = TableDoor(account, Keys([KEY], [READ_ONLY_KEY]), settings, signing_clock=account.clock)

    @classmethod
    async def open(
        cls, engine: MemoryEngine | None = None, account_settings: AccountSettings | None = None, **settings: Any
    ) -> Self:
        engine = engine or MemoryEngine()
        account = await Account.open(engine, VirtualClock(), account_settings)
        return cls(account, engine, TableSettings(**settings))

    async def close(self) -> None:
        await self.account.close()
        await self.engine.close()

    def signed(self, method: str, target: str | bytes, headers: Mapping[str, str], *, is_lite: bool = False) -> Headers:
        raw = target.encode() if isinstance(target, str) else target
        path, _, query = raw.partition(b"?")
        given = {name.lower().encode(): value.encode("latin-1") for name, value in headers.items()}
        made = {
            b"host": b"localhost",
            b"x-ms-date": formatdate(self.account.clock.now_s(), usegmt=True).encode(),
            **given,
        }
        comp = next((each for each in query.split(b"&") if each.startswith(b"comp=")), None)
        resource = b"/localhost" + path + (b"?" + comp if comp is not None else b"")
        text = made[b"x-ms-date"] + b"\n" + resource
        if not is_lite:
            text = (
                b"%b\n%b\n%b\n" % (method.encode(), made.get(b"content-md5", b""), made.get(b"content-type", b""))
                + text
            )
        mac = hmac.digest(base64.b64decode(KEY), text, "sha256")
        scheme = b"SharedKeyLite" if is_lite else b"SharedKey"
        return {b"authorization": b"%b localhost:%b" % (scheme, base64.b64encode(mac)), **made}

    async def ask(
        self, method: str, target: str | bytes, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        raw = target.encode() if isinstance(target, str) else target
        given = dict(headers or {})
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        if content and "content-type" not in {name.lower() for name in given}:
            given["Content-Type"] = "application/json"
        return await self.send(method, raw, self.signed(method, raw, given), content)

    async def send(self, method: str, target: bytes, headers: Headers, body: bytes = b"") -> Response:
        return await self.door.answer(Request(method, target, headers, body, False, "127.0.0.1"))


def header(response: Response, name: str) -> str | None:
    return next((value.decode("latin-1") for each, value in response.headers if each == name.encode()), None)


def error_of(response: Response) -> tuple[int, str, str]:
    """Status, code and message."""
    error = orjson.loads(response.body)["odata.error"]
    return response.status, error["code"], error["message"]["value"]


# The reference.

_WORDS = re.compile(r"\s*([A-Za-z]*'(?:[^']|'')*'|[()]|[^\s()']+)")


def reference(text: str, entity: dict[str, Any]) -> bool:
    """Whether a filter keeps an entity in wire form."""
    words = _WORDS.findall(text)
    result, rest = _either(words, entity)
    assert not rest, rest
    return result is True


def _either(words: list[str], entity: dict[str, Any]) -> tuple[bool | None, list[str]]:
    results = []
    while True:
        result, words = _both(words, entity)
        results.append(result)
        if not words or words[0] != "or":
            return (True if True in results else None if None in results else False), words
        words = words[1:]


def _both(words: list[str], entity: dict[str, Any]) -> tuple[bool | None, list[str]]:
    results = []
    while True:
        result, words = _one(words, entity)
        results.append(result)
        if not words or words[0] != "and":
            return (False if False in results else None if None in results else True), words
        words = words[1:]


def _one(words: list[str], entity: dict[str, Any]) -> tuple[bool | None, list[str]]:
    if words[0] == "not":
        result, rest = _one(words[1:], entity)
        return (None if result is None else not result), rest
    if words[0] == "(":
        result, rest = _either(words[1:], entity)
        assert rest[0] == ")"
        return result, rest[1:]
    left = _operand(words[0], entity)
    if len(words) == 1 or words[1] not in _COMPARED:
        return (left[1] if left is not None and left[0] == "bool" else None), words[1:]
    right = _operand(words[2], entity)
    if left is None or right is None or left[0] != right[0]:
        return None, words[3:]
    return _COMPARED[words[1]](left[1], right[1]), words[3:]


_COMPARED: dict[str, Any] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _operand(word: str, entity: dict[str, Any]) -> tuple[str, Any] | None:
    """A type and a comparable value; None: the entity has no such property."""
    constant = _constant(word)
    if constant is not None:
        return constant
    if word not in entity:
        return None
    value, annotation = entity[word], entity.get(f"{word}@odata.type")
    if word == "Timestamp":
        annotation = "Edm.DateTime"
    match annotation:
        case "Edm.DateTime":
            return "time", _moment(value)
        case "Edm.Guid":
            return "guid", value.lower()
        case "Edm.Binary":
            return "bytes", base64.b64decode(value)
        case "Edm.Int64":
            return "number", int(value)
        case "Edm.Double":
            return "number", float(value)
    if isinstance(value, bool):
        return "bool", value
    return ("number", value) if isinstance(value, int | float) else ("text", _units(value))


def _constant(word: str) -> tuple[str, Any] | None:
    if word.startswith("'"):
        return "text", _units(word[1:-1].replace("''", "'"))
    if word.endswith("'"):
        prefix, _, text = word[:-1].partition("'")
        if prefix == "datetime":
            return "time", _moment(text)
        return ("guid", text.lower()) if prefix == "guid" else ("bytes", bytes.fromhex(text))
    if word in ("true", "false"):
        return "bool", word == "true"
    if word in ("NaN", "INF", "-INF"):
        return "number", {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}[word]
    if re.fullmatch(r"-?[0-9]+L?", word):
        return "number", int(word.rstrip("L"))
    if re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", word):
        return "number", float(word)
    return None


def _units(text: str) -> bytes:
    return text.encode("utf-16-be")


def _moment(text: str) -> tuple[datetime, int]:
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(whole).replace(tzinfo=UTC), int(fraction.ljust(7, "0") or 0)

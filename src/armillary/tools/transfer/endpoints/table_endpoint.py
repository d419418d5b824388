"""A table of an Azure Tables endpoint as source and sink: entities become items with `RowKey` as their id, and items
entities. Storage accounts, Azurite and Cosmos DB speak it alike; requests are signed by SharedKeyLite.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import orjson

from armillary.errors import Failure, Kind, bad_request
from armillary.model.edm import INT32_MAX, INT32_MIN
from armillary.tools.transfer.endpoints.http_client import TIMEOUT_S, Answer, HttpClient
from armillary.tools.transfer.endpoints.retries import Retries
from armillary.tools.transfer.rows import PAGE_ROWS, BadRow, Document, Page, Position, Row, Written, bad_row

_API_VERSION: Final = "2019-02-02"
_ACCEPT: Final = ("accept", "application/json;odata=minimalmetadata")
_PASSING: Final = frozenset((408, 429, 500, 503))
_KEYS: Final = ("PartitionKey", "RowKey")
_NUMBERS: Final = {"Edm.Int64": int, "Edm.Double": float}


class TableEndpoint:
    """`url` ends in the table's name; in front of it may stand the account's, as in Azurite's addresses."""

    def __init__(self, url: str, key: str, certificate: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._http = HttpClient(url, certificate, timeout_s=timeout_s)
        parts = urlsplit(url)
        segments = [each for each in parts.path.split("/") if each]
        if not 1 <= len(segments) <= 2:
            raise bad_request("A table is named as table:https://account.table.core.windows.net/name.")
        self.table = segments[-1]
        self._prefix = f"/{segments[0]}" if len(segments) == 2 else ""
        self._account = segments[0] if len(segments) == 2 else (parts.hostname or "").partition(".")[0]
        self.url = f"{self._http.url}{self._prefix}"
        try:
            self._key = b64decode(key, validate=True)
        except (Base64Error, ValueError):
            raise bad_request(f"The key of {self.url} is not base64.") from None

    async def send(
        self, method: str, path: str, query: str = "", headers: tuple[tuple[str, str], ...] = (), body: bytes = b""
    ) -> Answer:
        """Until there is an answer that is final: also one that is a refusal."""
        target = f"{self._prefix}/{path}"
        retries = Retries()
        while True:
            date = formatdate(usegmt=True)
            signed = hmac.digest(self._key, f"{date}\n/{self._account}{target}".encode(), "sha256")
            own = (
                ("authorization", f"SharedKeyLite {self._account}:{b64encode(signed).decode()}"),
                ("x-ms-date", date),
                ("x-ms-version", _API_VERSION),
                ("dataserviceversion", "3.0"),
                _ACCEPT,
            )
            try:
                answer = await self._http.request(method, target + query, (*own, *headers), body)
            except Failure:
                if not self._http.has_answered or not await retries.wait():
                    raise
                continue
            pause_ms = answer.headers.get("x-ms-retry-after-ms") if answer.status == 429 else None
            if answer.status not in _PASSING or not await retries.wait(float(pause_ms) if pause_ms else None):
                return answer

    def refusal(self, answer: Answer) -> Failure:
        kinds = {401: Kind.UNAUTHORIZED, 403: Kind.FORBIDDEN, 404: Kind.NOT_FOUND}
        return Failure(kinds.get(answer.status, Kind.BAD_REQUEST), f"{self.url}: {_message(answer)}")

    def close(self) -> None:
        self._http.close()


class TableSource:
    def __init__(self, endpoint: TableEndpoint) -> None:
        self._endpoint = endpoint
        self.identity: Document = {"endpoint": endpoint.url, "table": endpoint.table}

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        number = position["row"] if position else 0
        following: dict[str, str] | None = position["next"] if position else {}
        while following is not None:
            pieces = [f"$top={PAGE_ROWS}", *(f"{name}={quote(value, safe='')}" for name, value in following.items())]
            answer = await self._endpoint.send("GET", f"{self._endpoint.table}()", "?" + "&".join(pieces))
            if answer.status >= 400:
                raise self._endpoint.refusal(answer)
            rows: list[Row | BadRow] = []
            for entity in orjson.loads(answer.body)["value"]:
                number += 1
                rows.append(Row(number, _item(entity)))
            found = {
                name: answer.headers[header]
                for name in ("NextPartitionKey", "NextRowKey")
                if (header := f"x-ms-continuation-{name.lower()}") in answer.headers
            }
            following = found or None
            yield Page(rows, {"row": number, "next": following}, None)

    async def close(self) -> None:
        self._endpoint.close()


class TableSink:
    is_ordered = False
    is_resumable = True

    def __init__(self, endpoint: TableEndpoint, parallel: int) -> None:
        self._endpoint = endpoint
        self._gate = asyncio.Semaphore(parallel)
        self.rows_ahead = 0

    async def open(self, position: Position | None) -> None:
        body = orjson.dumps({"TableName": self._endpoint.table})
        answer = await self._endpoint.send("POST", "Tables", headers=(("content-type", "application/json"),), body=body)
        if answer.status >= 400 and answer.status != 409:
            raise self._endpoint.refusal(answer)

    async def write(self, rows: list[Row]) -> Written:
        outcomes = await asyncio.gather(*[self._put(row) for row in rows])
        bad = [each for each in outcomes if each is not None]
        self.rows_ahead -= len(rows)
        return Written(len(rows) - len(bad), 0.0, bad)

    async def _put(self, row: Row) -> BadRow | None:
        try:
            entity = _entity(row.document)
            body = orjson.dumps(entity)
        except (ValueError, TypeError) as error:
            self.rows_ahead += 1
            return bad_row(row.number, f"{error}.", row.document)
        keys = ",".join(f"{name}='{quote(entity[name].replace(chr(39), chr(39) * 2), safe='')}'" for name in _KEYS)
        headers = (("content-type", "application/json"),)
        async with self._gate:
            answer = await self._endpoint.send("PUT", f"{self._endpoint.table}({keys})", headers=headers, body=body)
        if answer.status in (401, 403, 404) or answer.status >= 500:
            raise self._endpoint.refusal(answer)
        self.rows_ahead += 1
        return bad_row(row.number, _message(answer), row.document) if answer.status >= 400 else None

    def position(self) -> Position:
        return None

    async def close(self, *, is_complete: bool) -> None:
        self._endpoint.close()


def _item(entity: Document) -> Document:
    """Types that JSON has no form for stay as the text that they came as."""
    item: Document = {"id": entity.get("RowKey")}
    for name, value in entity.items():
        if "odata." in name or name == "Timestamp":
            continue
        convert = _NUMBERS.get(entity.get(f"{name}@odata.type", ""))
        try:
            item["_id" if name == "id" else name] = convert(value) if convert is not None else value
        except ValueError:
            item[name] = value  # NaN and the like
    return item


def _entity(item: Document) -> Document:
    entity: Document = {}
    for name, value in item.items():
        if value is None or (name == "id" and "RowKey" in item):
            continue
        if isinstance(value, dict | list):
            entity[name] = orjson.dumps(value).decode()
        else:
            entity[name] = value
            if type(value) is int and not INT32_MIN <= value <= INT32_MAX:
                entity[name], entity[f"{name}@odata.type"] = str(value), "Edm.Int64"
            elif type(value) is float:
                entity[f"{name}@odata.type"] = "Edm.Double"
    entity.setdefault("RowKey", entity.pop("id", None))
    for name in _KEYS:
        if type(entity.get(name)) is not str:
            raise ValueError(f"an entity needs a '{name}' that is a text; make one with --synthetic-key")
    return entity


def _message(answer: Answer) -> str:
    try:
        content: Any = orjson.loads(answer.body)
        return str(content["odata.error"]["message"]["value"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return f"It answers {answer.status}."

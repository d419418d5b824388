"""Writing rows to a container: upserts in bulk requests to the physical partition that each row belongs to, which is
worked out here as the SDKs do. What is throttled or moved meanwhile is sent again; what the server refuses for good is
a bad row. Upserts may be repeated, so whatever is unknown after a failure is simply done again. Rows of one item are
sent one after the other, so that the last one stays.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import orjson

from armillary import limits
from armillary.errors import Failure
from armillary.model.keys import PartitionKeyDefinition, to_header
from armillary.model.values import UNDEFINED
from armillary.tools.transfer.endpoints.adaptive_gate import AdaptiveGate
from armillary.tools.transfer.endpoints.cosmos import (
    PASSING,
    THROTTLED,
    ContainerLink,
    CosmosEndpoint,
    Range,
    charge_of,
    message_of,
    refusal,
)
from armillary.tools.transfer.endpoints.retries import Retries
from armillary.tools.transfer.rows import BadRow, Position, Row, Written, bad_row, json_text

# Whole requests are limited to 2 MB; larger items go alone, and the server says whether it takes them.
_REQUEST_BYTES_MAX: Final = limits.BATCH_BYTES_MAX // 2
_FATAL: Final = frozenset((401, 404))  # of a whole request: the same would come of every other one
_KEY_FULL: Final = "1014"  # of 403: one partition key can hold no more, others can
_HEADERS: Final = (
    ("x-ms-cosmos-is-batch-request", "True"),
    ("x-ms-cosmos-batch-atomic", "False"),
    ("x-ms-cosmos-batch-continue-on-error", "True"),
    ("content-type", "application/json"),
    ("prefer", "return=minimal"),
)


class _Upsert(NamedTuple):
    row: Row
    epk: bytes
    text: bytes  # the operation as it stands in a request

    @property
    def item(self) -> _Item:
        return self.epk, self.row.document["id"]


_Item = tuple[bytes, str]  # what an upsert may overwrite


class CosmosSink:
    is_ordered = False
    is_resumable = True

    def __init__(self, endpoint: CosmosEndpoint, place: ContainerLink, parallel: int) -> None:
        self._endpoint = endpoint
        self._place = place
        self._parallel = parallel
        self._at_once = asyncio.Semaphore(parallel)  # requests to all partitions
        self._gates: dict[str, AdaptiveGate] = {}  # each partition has a budget of its own
        self._key: PartitionKeyDefinition | None = None
        self._ranges: list[Range] = []
        self._lows: list[bytes] = []
        self.rows_ahead = 0
        self._busy: dict[_Item, asyncio.Event] = {}  # set when the last write of the item is done

    async def open(self, position: Position | None) -> None:
        self._key = await self._endpoint.key_definition(self._place)
        await self._read_ranges()

    def position(self) -> Position:
        return None  # what was acknowledged is there

    async def close(self, *, is_complete: bool) -> None:
        self._endpoint.close()

    async def write(self, rows: list[Row]) -> Written:
        written = _Tally()
        upserts: list[_Upsert] = []
        for row in rows:
            try:
                upserts.append(self._upsert(row, written))
            except Failure as failure:
                written.bad.append(bad_row(row.number, failure.message, row.document))
            except ValueError as error:
                written.bad.append(bad_row(row.number, str(error), row.document))
        async with self._in_turn([each.item for each in upserts]):
            for wave in _waves(upserts):
                await self._write_wave(wave, written)
        self.rows_ahead -= written.rows
        return Written(
            written.rows, written.charge_ru, written.bad, written.refused, written.refused_ru, written.without_key
        )

    @property
    def key_paths(self) -> str:
        return f" ({', '.join(self._key.paths)})" if self._key is not None else ""

    @asynccontextmanager
    async def _in_turn(self, items: Sequence[_Item]) -> AsyncIterator[None]:
        """After the pages before this one that have rows of the same items."""
        done = asyncio.Event()
        earlier = [each for each in dict.fromkeys(map(self._busy.get, items)) if each is not None]
        self._busy.update(dict.fromkeys(items, done))
        try:
            for each in earlier:
                await each.wait()
            yield
        finally:
            for item in items:
                if self._busy.get(item) is done:
                    del self._busy[item]
            done.set()

    async def _write_wave(self, upserts: list[_Upsert], written: _Tally) -> None:
        retries = Retries()
        while upserts:
            requests = self._requests(upserts)
            left = await asyncio.gather(*[self._send(range_id, each, written) for range_id, each in requests])
            upserts = [upsert for each in left for upsert in each]
            if upserts:  # their partitions were split or merged
                await self._read_ranges()
                if not await retries.wait():
                    for upsert in upserts:
                        written.bad.append(bad_row(upsert.row.number, "Its partition is gone.", upsert.row.document))
                    break

    async def _read_ranges(self) -> None:
        self._ranges = await self._endpoint.ranges(self._place)
        self._lows = [each.low for each in self._ranges]

    def _upsert(self, row: Row, written: _Tally) -> _Upsert:
        item_id = row.document.get("id")
        if type(item_id) is not str or not item_id:
            raise ValueError("it has no 'id' that is a text; say with --id what the id is made of")
        if self._key is None:
            header, epk = "[]", b""
        else:
            key = self._key.extract(row.document)
            if not self._key.is_system and UNDEFINED in key:
                written.without_key += 1
            header, epk = to_header(key), self._key.effective_key(key)
        body = json_text(row)
        text = b'{"operationType":"Upsert","partitionKey":%b,"resourceBody":%b}' % (orjson.dumps(header), body)
        return _Upsert(row, epk, text)

    def _requests(self, upserts: Sequence[_Upsert]) -> list[tuple[str, list[_Upsert]]]:
        """What goes to one partition in one request."""
        open_requests: dict[int, list[_Upsert]] = {}
        sizes: dict[int, int] = {}
        made: list[tuple[str, list[_Upsert]]] = []
        for upsert in upserts:
            number = max(0, bisect_right(self._lows, upsert.epk) - 1)
            request = open_requests.get(number)
            size_bytes = sizes.get(number, 0) + len(upsert.text) + 1
            is_full = request is not None and (
                len(request) >= limits.BATCH_OPERATIONS_MAX or size_bytes > _REQUEST_BYTES_MAX
            )
            if request is None or is_full:
                request = open_requests[number] = []
                size_bytes = len(upsert.text) + 1
                made.append((self._ranges[number].id, request))
            request.append(upsert)
            sizes[number] = size_bytes
        return made

    async def _send(self, range_id: str, upserts: list[_Upsert], written: _Tally) -> list[_Upsert]:
        """What another partition has to be asked for."""
        headers = (*_HEADERS, ("x-ms-documentdb-partitionkeyrangeid", range_id))
        moved: list[_Upsert] = []
        retries = Retries()
        later: list[_Upsert] = []
        gate = self._gates.setdefault(range_id, AdaptiveGate(self._parallel, limits.BATCH_OPERATIONS_MAX))
        while upserts or later:
            async with gate.passed():
                waiting = [*upserts, *later]
                upserts, later = waiting[: gate.operations], waiting[gate.operations :]
                body = b"[%b]" % b",".join([each.text for each in upserts])
                async with self._at_once:
                    answer = await self._endpoint.send(
                        "POST", "docs", self._place.link, f"{self._place.target}/docs", headers, body
                    )
                results: list[dict[str, Any]] = orjson.loads(answer.body) if answer.status < 400 else []
                refused, pause_ms = written.charge(charge_of(answer), results)
                whole = self._endpoint.take_refused()
                written.refused += whole
                gate.answered(len(upserts) - refused, refused + whole)
                if pause_ms is not None:  # no other request to the partition takes the place meanwhile
                    await retries.wait(pause_ms)
            if answer.status == 410:
                return moved + upserts + later
            is_forbidden = answer.status == 403 and answer.headers.get("x-ms-substatus") != _KEY_FULL
            if answer.status in _FATAL or answer.status >= 500 or is_forbidden:
                raise refusal(answer, self._endpoint.url)
            if answer.status >= 400:
                if len(upserts) == 1:
                    written.refuse(upserts[0], message_of(answer))
                    upserts = []
                    continue
                # One of them is at fault, and the answer does not say which.
                for each in upserts:
                    moved += await self._send(range_id, [each], written)
                upserts = []
                continue
            again: list[_Upsert] = []
            is_passing = False
            for upsert, result in zip(upserts, results, strict=True):
                status = result["statusCode"]
                if status < 300:
                    written.rows += 1
                    self.rows_ahead += 1
                elif status == THROTTLED:
                    again.append(upsert)
                elif status in PASSING:
                    again.append(upsert)
                    is_passing = True
                elif status == 410:
                    moved.append(upsert)
                else:
                    written.refuse(upsert, str(result.get("message") or f"It is refused with {status}."))
            upserts = again
            if is_passing and pause_ms is None and not await retries.wait():
                raise refusal(answer, self._endpoint.url)
        return moved


def _waves(upserts: Iterable[_Upsert]) -> list[list[_Upsert]]:
    """Of one item there is one in each: one wave, nearly always."""
    waves: list[list[_Upsert]] = []
    counts: dict[_Item, int] = {}
    for upsert in upserts:
        number = counts.get(upsert.item, 0)
        counts[upsert.item] = number + 1
        if number == len(waves):
            waves.append([])
        waves[number].append(upsert)
    return waves


class _Tally:
    """What has come of a page so far; its requests run at once."""

    def __init__(self) -> None:
        self.rows = 0
        self.charge_ru = 0.0
        self.bad: list[BadRow] = []
        self.refused = self.without_key = 0
        self.refused_ru = 0.0

    def charge(self, total_ru: float, results: list[dict[str, Any]]) -> tuple[int, float | None]:
        """Counts the charge of an answer, that of refused operations apart. Returns how many were refused, and how long
        to wait before they are sent again."""
        refused = [each for each in results if each["statusCode"] == THROTTLED]
        refused_ru = sum(float(each.get("requestCharge") or 0) for each in refused)
        self.charge_ru += total_ru - refused_ru
        self.refused += len(refused)
        self.refused_ru += refused_ru
        pause_ms = max((float(each.get("retryAfterMilliseconds") or 100) for each in refused), default=None)
        return len(refused), pause_ms

    def refuse(self, upsert: _Upsert, reason: str) -> None:
        self.bad.append(bad_row(upsert.row.number, reason, upsert.row.document))

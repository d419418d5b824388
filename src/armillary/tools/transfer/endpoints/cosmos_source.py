"""Reading the items of a container, or those of one partition key, partition after partition; or the rows of a query.
A place in the items is a list of stretches of the hash space that are still to be read, the first one perhaps with a
continuation: what splits or merges meanwhile goes on in what became of it, and every item comes once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, TypeAlias

import orjson

from armillary.errors import Failure, Kind, bad_request
from armillary.model.items import strip_system_properties
from armillary.tools.transfer.endpoints.cosmos import ContainerLink, CosmosEndpoint, Range, charge_of
from armillary.tools.transfer.rows import PAGE_ROWS, Document, Page, Position, Row

KeyPart: TypeAlias = str | float | bool | None


class _Stretch(NamedTuple):
    low: bytes
    high: bytes
    continuation: str | None


class CosmosSource:
    def __init__(self, endpoint: CosmosEndpoint, place: ContainerLink, key: Sequence[KeyPart] = ()) -> None:
        """`key`: a partition key, or the first parts of a hierarchical one; empty: all items."""
        self._endpoint = endpoint
        self._place = place
        self._key = key
        self._is_full_key = False
        self.identity: Document = {"endpoint": endpoint.url, "container": place.link}
        if key:
            self.identity["key"] = list(key)

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        ranges = await self._endpoint.ranges(self._place)
        left = [_Stretch(each.low, each.high, None) for each in ranges]
        if self._key:
            left = [_Stretch(*await self._key_bounds(), None)]
        number = 0
        if position is not None:
            number = position["row"]
            left = [_Stretch(bytes.fromhex(low), bytes.fromhex(high), rest) for low, high, rest in position["left"]]
        total = _covered(left)
        while left:
            stretch, *later = left
            owners = [each for each in ranges if each.low < stretch.high and stretch.low < each.high]
            if not owners:
                raise Failure(Kind.UNAVAILABLE, f"The partitions of {self._place.link} leave a gap.")
            if len(owners) > 1:
                left = [*(_clipped(stretch, each) for each in owners), *later]
                continue
            answer = await self._page(owners[0], stretch)
            if answer is None:
                ranges = await self._endpoint.ranges(self._place)
                continue
            documents, continuation, charge_ru = answer
            left = [stretch._replace(continuation=continuation), *later] if continuation is not None else later
            rows = [
                Row(number + index, strip_system_properties(document)) for index, document in enumerate(documents, 1)
            ]
            number += len(rows)
            behind = {"row": number, "left": [[each.low.hex(), each.high.hex(), each.continuation] for each in left]}
            yield Page(rows, behind, 1 - _covered(left) / total if total else None, charge_ru)

    async def _key_bounds(self) -> tuple[bytes, bytes]:
        """The stretch of the hash space that holds the items of the key, alone or with others."""
        definition = await self._endpoint.key_definition(self._place)
        if definition is None or definition.is_system:
            raise bad_request(f"{self._place.link} has no partition key: leave --partition-key-value out.")
        if len(self._key) > len(definition.paths):
            raise bad_request(
                f"{self._place.link} is partitioned by {', '.join(definition.paths)}: give --partition-key-value at "
                f"most {len(definition.paths)} times."
            )
        key = definition.parse_header(key_header(self._key))
        if len(key) < len(definition.paths):
            return definition.prefix_range(key)
        self._is_full_key = True
        epk = definition.effective_key(key)
        return epk, epk + b"\x00"

    async def _page(self, owner: Range, stretch: _Stretch) -> tuple[list[Document], str | None, float] | None:
        """Items, where they go on, and the charge; None: the partition is gone."""
        headers = [("x-ms-max-item-count", str(PAGE_ROWS))]
        if self._is_full_key:
            headers.append(("x-ms-documentdb-partitionkey", key_header(self._key)))
        else:
            headers.append(("x-ms-documentdb-partitionkeyrangeid", owner.id))
        if not self._is_full_key and (owner.low, owner.high) != (stretch.low, stretch.high):
            headers += [
                ("x-ms-read-key-type", "EffectivePartitionKeyRange"),
                ("x-ms-start-epk", stretch.low.hex().upper()),
                ("x-ms-end-epk", stretch.high.hex().upper()),
            ]
        if stretch.continuation is not None:
            headers.append(("x-ms-continuation", stretch.continuation))
        answer = await self._endpoint.send("GET", "docs", self._place.link, f"{self._place.target}/docs", headers)
        if answer.status == 410:
            return None
        documents: list[Document] = self._endpoint.content(answer)["Documents"]
        return documents, answer.headers.get("x-ms-continuation"), charge_of(answer)

    async def close(self) -> None:
        self._endpoint.close()


class QuerySource:
    """The rows of one SQL query. The server merges the rows of several partitions."""

    def __init__(self, endpoint: CosmosEndpoint, place: ContainerLink, query: str, key: Sequence[KeyPart] = ()) -> None:
        self._endpoint = endpoint
        self._place = place
        self._query = orjson.dumps({"query": query, "parameters": []})
        self._key = key
        self.identity: Document = {"endpoint": endpoint.url, "container": place.link, "query": query, "key": list(key)}

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        number, continuation = (position["row"], position["continuation"]) if position is not None else (0, "")
        while continuation is not None:
            headers = [
                ("content-type", "application/query+json"),
                ("x-ms-documentdb-isquery", "true"),
                ("x-ms-max-item-count", str(PAGE_ROWS)),
                ("x-ms-documentdb-query-enablecrosspartition", "true"),
            ]
            if self._key:
                headers.append(("x-ms-documentdb-partitionkey", key_header(self._key)))
            if continuation:
                headers.append(("x-ms-continuation", continuation))
            target = f"{self._place.target}/docs"
            answer = await self._endpoint.send("POST", "docs", self._place.link, target, headers, self._query)
            documents: list[Document] = self._endpoint.content(answer)["Documents"]
            if not all(isinstance(each, dict) for each in documents):
                raise bad_request("The query yields rows that are no objects. Select objects: SELECT c.id FROM c")
            rows = [Row(number + index, strip_system_properties(each)) for index, each in enumerate(documents, 1)]
            number += len(rows)
            continuation = answer.headers.get("x-ms-continuation")
            yield Page(rows, {"row": number, "continuation": continuation}, None, charge_of(answer))

    async def close(self) -> None:
        self._endpoint.close()


def key_header(key: Sequence[KeyPart]) -> str:
    return json.dumps(list(key))  # in ASCII, as headers must be


def _clipped(stretch: _Stretch, owner: Range) -> _Stretch:
    return stretch._replace(low=max(stretch.low, owner.low), high=min(stretch.high, owner.high))


def _covered(stretches: list[_Stretch]) -> int:
    """How much of the hash space they cover, in its upper sixteen bits."""

    def place(bound: bytes) -> int:
        return min(int.from_bytes(bound[:2].ljust(2, b"\x00"), "big"), 0x4000)  # the two top bits of hashes are clear

    return sum(place(each.high) - place(each.low) for each in stretches)

"""Reading the items of a container, partition after partition. A place is a list of stretches of the hash space that
are still to be read, the first one perhaps with a continuation: what splits or merges meanwhile goes on in what became
of it, and every item comes once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from armillary.errors import Failure, Kind
from armillary.model.items import strip_system_properties
from armillary.tools.transfer.endpoints.cosmos import ContainerLink, CosmosEndpoint, Range, charge_of
from armillary.tools.transfer.rows import PAGE_ROWS, Document, Page, Position, Row


class _Stretch(NamedTuple):
    low: bytes
    high: bytes
    continuation: str | None


class CosmosSource:
    def __init__(self, endpoint: CosmosEndpoint, place: ContainerLink) -> None:
        self._endpoint = endpoint
        self._place = place
        self.identity: Document = {"endpoint": endpoint.url, "container": place.link}

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        ranges = await self._endpoint.ranges(self._place)
        left = [_Stretch(each.low, each.high, None) for each in ranges]
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

    async def _page(self, owner: Range, stretch: _Stretch) -> tuple[list[Document], str | None, float] | None:
        """Items, where they go on, and the charge; None: the partition is gone."""
        headers = [("x-ms-documentdb-partitionkeyrangeid", owner.id), ("x-ms-max-item-count", str(PAGE_ROWS))]
        if (owner.low, owner.high) != (stretch.low, stretch.high):
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


def _clipped(stretch: _Stretch, owner: Range) -> _Stretch:
    return stretch._replace(low=max(stretch.low, owner.low), high=min(stretch.high, owner.high))


def _covered(stretches: list[_Stretch]) -> int:
    """How much of the hash space they cover, in its upper sixteen bits."""

    def place(bound: bytes) -> int:
        return min(int.from_bytes(bound[:2].ljust(2, b"\x00"), "big"), 0x4000)  # the two top bits of hashes are clear

    return sum(place(each.high) - place(each.low) for each in stretches)

"""The orders of `armillary demo`, and a load of writes at a steady rate that does not repeat what is refused, so that
the share of 429s is seen.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, NamedTuple

import orjson

from armillary.errors import Failure, Kind
from armillary.tools.transfer.endpoints.cosmos import THROTTLED, ContainerLink, Signer, message_of
from armillary.tools.transfer.endpoints.http_client import HttpClient

CUSTOMERS: Final = 200
_COUNTRIES: Final = ("de",) * 8 + ("at", "ch")
_UNDER_WAY_MAX: Final = 16


class Outcome(NamedTuple):
    served: int
    refused: int
    seconds: float

    @property
    def refused_share(self) -> float:
        return self.refused / max(1, self.served + self.refused)


def order(number: int) -> dict[str, Any]:
    """Four of five orders are of one country, each customer has as many as any other."""
    return {
        "id": f"order-{number:05}",
        "customerId": f"c-{number % CUSTOMERS:03}",
        "country": _COUNTRIES[number % len(_COUNTRIES)],
        "total": round(20 + number * 7.3 % 180, 2),
        "status": "open" if number % 3 else "paid",
    }


def offer(
    url: str, key: str, place: ContainerLink, property_: str, numbers: range, rate: float | None, *, repeats: bool
) -> Outcome:
    """Writes the orders with these numbers, `rate` a second (None: as fast as they are served). `property_`: that the
    container is partitioned by. `repeats`: what is refused, after the time that the server says, as SDKs do."""
    return asyncio.run(_offer(url, key, place, property_, numbers, rate, repeats=repeats))


async def _offer(
    url: str, key: str, place: ContainerLink, property_: str, numbers: range, rate: float | None, *, repeats: bool
) -> Outcome:
    client, signer, gate = HttpClient(url), Signer(key, url), asyncio.Semaphore(_UNDER_WAY_MAX)
    served = refused = 0
    begun_s = time.monotonic()

    async def write(item: dict[str, Any]) -> None:
        nonlocal served, refused
        headers = [
            *signer.headers("POST", "docs", place.link),
            ("content-type", "application/json"),
            ("x-ms-documentdb-is-upsert", "true"),
            ("x-ms-documentdb-partitionkey", orjson.dumps([item[property_]]).decode()),
        ]
        while True:
            answer = await client.request("POST", f"{place.target}/docs", headers, orjson.dumps(item))
            if answer.status == THROTTLED:
                refused += 1
                if not repeats:
                    return
                await asyncio.sleep(float(answer.headers.get("x-ms-retry-after-ms") or 100) / 1000)
                continue
            if answer.status >= 400:
                raise Failure(Kind.INTERNAL, f"An order was refused: {message_of(answer)}")
            served += 1
            return

    async def within(item: dict[str, Any]) -> None:
        try:
            await write(item)
        finally:
            gate.release()

    try:
        async with asyncio.TaskGroup() as group:
            for place_in_line, number in enumerate(numbers):
                if rate is not None:  # by the schedule, so that a busy machine does not lower the rate
                    await asyncio.sleep(max(0.0, begun_s + place_in_line / rate - time.monotonic()))
                await gate.acquire()
                group.create_task(within(order(number)))
    except* Failure as failures:
        raise failures.exceptions[0] from None
    finally:
        client.close()
    return Outcome(served, refused, time.monotonic() - begun_s)

"""The portal: its data on the server, its pages in a browser (`portal_pages.py`), and what it costs point reads
(`portal_reads.py`). `make bench ARGS="--only portal"`.

Here: what the history of load costs point reads, and how long a heat map takes to make. In this process, on one
account, whose meters in turns count by the rows of the history and by one row, as without it: two accounts differ by
more than the history costs, by where their memory lies. Reads go through the SQL door with their signatures, without
sockets. Figures are processor time of this thread. The ratio is the median over pairs of turns, one right after the
other: the best of sixty turns is the one in which the machine was fastest, and made the ratio 0.88 and 1.02 in two runs
of the same code whose medians were 1.00 and 1.02.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.load_history.columns import divided
from armillary.account.load_history.layers import rows_counted
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import SystemClock, VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.insight.heat import heat_map
from armillary.insight.timeline import Steps
from armillary.net.http import Request
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine
from bench.portal_browser import opened_browser
from bench.portal_pages import PageFigures, measure_pages
from bench.portal_reads import ReadFigures, measure_reads
from bench.portal_watch import PARTITIONS, WatchFigures, measure_watch
from bench.protocol import KEY, partition_header, signed
from bench.sections import Aim, Say, row
from bench.servers import Unavailable

ITEMS: Final = 1_000
AIM_RATIO: Final = 0.98  # of the rate of point reads without a history
ON, OFF = "with a history", "without a history"
_COLUMNS, _PARTITIONS_RU = 360, 200_000
_SMALL_PARTITION_RU: Final = 1_000  # so that 1,000 partitions fit into the most that may be provisioned
_KEY_DEFINITION: Final = {"paths": ["/pk"], "kind": "Hash", "version": 2}


@dataclass
class PortalFigures:
    read_us: dict[str, list[float]] = field(default_factory=lambda: {ON: [], OFF: []})
    heat_ms: float = 0.0
    heat_bytes: int = 0
    watch: WatchFigures = field(default_factory=WatchFigures)
    pages: PageFigures | None = None
    reads: ReadFigures | None = None
    missing: str = ""  # why there are no figures of pages

    @property
    def ratio(self) -> float:
        return median(off / on for off, on in zip(self.read_us[OFF], self.read_us[ON], strict=True))

    def lines(self) -> Iterable[str]:
        yield ""
        yield "portal: point reads through the SQL door in this process, µs of processor time, median of the turns"
        for name, figures in self.read_us.items():
            yield row(name, [f"{median(figures):.2f}"])
        yield row("a heat map of 256 rows by 360 columns, ms of processor time", [f"{self.heat_ms:.1f}"])
        yield row("its values, KB", [f"{self.heat_bytes / 1024:.0f}"])
        for part in self._parts():
            yield from part.lines()
        if self.missing:
            yield f"  not measured: {self.missing}"

    def aims(self) -> Iterable[Aim]:
        yield Aim("point reads with a history, by those without", self.ratio, AIM_RATIO)
        for part in self._parts():
            yield from part.aims()

    def _parts(self) -> Iterable[WatchFigures | PageFigures | ReadFigures]:
        return [part for part in (self.watch, self.pages, self.reads) if part is not None]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> PortalFigures:
    figures = asyncio.run(_measure(directory, turns=15 if is_quick else 60, say=say))
    try:
        with opened_browser() as browser:
            figures.pages = measure_pages(browser, directory / "pages", is_quick=is_quick, say=say)
            figures.reads = measure_reads(browser, directory / "reads", is_quick=is_quick, say=say)
    except Unavailable as reason:
        figures.missing = str(reason)
    return figures


async def _measure(directory: Path, *, turns: int, say: Say) -> PortalFigures:
    figures = PortalFigures()
    async with AsyncExitStack() as opened:
        door, container, requests = await _door(opened, directory / "data")
        for turn in range(turns):
            say(f"portal: turn {turn + 1} of {turns}")
            for name in (ON, OFF) if turn % 2 else (OFF, ON):
                _divide(container, rows_counted(container) if name == ON else 1)
                figures.read_us[name].append(await _reads(door, requests))
    await _measure_heat(figures)
    await _measure_watch(figures, times=turns)
    return figures


async def _door(opened: AsyncExitStack, path: Path) -> tuple[SqlDoor, Container, list[Request]]:
    engine = await RocksEngine.open(path, durability="relaxed")
    opened.push_async_callback(engine.close)
    account = await Account.open(engine, SystemClock())
    opened.push_async_callback(account.close)
    container = await _container(account, 20_000)
    requests = []
    for number in range(ITEMS):
        document = {"id": str(number), "pk": f"key-{number % 200}", "text": "x" * 900}
        await items.create(container, document, ItemOptions(key=container.key_of(document)), account.clock)
        link = f"dbs/bench/colls/items/docs/{number}"
        headers = signed("GET", "docs", link, partition_header(str(number % 200))) | {"host": "127.0.0.1"}
        encoded = {name.lower().encode(): value.encode() for name, value in headers.items()}
        requests.append(Request("GET", f"/{link}".encode(), encoded, b"", False, "127.0.0.1"))
    return SqlDoor(account, AccountKeys(KEY), accepts_aad=False), container, requests


def _divide(container: Container, count: int) -> None:
    for partition in container.partitions.values():
        partition.meter.divide(divided(partition.range, count, 2))


async def _container(account: Account, throughput_ru: int) -> Container:
    database = await containers.create_database(account, {"id": "bench"}, None)
    body = {"id": "items", "partitionKey": _KEY_DEFINITION}
    return await containers.create_container(account, database, body, Throughput.manual(throughput_ru))


async def _reads(door: SqlDoor, requests: list[Request]) -> float:
    begun_s = time.thread_time()
    for request in requests:
        response = await door.answer(request)
        assert response.status == 200, response.body
    return (time.thread_time() - begun_s) / len(requests) * 1e6


async def _measure_heat(figures: PortalFigures) -> None:
    """Of an hour by ten seconds, over partitions of which every row was used in every column."""
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    container = await _container(account, _PARTITIONS_RU)
    meters = {each.range: each.meter for each in container.partitions.values()}
    for _ in range(_COLUMNS):
        for meter in meters.values():
            for bound in meter.load.bounds:
                meter.spend(1.0, bound)
        clock.advance(10)
        await account.history.keep_up()
    steps = Steps.over(clock.now_s() - 3_600, clock.now_s(), limits.HEAT_COLUMNS)
    begun_s = time.thread_time()
    heat = await heat_map(account, container, "ru", steps, limits.HEAT_ROWS)
    figures.heat_ms = (time.thread_time() - begun_s) * 1000
    figures.heat_bytes = len(heat["values"])
    await account.close()


async def _measure_watch(figures: PortalFigures, *, times: int) -> None:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock, AccountSettings(partition_throughput_ru=_SMALL_PARTITION_RU))
    container = await _container(account, PARTITIONS * _SMALL_PARTITION_RU * 6 // 10)
    assert len(container.partitions) == PARTITIONS
    figures.watch = await measure_watch(account, clock, container, times=times)
    await account.close()

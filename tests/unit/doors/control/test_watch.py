"""`GET watch`, `GET events` and the requests that wait: what a page that is open is told, and when."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.limits import WithLimits

from armillary.account.account import Account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.registry import AccountSettings
from armillary.account.reshaping.split_and_merge import POINTS
from armillary.clock import VirtualClock
from armillary.doors.control.door import ControlDoor
from armillary.doors.control.live.watch import partition_rows
from armillary.errors import Failure
from armillary.insight.load_watch import Figures, Watched
from armillary.net.http import Request
from armillary.storage.memory import MemoryEngine

KEY = "Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz"
ORDERS = "databases/shop/containers/orders"


class Desk:
    def __init__(self, account: Account, clock: VirtualClock) -> None:
        self.account = account
        self.clock = clock
        self.door = ControlDoor(account, KEY)

    async def ask(self, method: str, path: str, content: Any = None, status: int = 200) -> Any:
        headers = {b"host": b"localhost", b"authorization": f"Bearer {KEY}".encode()}
        headers |= {b"content-type": b"application/json"}
        body = b"" if content is None else orjson.dumps(content)
        request = Request(method, f"/_armillary/{path}".encode(), headers, body, False, "127.0.0.1")
        response = await self.door.answer(request)
        assert response.status == status, response.body
        return orjson.loads(response.body)

    async def write(self, key: str, number: int = 0, size: int = 10) -> None:
        item = {"id": str(number), "pk": key, "text": "x" * size}
        container = self.account.container("shop", "orders")
        await items.upsert(container, item, ItemOptions(), self.clock)

    async def watch(self, since: int = 0, wait: int = 0, containers: str = "shop/orders") -> Any:
        """With the rows as members by name."""
        told = await self.ask("GET", f"watch?since={since}&wait={wait}&containers={containers}")
        for each in filter(None, told["containers"].values()):
            columns = each.pop("columns")
            each["partitions"] = [dict(zip(columns, row, strict=False)) for row in each["partitions"]]
        return told

    async def ended(self, task: asyncio.Task[Any], step_s: float) -> Any:
        """Move the clock until it is done."""
        for _ in range(200):
            for _ in range(50):
                await asyncio.sleep(0)
            if task.done():
                break
            self.clock.advance(step_s)
        return await task

    async def settled(self, task: asyncio.Task[Any]) -> None:
        """Let everything run that can without the clock."""
        for _ in range(50):
            await asyncio.sleep(0)
        assert not task.done()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock, AccountSettings(logical_partition_bytes_max=5_000))
    desk = Desk(account, clock)
    await desk.ask("POST", "databases", {"name": "shop"}, 201)
    content = {"name": "orders", "partitionKey": "/pk", "throughput": 20_000}
    await desk.ask("POST", "databases/shop/containers", content, 201)
    yield desk
    await account.close()
    await engine.close()


async def test_only_what_has_changed(desk: Desk) -> None:
    first = await desk.watch()
    orders = first["containers"]["shop/orders"]
    assert [each["id"] for each in orders["partitions"]] == [0, 1, 2, 3]
    assert (orders["partitions"][0]["low"], orders["partitions"][3]["high"]) == ("", "FF")
    assert orders["partitions"][0] == {
        "id": 0,
        "low": "",
        "bytes": 0,
        "items": 0,
        "budgetRu": 5000.0,
        "spentRu": 0.0,
        "requests": 0,
        "refused": 0,
        "wouldBeRefused": 0,
        "full": 0,
    }
    assert (orders["gone"], orders["reshapes"], orders["map"]) == ([], [], 4)
    assert [each["kind"] for each in first["events"]] == ["created", "created"]
    await desk.write("a")
    same = await desk.watch(first["number"])
    assert same["containers"]["shop/orders"]["partitions"] == [], "compared once a second"
    desk.clock.advance(1)
    after = await desk.watch(first["number"])
    [changed] = after["containers"]["shop/orders"]["partitions"]
    assert (changed["items"], changed["requests"], changed["spentRu"] > 0) == (1, 1, True)
    assert "low" not in changed and "high" not in changed, "bounds are told once"
    assert after["number"] > first["number"] and after["events"] == []
    desk.clock.advance(30)
    [quiet] = (await desk.watch(after["number"]))["containers"]["shop/orders"]["partitions"]
    assert (quiet["id"], quiet["spentRu"]) == (changed["id"], 0.0), "what is spent no more is news"
    assert (await desk.watch(10**15))["containers"]["shop/orders"]["partitions"], "a number that was not given yet"


async def test_it_waits_for_a_change(desk: Desk) -> None:
    number = (await desk.watch())["number"]
    waiting = asyncio.create_task(desk.watch(number, 5_000))
    await desk.settled(waiting)
    desk.clock.advance(1)
    await desk.settled(waiting)
    await desk.write("a")
    await desk.settled(waiting)
    desk.clock.advance(1)
    told = await waiting
    assert len(told["containers"]["shop/orders"]["partitions"]) == 1
    waiting = asyncio.create_task(desk.watch(told["number"], 5_000))
    await desk.settled(waiting)
    await desk.ask("POST", "databases", {"name": "other"}, 201)
    assert [each["text"] for each in (await waiting)["events"]] == ["The database other was created."], "at once"
    assert desk.door.long_polls.count == 0


async def test_nothing_happens_for_as_long_as_it_waits(desk: Desk) -> None:
    number = (await desk.watch())["number"]
    waiting = asyncio.create_task(desk.watch(number, 2_000))
    begun_s = desk.clock.now_s()
    told = await desk.ended(waiting, 0.125)
    assert desk.clock.now_s() - begun_s == 2.0
    assert told["containers"]["shop/orders"]["partitions"] == [] and told["events"] == []


async def test_a_split_is_seen_at_once(desk: Desk) -> None:
    await desk.write("a")
    number = (await desk.watch())["number"]
    reshape = await desk.ask("POST", f"{ORDERS}/split", {"partition": 0}, 202)
    told, kinds = number, []
    gone: list[int] = []
    while not gone:
        seen = await desk.watch(told, 1_000)
        orders, told = seen["containers"]["shop/orders"], seen["number"]
        kinds += [(each["kind"], each.get("point")) for each in seen["events"]]
        gone = orders["gone"]
    assert gone == [0] and orders["map"] == 6
    new = [each for each in orders["partitions"] if "low" in each]
    assert [each["id"] for each in new] == [4, 5], "bounds of the partitions that are new"
    assert new[0]["low"] == "" and "high" not in new[0] and new[0]["low"] < new[1]["low"] < new[1]["high"]
    assert kinds[0] == ("split-begun", "begun") and reshape["kind"] == "split"
    await asyncio.gather(*[desk.account.reshaper.finished(each) for each in desk.account.reshaper.running()])
    events = (await desk.ask("GET", f"events?after={number}"))["events"]
    high = new[1]["high"]
    family = await desk.ask("GET", f"{ORDERS}/partitions?keys=none")
    assert family["ancestors"] == [{"id": 0, "low": "", "high": high}]
    assert events[-1]["kind"] == "split-switched"
    assert [each["point"] for each in events] == list(POINTS)


async def test_items_that_are_copied_are_told_once_a_second(desk: Desk) -> None:
    for number in range(100):
        await desk.write(f"k{number}", number)
    await desk.ask("PUT", "reshapes/pauses", {"points": ["copying"]})
    await desk.ask("POST", f"{ORDERS}/split", {"partition": 0}, 202)
    reshape = desk.account.reshaper.running()[0]
    for _ in range(50):  # it stops there
        await asyncio.sleep(0)
    assert desk.account.reshaper.is_paused(reshape)
    number = (await desk.watch())["number"]
    reshape.progress.items_copied += 1
    waiting = asyncio.create_task(desk.watch(number, 5_000))
    await desk.settled(waiting)
    desk.clock.advance(1)
    assert (await waiting)["containers"]["shop/orders"]["reshapes"][0]["itemsCopied"] == reshape.progress.items_copied


def test_answers_about_busy_partitions_are_small() -> None:
    """1,000 of them, whose figures have as many digits as they may get, within 150 KB; 100 that change within 20 KB."""
    row = (49_999_999_999, 49_999_999, 10_000.0, 999_999_999, 9_999_999, 9_999_999, 10_000.01, 999_999)
    bounds = [f"{number:032X}" for number in range(1_001)]
    watched = Watched({number: Figures(bounds[number], bounds[number + 1], row, 0, 1, 1) for number in range(1_000)})
    assert len(orjson.dumps(partition_rows(watched, -1))) <= 140 * 1024
    for number, figures in watched.partitions.items():
        figures.number = 3 if number % 10 == 0 else 2
    changed = partition_rows(watched, 2)
    assert len(changed) == 100 and len(orjson.dumps(changed)) <= 12 * 1024


async def test_what_events_tell(desk: Desk) -> None:
    account = desk.account
    number = account.events.number
    await desk.ask("PUT", f"{ORDERS}/throughput", {"throughput": 10_000})
    await desk.ask("PUT", "reshapes/pauses", {"points": ["begun"]})
    reshape = await desk.ask("POST", f"{ORDERS}/split", {"partition": 1}, 202)
    for _ in range(50):  # it stops at its first point
        await asyncio.sleep(0)
    assert account.reshaper.is_paused(account.reshaper.running()[0])
    await desk.ask("DELETE", f"{ORDERS}/reshapes/{reshape['number']}")
    await desk.ask("PUT", "reshapes/pauses", {"points": []})
    merge = await desk.ask("POST", f"{ORDERS}/merge", {"partitions": [2, 3]}, 202)
    await asyncio.gather(*[account.reshaper.finished(each) for each in account.reshaper.running()])
    await desk.ask("POST", "snapshots/one", {}, 201)
    await desk.ask("POST", "snapshots/one/restore", {})
    await desk.ask("POST", "faults", {"operations": "write", "status": 429, "count": 2}, 201)
    for _ in range(3):
        with pytest.raises(Failure):
            await desk.write("full", 1, 6_000)
    desk.clock.advance(61)
    with pytest.raises(Failure):
        await desk.write("full", 1, 6_000)
    await desk.ask("DELETE", "databases/shop")
    events = (await desk.ask("GET", f"events?after={number}"))["events"]
    kinds = [each["kind"] for each in events if each["kind"] != "split-point"]
    assert kinds == [
        "scaled",
        "split-begun",
        "split-cancelled",
        "split-begun",
        "merged",
        "snapshot",
        "restored",
        "fault-hit",
        "key-full",
        "key-full",
        "deleted",
    ]
    by_kind = {each["kind"]: each for each in events}
    assert by_kind["scaled"]["text"] == "The throughput of shop/orders was set to 10000 RU/s."
    assert (by_kind["merged"]["partitions"], by_kind["merged"]["reshape"]) == ([2, 3], merge["number"])
    assert (by_kind["fault-hit"]["rule"], by_kind["fault-hit"]["container"]) == (1, "orders")
    assert by_kind["key-full"]["epk"] and "maximum size" in by_kind["key-full"]["text"]
    assert by_kind["deleted"]["database"] == "shop" and by_kind["deleted"]["container"] is None
    numbers = [each["number"] for each in events]
    assert numbers == sorted(set(numbers))
    assert len((await desk.ask("GET", f"events?after={number}&limit=2"))["events"]) == 2


async def test_events_are_bounded(desk: Desk) -> None:
    for number in range(1_100):
        desk.account.events.record("clock-moved", f"{number}")
    found = (await desk.ask("GET", "events?limit=1000"))["events"]
    assert (len(found), found[-1]["text"]) == (1_000, "1099")


async def test_containers_that_are_watched(desk: Desk) -> None:
    content = {"name": "a,b", "partitionKey": "/pk"}
    await desk.ask("POST", "databases/shop/containers", content, 201)
    everything = await desk.ask("GET", "watch")
    assert set(everything["containers"]) == {"shop/orders", "shop/a,b"}
    some = await desk.watch(containers="shop/a%252Cb,shop/none")
    assert some["containers"]["shop/none"] is None and len(some["containers"]["shop/a%2Cb"]["partitions"]) == 1
    waiting = asyncio.create_task(desk.watch(some["number"], 5_000))
    await desk.settled(waiting)
    await desk.ask("DELETE", ORDERS)
    assert (await waiting)["containers"]["shop/orders"] is None


@pytest.mark.parametrize(
    "path",
    [
        "watch?since=-1",
        "watch?since=x",
        "watch?wait=5001",
        "watch?containers=shop",
        "watch?containers=shop/orders,",
        "watch?containers=a/b/c",
        "watch?other=1",
        "events?after=x",
        "events?limit=1001",
        "events?limit=0",
        "events?other=1",
        "server?x=1",
        "session?x=1",
        f"{ORDERS}/partitions?keys=some",
        f"{ORDERS}/partitions?other=1",
        f"{ORDERS}/changes?wait=5001",
    ],
)
async def test_unknown_parameters_are_refused(desk: Desk, path: str) -> None:
    assert (await desk.ask("GET", path, status=400))["error"]["code"] == "bad_request"


async def test_so_many_wait_and_no_more(desk: Desk, with_limits: WithLimits) -> None:
    with_limits(WATCH_WAITING_MAX=2)
    number = (await desk.watch())["number"]
    waiting = [asyncio.create_task(desk.watch(number, 5_000)) for _ in range(2)]
    await desk.settled(waiting[1])
    refused = await desk.ask("GET", f"watch?since={number}&wait=1000&containers=shop/orders", status=503)
    assert "2 requests wait" in refused["error"]["message"]
    assert (await desk.watch(number))["events"] == [], "one that does not wait is answered"
    desk.door.long_polls.close()
    for each in waiting:
        assert (await each)["events"] == []
    assert (await desk.watch(number, 5_000))["events"] == [], "none waits while the server stops"


async def test_too_many_partitions(desk: Desk, with_limits: WithLimits) -> None:
    with_limits(WATCH_PARTITIONS_MAX=3)
    assert "4 partitions" in (await desk.ask("GET", "watch", status=400))["error"]["message"]


async def test_long_answers_are_compressed(desk: Desk, with_limits: WithLimits) -> None:
    with_limits(WATCH_COMPRESSED_BYTES_MIN=100)
    headers = {b"host": b"localhost", b"authorization": f"Bearer {KEY}".encode(), b"accept-encoding": b"gzip, br"}
    answer = await desk.door.answer(Request("GET", b"/_armillary/watch", headers, b"", False, "127.0.0.1"))
    assert dict(answer.headers)[b"content-encoding"] == b"gzip"
    assert len(orjson.loads(gzip.decompress(answer.body))["containers"]["shop/orders"]["partitions"]) == 4


async def test_partitions_without_their_keys(desk: Desk) -> None:
    await desk.write("a")
    whole = await desk.ask("GET", f"{ORDERS}/partitions")
    part = await desk.ask("GET", f"{ORDERS}/partitions?keys=none")
    assert set(whole) - set(part) == {"largestKeys", "isLargestComplete", "busiestKeys"}
    assert [{**each, "keys": each["items"]} for each in part["partitions"]] == whole["partitions"]  # one item a key


async def test_changes_are_waited_for(desk: Desk) -> None:
    await desk.write("a")
    waiting = asyncio.create_task(desk.ask("GET", f"{ORDERS}/changes?wait=2000"))
    await desk.settled(waiting)
    await desk.write("b", 7)
    desk.clock.advance(0.05)
    told = await waiting
    assert [each["id"] for each in told["changes"]] == ["7"], "what was written after the request came"
    waiting = asyncio.create_task(desk.ask("GET", f"{ORDERS}/changes?wait=2000&position={told['position']}"))
    again = await desk.ended(waiting, 0.0625)
    assert again["changes"] == [] and again["isEnd"]
    assert (await desk.ask("GET", f"{ORDERS}/changes?wait=2000&from=beginning"))["changes"], "at once"

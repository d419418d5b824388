"""Partitions live: splits step by step, merges, family, and what happens while the page looks."""

from __future__ import annotations

import json
import threading
import urllib.request
from typing import Any

from browser.conftest import OpenPortal, StartServer
from browser.portal import Operator, Portal
from playwright.async_api import expect

POINTS = ("begun", "copying", "copied", "caught up", "held", "switched")
WRITES_AT_A_POINT = 10


class Writer:
    """Writes items by azure-cosmos, as many as it is told to, until it is told to end; failures of it fail the test."""

    def __init__(self, operator: Operator, database: str, container: str) -> None:
        self._client = operator.client(database, container)
        self._wanted = threading.Semaphore(0)
        self._is_over = False
        self.count = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        try:
            while self._wanted.acquire() and not self._is_over:
                self._client.upsert_item({"id": f"w{self.count % 50}", "pk": f"k{self.count % 17}", "n": self.count})
                self.count += 1
        except Exception as error:
            self.failure = error

    def write(self, count: int) -> None:
        """So many more items, while the test goes on."""
        self._wanted.release(count)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._wanted.release()
        self._thread.join()
        assert self.failure is None, self.failure


def ranges_of(operator: Operator, database: str) -> dict[str, str]:
    """What `/pkranges` says, as the strip shows it."""
    path = f"{operator.server.url}/_armillary/portal/sql/dbs/{database}/colls/orders/pkranges"
    request = urllib.request.Request(path, headers={"Authorization": f"Bearer {operator.key}"})
    with urllib.request.urlopen(request) as response:
        found = json.loads(response.read())["PartitionKeyRanges"]
    return {each["id"]: f"{each['minInclusive']}-{each['maxExclusive']}" for each in found}


async def agrees(portal: Portal, database: str) -> None:
    """Strip, table and `/pkranges` name the same partitions."""
    expected = ranges_of(portal.operator, database)
    shown = " ".join(f"{id_}:{bounds}" for id_, bounds in expected.items())
    await expect(portal.test("strip")).to_have_attribute("data-segments", shown)
    rows = portal.page.get_by_role("grid", name="partitions").locator("tbody tr")
    await expect(rows).to_have_count(len(expected))
    assert sorted(await rows.locator("td:first-child").all_inner_texts()) == sorted(expected)


async def test_a_split_is_stepped_through_under_load(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk", 11_000)
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": f"k{number % 40}"} for number in range(120)))
    portal = await open_portal(operator, f"c/{name}/orders/partitions")
    await agrees(portal, name)
    for point in POINTS:
        await portal.page.get_by_label(point, exact=True).check()
    await expect(portal.test("testing-line")).to_contain_text("splits stop at")
    panel = portal.page.locator("[data-reshape]")
    with Writer(operator, name, "orders") as writer:
        await portal.button("Split the largest").click()
        for point in POINTS[: POINTS.index("held")]:
            await expect(panel).to_have_attribute("data-point", point)
            writer.write(WRITES_AT_A_POINT)
            await portal.button("Step").click()
        await expect(panel).to_have_attribute("data-point", "held")
        await agrees(portal, name)
        await portal.button("Take back").click()
        await expect(panel).to_have_count(0)
        await agrees(portal, name)
        await portal.button("Split the largest").click()
        for point in POINTS:
            await expect(panel).to_have_attribute("data-point", point)
            await expect(panel.locator("[aria-current=step]")).to_have_text(point)
            await expect(panel.get_by_text("stopped here")).to_be_visible()
            await expect(portal.button("Take back")).to_have_count(0 if point == "switched" else 1)
            await agrees(portal, name)
            writer.write(WRITES_AT_A_POINT)
            await portal.button("Step").click()
        await expect(panel).to_have_count(0)
        await agrees(portal, name)
    assert writer.count > WRITES_AT_A_POINT
    assert len(ranges_of(operator, name)) == 3
    for point in POINTS:
        await portal.page.get_by_label(point, exact=True).uncheck()
    await expect(portal.test("testing-line")).to_have_count(0)


async def family_of(portal: Portal) -> dict[str, set[str]]:
    """The partitions that the family tree shows, each with those that it stands below and those that it names."""
    shown = (
        await portal.test("family")
        .locator("li")
        .evaluate_all(
            """all => all.map(each => [each.dataset.family, each.parentElement.closest('li')?.dataset.family ?? '',
        each.dataset.parents])"""
        )
    )
    found: dict[str, set[str]] = {}
    for id_, above, named in shown:
        found.setdefault(id_, set()).update({above} - {""})
        assert above in named.split() or not named, shown
    return found


async def test_generations_appear_without_touching_the_page(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    path = operator.create(name, "orders", "/pk")
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": f"k{number}"} for number in range(60)))
    portal = await open_portal(operator, f"c/{name}/orders/partitions")
    await expect(portal.page.get_by_text("nothing can be uneven yet")).to_be_visible()
    family: dict[str, set[str]] = {"0": set()}
    for count in (2, 3, 4):
        parent = max(map(int, ranges_of(operator, name)))
        operator.ask("POST", f"{path}/split", {"partition": parent})
        await expect(portal.test("strip")).to_have_attribute("data-count", str(count))
        await agrees(portal, name)
        family |= {each: {str(parent)} for each in ranges_of(operator, name) if each not in family}
    await portal.test("family").locator("summary").click()
    await expect(portal.test("family").locator("li")).to_have_count(7)
    assert await family_of(portal) == family
    low, high = list(ranges_of(operator, name))[:2]  # of two generations
    operator.ask("POST", f"{path}/merge", {"partitions": [int(low), int(high)]})
    await expect(portal.test("strip")).to_have_attribute("data-count", "3")
    await agrees(portal, name)
    merged = portal.test("family").get_by_text(f"merged from {low} and {high}")
    await expect(merged).to_have_count(2)
    assert await family_of(portal) == family | {"7": {low, high}}
    first, second = list(ranges_of(operator, name))[:2]
    await portal.page.get_by_role("grid", name="partitions").locator(f"tbody tr:has(td:text-is('{first}'))").click()
    await portal.button(f"Merge with {second}").click()
    await expect(portal.test("strip")).to_have_attribute("data-count", "2")
    await agrees(portal, name)


async def test_a_storage_split_appears_without_touching_the_page(
    start_server: StartServer, open_portal: OpenPortal
) -> None:
    operator = start_server("--partition-storage", "1MB")
    operator.create("shop", "orders", "/pk")
    portal = await open_portal(operator, "c/shop/orders/partitions")
    await expect(portal.test("strip")).to_have_attribute("data-count", "1")
    client = operator.client("shop", "orders")
    for number in range(28):
        client.create_item({"id": f"i{number}", "pk": f"k{number}", "text": "x" * 40_000})
    await expect(portal.test("strip")).to_have_attribute("data-count", "2")
    await agrees(portal, "shop")
    await portal.follow("")
    await expect(portal.page.get_by_label("Events")).to_contain_text("(storage) is switched")


async def test_top_keys_lead_to_their_items(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/country")
    items = ({"id": f"i{number}", "country": "de" if number < 16 else "fr"} for number in range(20))
    operator.fill(name, "orders", items)
    portal = await open_portal(operator, f"c/{name}/orders/partitions")
    keys = portal.test("top-keys")
    await expect(keys.locator("tbody tr").first).to_contain_text('"de"')
    await keys.get_by_role("link", name='"de"').click()
    await expect(portal.test("items-foot")).to_contain_text("16 items")


async def test_a_thousand_partitions_stay_a_small_page(start_server: StartServer, open_portal: OpenPortal) -> None:
    """And small answers: the first, and those about a hundred partitions that have changed."""
    operator = start_server("--partition-throughput", "1000")
    operator.create("shop", "wide", "/pk", 600_000)
    whole = operator.send("GET", "watch?since=0&containers=shop/wide")[1]
    assert len(json.loads(whole)["containers"]["shop/wide"]["partitions"]) == 1000
    assert len(whole) <= 150 * 1024 * 0.6, "idle; figures of a busy container have more digits"
    portal = await open_portal(operator, "c/shop/wide/partitions")
    await expect(portal.test("strip")).to_have_attribute("data-count", "1000")
    grid = portal.page.get_by_role("grid", name="partitions")
    await expect(grid).to_have_attribute("aria-rowcount", "1001")
    assert await portal.page.evaluate("document.querySelectorAll('*').length") <= 2500
    before = json.loads(whole)["number"]
    for number in range(105):  # in about a hundred partitions
        item = {"id": f"i{number}", "pk": f"k{number}"}
        headers = {"x-ms-documentdb-partitionkey": json.dumps([item["pk"]])}
        assert operator.send("POST", "portal/sql/dbs/shop/colls/wide/docs", item, headers)[0] == 201
    changed = b""
    while len(rows_of(changed)) < 95:
        changed = operator.send("GET", f"watch?since={before}&wait=1000&containers=shop/wide")[1]
    assert len(changed) <= 20 * 1024 * 0.6
    assert all(len(row) == 9 for row in rows_of(changed)), "their bounds were told"
    heat = operator.send("GET", "databases/shop/containers/wide/heat?rows=256&columns=360")[1]
    assert (len(json.loads(heat)["bounds"]), len(heat) <= 600 * 1024) == (257, True)


def rows_of(answer: bytes) -> list[list[Any]]:
    found: list[list[Any]] = json.loads(answer)["containers"]["shop/wide"]["partitions"] if answer else []
    return found


async def test_a_container_that_is_deleted_says_so(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders")
    portal = await open_portal(operator, f"c/{name}/orders/partitions")
    await expect(portal.test("strip")).to_be_visible()
    operator.ask("DELETE", path)
    await expect(portal.test("gone")).to_be_visible()

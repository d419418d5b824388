"""The feed from a time and the lag of its consumers; a split at a boundary that is dragged or moved with keys."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime

from azure.cosmos.aio import CosmosClient
from browser.conftest import OpenPortal
from browser.portal import Operator
from playwright.async_api import expect

from armillary.changefeed import Changes, Consumer, estimate_lag

LAG_MS = 5_000  # after which the page asks again


async def test_the_feed_begins_at_a_time(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders")
    client = operator.client(name, "orders")
    client.upsert_item({"id": "old", "pk": "a"})
    operator.ask("POST", "clock", {"advanceSeconds": 7_200})
    client.upsert_item({"id": "new", "pk": "a"})
    portal = await open_portal(operator, f"c/{name}/orders/feed", timezone_id="America/New_York")
    await portal.button("From a time").click()
    feed = portal.test("feed")
    await expect(feed).to_contain_text("new")
    await expect(feed).not_to_contain_text("old")
    now_s = operator.ask("GET", "clock")["nowSeconds"]
    early = datetime.fromtimestamp(now_s - 10_000, UTC)
    field = portal.page.get_by_label("Time", exact=True)
    await field.fill("2020-01-01T00:00:00")
    await field.blur()
    await expect(feed).to_contain_text("old")
    await expect(portal.test("feed-count")).to_have_text("2 changes")
    await portal.follow(f"c/{name}/orders/feed?from={early.strftime('%Y-%m-%dT%H:%M:%SZ')}&mode=all-versions")
    await expect(portal.page.get_by_role("alert")).to_contain_text("not from a time")


async def test_the_lag_of_a_consumer(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk", 20_000)
    operator.create(name, "leases", "/id")
    writer = operator.client(name, "orders")
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": f"k{number}"} for number in range(20)))
    async with CosmosClient(operator.server.url, operator.server.key) as client:
        database = client.get_database_client(name)
        feed, leases = (database.get_container_client(each) for each in ("orders", "leases"))
        seen: set[str] = set()
        is_done = asyncio.Event()

        async def read(changes: Changes) -> None:
            seen.update(str(each["id"]) for each in changes.rows)
            if len(seen) == 20:
                is_done.set()

        async with Consumer(feed, leases, read, name="search", start="Beginning"):
            await is_done.wait()
        portal = await open_portal(operator, is_new=True)
        await portal.page.clock.install()
        await portal.go(f"c/{name}/orders/feed")
        await portal.page.get_by_label("Leases in").select_option(f"{name}/leases")
        await expect(portal.test("lag")).to_have_text("Up to 0 transactions behind, over 4 ranges.")
        for number in range(20, 27):
            writer.upsert_item({"id": f"i{number}", "pk": f"k{number}"})
        assert sum(each.transactions for each in await estimate_lag(feed, leases, "search")) == 7
        await portal.page.clock.fast_forward(LAG_MS)
        await expect(portal.test("lag")).to_have_text("Up to 7 transactions behind, over 4 ranges.")
        grid = portal.page.get_by_role("grid", name="consumers")
        await expect(grid.locator("tbody tr")).to_have_count(4)
        await expect(grid.locator("tbody tr").first).to_contain_text("search")
    await portal.page.get_by_label("Leases in").select_option(f"{name}/orders")
    await expect(portal.test("lag")).to_have_text(f"There are no leases in {name}/orders.")


async def test_a_boundary_is_dragged_or_moved_with_keys(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders", "/pk", 20_000)
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": f"k{number}"} for number in range(20)))
    first, second = operator.ask("GET", f"{path}/partitions?keys=none")["partitions"][:2]
    portal = await open_portal(operator, f"c/{name}/orders/partitions?partition={first['id']}")
    strip, field = portal.test("strip"), portal.page.get_by_label("Boundary, an effective key in hex")
    await expect(portal.button(f"Split partition {first['id']}")).to_be_visible()
    box = await strip.bounding_box()
    assert box is not None
    # The four partitions are equally wide: three quarters of the first.
    wide, tall = box["width"] / 4, box["y"] + box["height"] / 2
    await portal.page.mouse.move(box["x"] + wide / 4, tall)
    await portal.page.mouse.down()
    await portal.page.mouse.move(box["x"] + wide / 2, tall, steps=3)
    await portal.page.mouse.move(box["x"] + wide * 3 / 4, tall, steps=3)
    await portal.page.mouse.up()
    await expect(portal.test("boundary")).to_contain_text("at 75.")
    assert f"partition={first['id']}" in portal.page.url, "a drag chooses nothing"
    boundary = await field.input_value()
    assert first["low"] < boundary < first["high"]
    before_s = operator.ask("GET", "clock")["nowSeconds"]
    await portal.button("Split here").click()
    await expect(strip).to_have_attribute("data-count", "5")
    children = [each for each in operator.ask("GET", f"{path}/partitions")["partitions"] if each["parents"]]
    assert children[0]["high"] == boundary
    now_s = operator.ask("GET", "clock")["nowSeconds"]
    assert all(before_s <= each["since"] <= now_s for each in children)
    row = portal.page.get_by_role("grid", name="partitions").locator("tbody tr")
    await expect(row.nth(0).locator("td").last).to_have_text(re.compile(r"\d s$"))
    await expect(row.nth(4).locator("td").last).to_have_text("container's")
    # The same with the keyboard.
    await portal.follow(f"c/{name}/orders/partitions?partition={second['id']}")
    place = portal.page.get_by_role("slider", name="Place of the boundary")
    await place.press("Home")
    await place.press("ArrowRight")
    await expect(portal.test("boundary")).to_contain_text("at 0.2 % of its hashes")
    await portal.button("At half of the bytes").click()
    await expect(field).to_have_value("")
    await place.press("End")
    boundary = await field.input_value()
    await portal.button("Split here").click()
    await expect(strip).to_have_attribute("data-count", "6")
    assert boundary in (await strip.get_attribute("data-segments") or "")

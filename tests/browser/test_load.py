"""Load in the page: the heat map, refusals told apart, and the good key beside the bad one."""

from __future__ import annotations

import base64
import json
import re
from array import array
from bisect import bisect_right
from typing import Any

import pytest
from browser.conftest import OpenPortal, StartServer
from browser.portal import Operator, Portal
from playwright.async_api import Locator, expect

from armillary.model.keys import Key, PartitionKeyDefinition


def advance(operator: Operator, seconds: int) -> None:
    operator.ask("POST", "clock", {"advanceSeconds": seconds})


class Map:
    """A heat map as the control API answers it, with its cells decoded."""

    def __init__(self, operator: Operator, path: str, metric: str) -> None:
        self.answer: dict[str, Any] = operator.ask("GET", f"{path}/heat?metric={metric}")
        self.columns = len(self.answer["times"]) - 1
        cells = array("f", base64.b64decode(self.answer["values"]))
        self.cells = {divmod(at, self.columns): value for at, value in enumerate(cells) if value}

    def row_of(self, key: str) -> int:
        """The row of a key's hash."""
        bound = PartitionKeyDefinition(("/pk",)).effective_key(Key((key,))).hex().upper()
        return bisect_right(self.answer["bounds"], bound) - 1


async def spoken_at(portal: Portal, row: int) -> Locator:
    """Where the value of a row's last column is spoken, to which the arrow keys go."""
    await portal.test("heat").focus()
    for key, times in (("Home", 1), ("End", 1), ("PageDown", row // 16), ("ArrowDown", row % 16)):
        for _ in range(times):
            await portal.page.keyboard.press(key)
    return portal.test("spoken")


async def test_a_hot_key_is_one_bright_row(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders", "/pk", 20_000)
    client = operator.client(name, "orders")
    operator.freeze()
    for second in range(0, 61, 10):
        for number in range(6):
            client.upsert_item({"id": f"i{number}", "pk": "hot"})
        if second < 60:
            advance(operator, 10)
    heat = Map(operator, path, "requests")
    row = heat.row_of("hot")
    assert set(heat.cells) == {(row, column) for column in range(heat.columns - 7, heat.columns)}
    assert set(heat.cells.values()) == {6.0}, "the column that is not finished too"
    assert sum(heat.cells.values()) == heat.answer["total"] == operator.metric("requests_total", database=name) == 42
    charged = operator.metric("charge_request_units_total", database=name)
    in_units = Map(operator, path, "ru")
    assert in_units.answer["total"] == pytest.approx(charged) == pytest.approx(sum(in_units.cells.values()))
    portal = await open_portal(operator, f"c/{name}/orders/heat?metric=requests")
    await expect(portal.page.get_by_text("42 in all")).to_be_visible()
    await expect(await spoken_at(portal, row)).to_have_text(
        re.compile(r", hashes .*, partition \d+: 6, 100 % of its time$")
    )
    await portal.page.keyboard.press("ArrowDown")
    await expect(portal.test("spoken")).to_have_text(re.compile(": 0, 0 % of its time$"))
    await portal.page.keyboard.press("ArrowUp")
    await portal.page.keyboard.press("Enter")
    await expect(portal.test("pinned")).to_contain_text('"hot"')
    await portal.page.get_by_label("As a table").check()
    cells = portal.page.get_by_role("grid", name="hottest cells").locator("tbody tr")
    await expect(cells).to_have_count(7)
    await portal.page.get_by_label("As a table").uncheck()
    operator.ask("POST", f"{path}/split", {"partition": 0})
    while not operator.ask("GET", f"{path}/heat?metric=requests")["splits"]:
        pass
    await portal.page.reload()
    now = operator.ask("GET", "clock")["nowSeconds"]
    (split,) = operator.ask("GET", f"{path}/heat?metric=requests")["splits"]
    assert split["time"] == pytest.approx(now, abs=0.01)
    await expect(portal.test("heat")).to_have_attribute("data-splits", f"{split['time']!r}:{split['boundary']}")
    await expect(portal.test("heat")).to_have_attribute("aria-label", re.compile("Split of 0 at "))
    operator.ask("POST", "clock", {"frozen": False})


async def test_a_hot_key_appears_on_an_open_page(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    """Within 12 seconds of the page's clock, in the column that is not finished."""
    path = operator.create(name, "orders", "/pk", 20_000)
    portal = await open_portal(operator, is_logged_in=False)
    await portal.page.clock.install()
    await portal.open(f"c/{name}/orders/heat?metric=requests")
    await expect(portal.page.get_by_text("0 in all")).to_be_visible()
    operator.freeze()
    client = operator.client(name, "orders")
    for number in range(6):
        client.upsert_item({"id": f"i{number}", "pk": "hot"})
    await portal.page.clock.fast_forward(12_000)
    await expect(portal.page.get_by_text("6 in all")).to_be_visible()
    row = Map(operator, path, "requests").row_of("hot")
    await expect(await spoken_at(portal, row)).to_have_text(re.compile(": 6, 100 % of its time$"))
    await expect(portal.test("heat-scale")).to_have_text(re.compile(r"^0\s+6$"))


REFUSALS = ("refused", "wouldBeRefused", "full")


async def test_refusals_are_told_apart(start_server: StartServer, open_portal: OpenPortal) -> None:
    options = ("--partition-storage", "1MB", "--logical-partition-storage", "20KB", "--clock", "movable")
    operator = start_server(*options)
    path = operator.create("shop", "orders", "/pk")
    operator.freeze()
    operator.ask("PUT", f"{path}/mode", {"mode": "enforce"})
    statuses = [_write(operator, "a", number, 4) for number in range(120)]
    expected = {"refused": statuses.count(429)}
    operator.ask("PUT", f"{path}/mode", {"mode": "observe"})
    for number in range(20):
        assert _write(operator, "b", number, 4) < 300
    statuses = [_write(operator, "full", number, 4000) for number in range(12)]
    expected["full"] = statuses.count(403)
    rule = operator.ask("POST", "faults", {"operations": "read", "status": 429})
    headers = {"x-ms-documentdb-partitionkey": json.dumps(["b"])}
    for _ in range(7):
        assert operator.send("GET", "portal/sql/dbs/shop/colls/orders/docs/b1", None, headers)[0] == 429
    assert operator.ask("GET", f"faults/{rule['id']}")["hits"] == 7
    (figures,) = operator.ask("GET", f"{path}/partitions?keys=none")["partitions"]
    expected["wouldBeRefused"] = figures["wouldBeRefused"]
    assert {name: figures[name] for name in REFUSALS} == expected and min(expected.values()) > 0
    for metric, name in zip(("refused", "would_be_refused", "key_full"), REFUSALS, strict=True):
        assert operator.metric(f"{metric}_total") == expected[name]
        heat = Map(operator, path, name)
        assert sum(heat.cells.values()) == heat.answer["total"] == expected[name]
    portal = await open_portal(operator, "c/shop/orders/partitions")
    row = portal.page.get_by_role("grid", name="partitions").locator("tbody tr")
    for column, name in enumerate(REFUSALS, 8):
        await expect(row.locator(f"td:nth-child({column})")).to_have_text(str(expected[name]))
    await expect(portal.test("top-keys")).to_contain_text(f"{expected['full']} writes refused")
    await portal.follow("c/shop/orders/throughput")
    table = portal.page.get_by_role("grid", name="refusals by partition").locator("tbody tr")
    for column, name in enumerate(REFUSALS, 5):
        await expect(table.locator(f"td:nth-child({column})")).to_have_text(str(expected[name]))
    await portal.follow("c/shop/orders/heat")
    for label, name in zip(("429", "Would be 429", "Key full"), REFUSALS, strict=True):
        await portal.button(label).click()
        await expect(portal.page.get_by_text(f"{expected[name]} in all")).to_be_visible()
    operator.create("shop", "by-id", "/id")
    await portal.follow("compare?a=shop/orders&b=shop/by-id")
    await expect(portal.page.locator("[data-verdict='shop/orders']")).to_have_text("poor")
    for label, name in (
        ("Refused, over budget", "refused"),
        ("Would be refused", "wouldBeRefused"),
        ("key full", "full"),
    ):
        figures_shown = portal.page.locator("tr", has=portal.page.locator("th", has_text=label)).locator("td")
        await expect(figures_shown).to_have_text([str(expected[name]), "0"])
    await expect(portal.page.locator("tr", has_text="Why").locator("td").first).to_contain_text("full")
    await portal.follow("")
    events = portal.page.get_by_label("Events")
    await expect(events).to_contain_text("Partition key reached maximum size")
    await expect(events).to_contain_text(f"Fault rule {rule['id']} hit a request to shop/orders")
    await expect(portal.test("testing-line")).to_contain_text("1 fault rule")


def _write(operator: Operator, key: str, number: int, size: int) -> int:
    """Without the retries of an SDK; the status."""
    headers = {"x-ms-documentdb-partitionkey": json.dumps([key]), "x-ms-documentdb-is-upsert": "true"}
    item: dict[str, Any] = {"id": f"{key}{number}", "pk": key, "text": "x" * size}
    return operator.send("POST", "portal/sql/dbs/shop/colls/orders/docs", item, headers)[0]


async def test_the_good_key_beside_the_bad_one(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    for container, path in (("good", "/customerId"), ("bad", "/country"), ("empty", "/x")):
        operator.create(name, container, path, 20_000)
    for container in ("good", "bad"):
        countries = ("fr", "de", "de", "de", "de")
        orders = ({"id": f"o{each}", "customerId": f"c{each}", "country": countries[each % 5]} for each in range(150))
        operator.fill(name, container, orders)
    advance(operator, 120)
    portal = await open_portal(operator, f"compare?a={name}/good&b={name}/bad")
    await expect(portal.page.locator(f"[data-verdict='{name}/good']")).to_have_text("good")
    await expect(portal.page.locator(f"[data-verdict='{name}/bad']")).to_have_text("poor")
    await expect(portal.test("recommendation")).to_contain_text(f"{name}/good")
    await expect(portal.test("strip")).to_have_count(2)
    await portal.follow(f"compare?a={name}/good&b={name}/empty")
    await expect(portal.page.locator(f"[data-verdict='{name}/empty']")).to_have_text("no verdict")
    operator.ask("PUT", "reshapes/pauses", {"points": ["begun"]})
    operator.ask("POST", f"databases/{name}/containers/bad/split", {})
    await portal.follow(f"compare?a={name}/good&b={name}/bad")
    await expect(portal.page.locator(f"[data-verdict='{name}/bad']")).to_have_text("no verdict")
    operator.ask("PUT", "reshapes/pauses", {"points": []})


# The server of a machine whose clock is ten minutes behind.
EARLIER = """import sys, time
now = time.time
time.time = lambda: now() - 600
from armillary.tools.cli import main
sys.exit(main(sys.argv[1:]))"""


async def test_a_restart_leaves_a_gap(start_server: StartServer, open_portal: OpenPortal) -> None:
    operator = start_server("--clock", "movable", program=("-c", EARLIER))
    path = operator.create("shop", "orders", "/pk")
    operator.client("shop", "orders").upsert_item({"id": "1", "pk": "a"})
    stopped = operator.ask("GET", "clock")["nowSeconds"]
    operator.server.stop()
    operator = start_server("--clock", "movable")
    operator.freeze()
    operator.client("shop", "orders").upsert_item({"id": "1", "pk": "a"})
    heat = Map(operator, path, "requests")
    row = heat.row_of("a")
    begun, ended = heat.answer["gaps"][-1]
    assert stopped <= begun < ended <= operator.ask("GET", "clock")["nowSeconds"] and ended - begun > 500
    assert heat.answer["total"] == 2 and {at for at, _ in heat.cells} == {row}
    portal = await open_portal(operator, "c/shop/orders/heat?metric=requests&last=3600")
    shown = portal.test("heat")
    await expect(shown).to_have_attribute("data-gaps", re.compile(r"\d+-\d+"))
    await expect(shown).to_have_attribute("aria-label", re.compile("The server did not run from .* to "))
    spoken = await spoken_at(portal, row)
    await expect(spoken).to_have_text(re.compile(": 1, 100 % of its time$"))
    for _ in range(10):
        await portal.page.keyboard.press("ArrowLeft")
    await expect(spoken).to_have_text(re.compile(": not known, the server did not run$"))

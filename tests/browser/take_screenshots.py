"""The pictures of docs/portal.md, made by `make screenshots` from a fixed scenario on a clock that is moved by hand:
orders by customer and by country, a hot key, a split, a graph. Pictures are 1280 x 800, light and dark.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from browser.conftest import chromium
from browser.portal import Operator, Portal
from playwright.async_api import async_playwright, expect
from support.process import ServerProcess

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_STEPS = 30  # of 20 s: the ten minutes that the heat map shows
_ORDERS = 260


def advance(operator: Operator, seconds: int) -> None:
    operator.ask("POST", "clock", {"advanceSeconds": seconds})


def seed(operator: Operator) -> None:
    """Two containers with the same orders, and ten minutes of the same reads of both, with a split in each."""
    clients = []
    for name, path in (("orders", "/customerId"), ("orders-by-country", "/country")):
        operator.create("shop", name, path, 20_000)
        clients.append((name, path[1:], operator.client("shop", name)))
    orders: list[dict[str, Any]] = []
    for number in range(_ORDERS):
        country = ("de", "de", "de", "de", "fr", "it")[number % 6]
        customer = f"customer-{number * 7 % 90}"
        state = ("open", "paid")[number % 2]
        made = {"id": f"order-{number}", "customerId": customer, "country": country, "total": number * 37 % 200}
        orders.append({**made, "state": state})
        for _, _, client in clients:
            client.create_item(orders[-1])
    for step in range(_STEPS):
        advance(operator, 20)
        for name, field, client in clients:
            if step == _STEPS // 4:
                operator.ask("POST", f"databases/shop/containers/{name}/split", {})
            for order in orders[step % 7 :: 7]:
                client.read_item(str(order["id"]), str(order[field]))
    operator.create("shop", "people", "/pk")
    steps = "".join(f".addV('person').property('id', 'p{each}').property('pk', 'a')" for each in range(34))
    for script in ("g" + steps, *(f"g.V('p{each}').addE('knows').to(g.V('p{each // 3}'))" for each in range(1, 34))):
        asked = {"database": "shop", "graph": "people", "script": script, "bindings": {}}
        operator.ask("POST", "portal/gremlin", asked)


async def _query(portal: Portal) -> None:
    await portal.go("c/shop/orders/query")
    await portal.type_query("SELECT c.id, c.country, c.total FROM c\nWHERE c.total > 20 ORDER BY c.total DESC")
    await portal.page.keyboard.press("Escape")
    await portal.page.keyboard.press("Control+Enter")
    await expect(portal.test("visited")).to_be_visible()


async def _split(portal: Portal) -> None:
    operator = portal.operator
    operator.ask("PUT", "reshapes/pauses", {"points": ["copied"]})
    operator.ask("POST", "databases/shop/containers/orders/split", {})
    await portal.go("c/shop/orders/partitions")
    await expect(portal.page.locator("[data-point='copied']")).to_be_visible()


async def _graph(portal: Portal) -> None:
    operator = portal.operator
    for each in operator.ask("GET", "reshapes")["reshapes"]:
        path = f"databases/shop/containers/{each['container']}/reshapes/{each['number']}"
        operator.ask("DELETE", path)
    operator.ask("PUT", "reshapes/pauses", {"points": []})
    await portal.page.emulate_media(reduced_motion="reduce")
    await portal.go("c/shop/people/gremlin")
    await portal.button("Run").click()
    await expect(portal.test("graph")).to_have_attribute("data-drawn", "34")
    await portal.button("Edges among these").click()
    await expect(portal.test("graph")).to_have_attribute("aria-label", "34 vertices and 33 edges; labels person")


async def _testing(portal: Portal) -> None:
    rule = {"operations": "write", "database": "shop", "container": "orders", "every": 7, "status": 429}
    portal.operator.ask("POST", "faults", rule)
    await portal.go("testing")
    await portal.page.get_by_text("New rule").click()
    await expect(portal.test("rules")).to_be_visible()


async def _foresight(portal: Portal) -> None:
    """Orders in a file, of a thousand customers in four countries."""
    countries = ("de", "de", "de", "de", "de", "de", "fr", "fr", "it", "at")
    rows = [
        {"id": f"order-{each}", "customerId": f"customer-{each * 7919 % 1000}", "country": countries[each * 7 % 10]}
        for each in range(5_000)
    ]
    text = "\n".join(map(json.dumps, rows)).encode()
    await portal.go("foresight?from=file&size=500GB&requests=rates&candidates=/country")
    file: Any = {"name": "orders.jsonl", "mimeType": "application/json", "buffer": text}
    await portal.page.get_by_label("File").set_input_files(file)
    await portal.button("Candidates").click()
    await portal.button("Judge the keys").click()
    await portal.page.locator("details[data-key='/country'] summary").first.click()
    await expect(portal.test("strip")).to_be_visible()


def _opens(path: str, name: str) -> Callable[[Portal], Awaitable[None]]:
    async def show(portal: Portal) -> None:
        await portal.go(path)
        await expect(portal.test(name).first).to_be_visible()

    return show


SCENES: dict[str, Callable[[Portal], Awaitable[None]]] = {
    "overview": _opens("", "health"),
    "query": _query,
    "heat": _opens("c/shop/orders-by-country/heat", "heat"),
    "throughput": _opens("c/shop/orders/throughput", "preview"),
    "compare": _opens("compare?a=shop/orders&b=shop/orders-by-country", "recommendation"),
    "foresight": _foresight,
    "split": _split,
    "graph": _graph,
    "testing": _testing,
}


async def main() -> None:
    program = chromium()
    assert program is not None, "there is no Chromium: install it or name it in CHROMIUM"
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        server = ServerProcess.start(Path(directory) / "data", "--durability", "relaxed", "--clock", "movable")
        try:
            operator = Operator(server)
            seed(operator)
            async with async_playwright() as driver:
                options = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = await driver.chromium.launch(executable_path=program, args=options)
                page = await browser.new_page(viewport={"width": 1280, "height": 800})
                portal = Portal(page, operator)
                await portal.log_in()
                for name, show in SCENES.items():
                    await show(portal)
                    for scheme in SCHEMES:
                        await page.emulate_media(color_scheme=scheme)
                        await expect(page.locator("html")).to_have_attribute("data-scheme", scheme)
                        await page.screenshot(path=PICTURES / f"portal-{name}-{scheme}.png")
                await browser.close()
        finally:
            server.stop()


if __name__ == "__main__":
    asyncio.run(main())

"""Items and queries in the page, beside what azure-cosmos sees and is charged."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos.exceptions import CosmosResourceNotFoundError
from azure.data.tables import TableServiceClient
from browser.conftest import OpenPortal
from browser.portal import Operator, Portal
from playwright.async_api import Route, expect


async def edit(portal: Portal, text: str) -> None:
    await portal.page.get_by_label("Item as JSON").click()
    await portal.page.keyboard.press("Control+a")
    await portal.page.keyboard.insert_text(text)


async def test_items_are_made_changed_and_deleted(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/customerId")
    client = operator.client(name, "orders")
    portal = await open_portal(operator, f"c/{name}/orders/items")
    page = portal.page
    await expect(page.get_by_text("No items")).to_be_visible()
    await portal.button("New item").click()
    await edit(portal, '{"id": "one", "customerId": "a", "total": 1}')
    await portal.button("Save").click()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    assert client.read_item("one", "a")["total"] == 1
    await page.get_by_role("gridcell", name="one").or_(page.locator("td", has_text="one")).first.click()
    await edit(portal, '{"id": "one", "customerId": "a", "total": 2}')
    client.upsert_item({"id": "one", "customerId": "a", "total": 99})
    await portal.button("Save").click()
    await expect(portal.test("theirs")).to_contain_text('"total": 99')
    await expect(page.get_by_role("alert")).to_contain_text("412")
    await portal.button("Save").click()
    await expect(portal.test("theirs")).to_be_hidden()
    assert client.read_item("one", "a")["total"] == 2
    await portal.button("Delete").last.click()
    await expect(page.get_by_role("dialog")).to_be_hidden()
    with pytest.raises(CosmosResourceNotFoundError):
        client.read_item("one", "a")


async def test_keys_of_every_type_are_found(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "typed", "/pk")
    operator.create(name, "deep", ["/tenant", "/user"])
    keys: dict[str, Any] = {"text": "x", "number": 7, "truth": True, "nothing": None}
    operator.fill(name, "typed", [*({"id": id_, "pk": value} for id_, value in keys.items()), {"id": "missing"}])
    operator.fill(name, "deep", [{"id": "deep", "tenant": "t", "user": 1}])
    portal = await open_portal(operator)
    asked = [("typed", "x", "text"), ("typed", "7", "number"), ("typed", "true", "truth"), ("typed", "null", "nothing")]
    asked += [("typed", "{}", "missing"), ("deep", '["t",1]', "deep")]
    for container, key, id_ in asked:
        await portal.follow(f"c/{name}/{container}/items")
        await portal.page.get_by_label("Key", exact=True).fill(key)
        await portal.button("Find").click()
        await expect(portal.test("items-foot")).to_contain_text("1 item,")
        await expect(portal.page.get_by_role("grid").get_by_text(id_, exact=True).first).to_be_visible()


async def test_text_that_is_being_typed_survives_new_data(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    operator.create(name, "typed", "/pk")
    portal = await open_portal(operator, f"c/{name}/typed/items")
    await portal.page.get_by_label("Key", exact=True).fill("half a k")
    operator.client(name, "typed").create_item({"id": "1", "pk": "x"})
    await expect(portal.test("items-foot")).to_contain_text("1 in the container")  # drawn anew
    await expect(portal.page.get_by_label("Key", exact=True)).to_have_value("half a k")


async def test_documents_of_mongodb_keep_their_types(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk")
    number = {"$numberLong": "9007199254740993"}
    document = {"_id": {"$oid": "65f0a1b2c3d4e5f601020304"}, "pk": "a", "n": number}
    insert = {"insert": "orders", "documents": [document]}
    operator.ask("POST", "portal/mongo", {"database": name, "command": insert})
    portal = await open_portal(operator, f"c/{name}/orders/items")
    await portal.page.locator("td", has_text="oid:").first.click()
    await expect(portal.test("kind")).to_contain_text("A document of MongoDB")
    await edit(portal, json.dumps({**document, "id": "oid:65f0a1b2c3d4e5f601020304", "added": 1}))
    await portal.button("Save").click()
    await expect(portal.test("spoken")).to_have_text("Saved")
    asked = {"database": name, "command": {"find": "orders"}}
    (stored,) = operator.ask("POST", "portal/mongo", asked)["reply"]["cursor"]["firstBatch"]
    assert stored == {**document, "added": {"$numberInt": "1"}}


async def test_elements_of_graphs_and_entities_of_tables_are_marked(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    operator.create(name, "graph", "/pk")
    for script in (
        "g.addV('person').property('id', 'one').property('pk', 'a').property('age', 7)",
        "g.V('one').addE('knows').to(g.V('one')).property('id', 'edge')",
    ):
        asked: dict[str, Any] = {"database": name, "graph": "graph", "script": script, "bindings": {}}
        assert operator.ask("POST", "portal/gremlin", asked)["status"]["code"] == 200
    credential = AzureNamedKeyCredential("localhost", operator.server.key)
    with TableServiceClient(operator.server.doors["table"], credential=credential) as tables:
        tables.create_table(name).upsert_entity({"PartitionKey": "a", "RowKey": "row"})
    kinds = {f"{name}/graph": {"one": "A vertex of a graph", "edge": "An edge of a graph"}}
    kinds |= {f"TablesDB/{name}": {"row": "An entity of a table"}}
    portal = await open_portal(operator)
    for path, id_, kind in ((path, *each) for path, found in kinds.items() for each in found.items()):
        await portal.follow(f"c/{path}/items")
        await portal.page.get_by_role("grid").get_by_text(id_, exact=True).first.click()
        await expect(portal.test("kind")).to_contain_text(kind)
        await portal.button("Close").click()


async def test_queries_cost_what_they_cost_the_sdk(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/customerId", 48_000)
    client = operator.client(name, "orders")
    items = ({"id": f"o{number}", "customerId": f"c{number % 9}", "total": (number * 7) % 40} for number in range(40))
    operator.fill(name, "orders", items)
    portal = await open_portal(operator)
    ordered = "SELECT c.id, c.total FROM c ORDER BY c.total DESC"
    for text, column, is_new in ((ordered, "total", "total"), ("SELECT * FROM c", "id", "customerId")):
        charges: list[float] = []

        def note(headers: Any, _: Any, charges: list[float] = charges) -> None:
            charges.append(float(headers["x-ms-request-charge"]))

        await portal.show(f"c/{name}/orders/query")
        rows = list(client.query_items(text, enable_cross_partition_query=True, response_hook=note))
        await portal.type_query(text)
        await portal.page.keyboard.press("Control+Enter")
        await expect(portal.test("rows")).to_have_text("40 rows")
        table = portal.page.get_by_role("grid", name="result")
        await expect(table.get_by_role("columnheader", name=is_new, exact=True)).to_be_visible()  # not the rows before
        place = (await table.get_by_role("columnheader").all_inner_texts()).index(column) + 1
        cells = table.locator(f"tbody td:nth-child({place})")
        expected = [str(row[column]) for row in rows]
        if "ORDER" in text:
            await expect(cells).to_have_text(expected)
        else:
            await expect(cells).to_have_count(40)
            assert sorted(await cells.all_inner_texts()) == sorted(expected)
        said = float((await portal.test("charge").inner_text()).replace("\u2009", ""))
        parts = await portal.test("charge-parts").locator("tr").evaluate_all("all => all.map(e => +e.dataset.ru)")
        assert abs(said - sum(parts)) < 0.01
        plan_ru = 1.0 if "ORDER" in text else 0.0
        assert abs(said - plan_ru - sum(charges)) < 0.011, (said, charges)
        await expect(portal.test("visited")).to_have_text("8 of 8")
        visits = portal.page.get_by_label("Partitions visited").locator("tbody tr")
        spent = await visits.evaluate_all("all => all.map(each => +each.dataset.ru)")
        assert abs(said - plan_ru - sum(spent)) < 0.01
    await portal.page.get_by_label("Only key").fill("c1")
    await portal.button("Run").click()
    await expect(portal.test("visited")).to_have_text("1 of 8")


async def test_advice_is_applied_and_mistakes_are_underlined(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    policy = {
        "indexingMode": "consistent",
        "includedPaths": [{"path": "/customerId/?"}],
        "excludedPaths": [{"path": "/*"}],
    }
    operator.create(name, "orders", "/customerId", definition={"indexingPolicy": policy})
    items = ({"id": f"o{number}", "customerId": "a", "total": number, "text": "x" * 4000} for number in range(60))
    operator.fill(name, "orders", items)
    portal = await open_portal(operator, f"c/{name}/orders/query")
    await portal.type_query("SELECT c.id FROM c WHERE c.total = 7")
    await portal.button("Run").click()
    await expect(portal.test("possible")).to_contain_text("/total/?")
    before = float(await portal.test("charge").inner_text())
    await portal.button("Show the changed policy").click()
    await portal.button("Apply the policy").click()
    await expect(portal.button("Apply the policy")).to_be_hidden()
    while float(await portal.test("charge").inner_text()) >= before:  # until the index is built
        async with portal.page.expect_response("**/docs"):
            await portal.button("Run").click()
        await expect(portal.button("Run")).to_be_enabled()
    await expect(portal.test("possible")).to_have_text("none")
    await portal.type_query("SELECT * FROM c WHERE c.total ==== 7")
    await expect(portal.test("parse")).to_be_visible()
    await expect(portal.page.locator("code-editor .cm-wrong")).to_be_visible()


async def test_ten_thousand_rows_stay_a_small_page(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "many", "/pk")
    client = operator.client(name, "many")
    client.create_item({"id": "1", "pk": "a", "numbers": list(range(10_000))})
    portal = await open_portal(operator, f"c/{name}/many/query", permissions=["clipboard-read", "clipboard-write"])
    await portal.type_query("SELECT n AS number FROM c JOIN n IN c.numbers")
    await portal.button("Run").click()
    await expect(portal.test("rows")).to_have_text("1\u2009000 rows")
    for rows in range(3, 11, 2):  # each time after 1,000 RU
        await portal.button("All").click()
        await expect(portal.test("rows")).to_have_text(f"{rows}\u2009000 rows")
    await portal.button("All").click()
    await expect(portal.test("rows")).to_have_text("10\u2009000 rows")
    table = portal.page.get_by_role("grid", name="result")
    await expect(table).to_have_attribute("aria-rowcount", "10001")
    await table.get_by_role("button", name="number").click()
    await expect(table.locator("tbody td[data-cell='0:0']")).to_have_text("0")
    await table.locator("td[data-cell='0:0']").focus()
    await portal.page.keyboard.press("Control+End")
    await expect(table.get_by_text("9999", exact=True)).to_be_focused()
    copied = await portal.copied(portal.page.get_by_role("button", name="Copy all result"))
    assert copied.split("\n") == ["number", *map(str, range(10_000))]
    assert await portal.page.evaluate("document.querySelectorAll('*').length") <= 3000


async def test_a_large_item_does_not_stop_the_page(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    """Its list can be left while it is on its way; it is shown in parts, and clicks are answered meanwhile."""
    operator.create(name, "large", "/pk")
    text = "x" * 2_000_000
    operator.client(name, "large").create_item({"id": "big", "pk": "a", "text": text})
    portal = await open_portal(operator)
    page = portal.page
    asked, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch()
        asked.set()
        await released.wait()
        await route.fulfill(response=answer)

    await page.route("**/colls/large/docs", hold)
    await portal.follow(f"c/{name}/large/items")
    await asked.wait()
    await portal.button("Dark").click()
    await expect(page.locator("html")).to_have_attribute("data-scheme", "dark")
    released.set()
    cells = page.get_by_role("grid", name="items").locator("tbody td")
    await expect(cells.first).to_be_visible()
    assert max(map(len, await cells.all_inner_texts())) < 1000
    await cells.first.click()
    await expect(page.get_by_text("Too large to be edited here.")).to_be_visible()
    shown = page.get_by_label("Item", exact=True)
    while await portal.button("More").count():
        await portal.button("More").click()
    assert json.loads(await shown.inner_text())["text"] == text
    await portal.button("Close").click()
    await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_items_behind_empty_partitions_are_found(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk", 20_000)
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": "a"} for number in range(3)))
    portal = await open_portal(operator, f"c/{name}/orders/items")
    await expect(portal.test("items-foot")).to_contain_text("3 items")
    await expect(portal.button("Next 100")).to_have_count(0)

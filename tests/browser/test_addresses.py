"""The address of a view holds what is chosen and typed in it: a link shows another reader the same, and changes
nothing by being opened."""

from __future__ import annotations

import json
from urllib.parse import quote

from browser.conftest import OpenPortal
from browser.portal import Operator, Portal
from playwright.async_api import Page, expect


async def again(portal: Portal) -> None:
    """The same address in a page that knows nothing else."""
    await portal.page.evaluate("localStorage.clear()")
    await portal.page.reload()
    await portal.settled()


async def retype(page: Page, label: str, text: str) -> None:
    await page.get_by_label(label, exact=True).click()
    await page.keyboard.press("Control+a")
    await page.keyboard.insert_text(text)


async def test_choices_are_in_the_address(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    for container in ("orders", "others"):
        operator.create(name, container, "/pk")
        operator.fill(name, container, ({"id": f"i{number}", "pk": "a"} for number in range(3)))
    portal = await open_portal(operator, f"c/{name}/orders/heat")
    page = portal.page
    await page.get_by_label("As a table").check()
    await again(portal)
    await expect(page.get_by_role("grid", name="hottest cells")).to_be_visible()
    await portal.follow(f"c/{name}/orders/partitions")
    await portal.button("Busiest").click()
    await again(portal)
    await expect(page.get_by_role("grid", name="busiest keys")).to_be_visible()
    await portal.follow(f"c/{name}/orders/items")
    await portal.button("JSON").click()
    await again(portal)
    await expect(page.get_by_label("Items as JSON")).to_contain_text('"id": "i2"')
    await portal.follow(f"compare?a={name}/orders&b={name}/others")
    await portal.button("Requests").first.click()
    await again(portal)
    for side in ("orders", "others"):
        await expect(page.get_by_role("table", name=f"{name}/{side}: requests by partition")).to_be_visible()


async def test_texts_are_in_the_address(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders", "/pk")
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": "a", "n": number} for number in range(5)))
    portal = await open_portal(operator, f"c/{name}/orders/query")
    page = portal.page
    await portal.type_query("SELECT * FROM c WHERE c.n > @least")
    await page.get_by_label("@least").fill("2")
    await again(portal)
    await expect(page.get_by_label("Query", exact=True)).to_have_text("SELECT * FROM c WHERE c.n > @least")
    await portal.button("Run").click()
    await expect(portal.test("rows")).to_have_text("2 rows")
    await portal.follow(f"c/{name}/orders/mongo")
    await page.get_by_label("Filter", exact=True).fill('{"n": 4}')
    await again(portal)
    await page.locator("form").get_by_role("button", name="Find").click()
    await expect(portal.test("mongo-count")).to_have_text("1 document")
    await portal.button("Aggregate").click()
    await retype(page, "Stage 1", '{"$match": {"n": {"$lt": 2}}}')
    await again(portal)
    await portal.button("Run").click()
    await expect(portal.test("mongo-count")).to_have_text("2 documents")
    # What would change data is shown and not run.
    before = operator.ask("GET", path)["items"]
    script = "g.addV('person').property('pk', 'a')"
    await portal.follow(f"c/{name}/orders/gremlin")
    await retype(page, "Script", script)
    await again(portal)
    await expect(page.get_by_label("Script", exact=True)).to_have_text(script)
    command = json.dumps({"drop": "orders"})
    await portal.go(f"c/{name}/orders/mongo?form=command#{quote(json.dumps({'command': command}))}")
    await expect(page.get_by_label("Command", exact=True)).to_have_text(command)
    assert operator.ask("GET", path)["items"] == before


async def test_a_fragment_that_is_not_one_of_the_form_is_left_out(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    operator.create(name, "orders", "/pk")
    portal = await open_portal(operator)
    for fragment in ("{", '{"aggregate": 7}', '{"find": 7}', "[1]", "null"):
        await portal.follow(f"c/{name}/orders/mongo#{quote(fragment)}")
        await expect(portal.page.get_by_label("Filter", exact=True)).to_have_value("{}")
        await portal.follow("settings")

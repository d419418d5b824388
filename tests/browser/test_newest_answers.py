"""What buttons and keys ask for twice: answers come in another order than the questions were asked, and the page shows
that to the newest; changes reach the server in the order in which they were asked for.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from browser.conftest import OpenPortal
from browser.portal import Operator, Portal
from playwright.async_api import Error, Locator, Route, expect


class Late:
    """Keeps back the first of the requests to an address: its answer, or the request itself."""

    def __init__(self, portal: Portal, address: str, *, method: str = "", is_request: bool = False) -> None:
        self._portal = portal
        self._address = address
        self._method = method
        self._is_request = is_request
        self._asked = 0
        self._first = asyncio.Event()
        self._released = asyncio.Event()
        self._is_over = asyncio.Event()

    async def __aenter__(self) -> Late:
        await self._portal.page.route(self._address, self._take)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        await self._portal.page.unroute_all()

    async def _take(self, route: Route) -> None:
        if self._method not in ("", route.request.method):
            return await route.continue_()
        self._asked += 1
        is_first = self._asked == 1
        if is_first and self._is_request:
            self._first.set()
            await self._released.wait()
        with suppress(Error):  # the page may have given it up
            answer = await route.fetch()
            if is_first:
                self._first.set()
                await self._released.wait()
            await route.fulfill(response=answer)
        if is_first:
            self._is_over.set()

    async def first(self) -> None:
        """Until it was sent, and answered unless the request itself is kept back."""
        await self._first.wait()

    async def released(self) -> None:
        """Until it has arrived, and the page had time to show it."""
        self._released.set()
        await self._is_over.wait()
        for _ in range(2):
            await self._portal.page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


async def type_into(portal: Portal, label: str, text: str) -> None:
    await portal.page.get_by_label(label, exact=True).click()
    await portal.page.keyboard.press("Control+a")
    await portal.page.keyboard.insert_text(text)


async def run_twice(portal: Portal, address: str, label: str, texts: tuple[str, str], shown: Locator, new: str) -> None:
    """Run the first text of an editor with its answer kept back, then the second, whose answer is shown in the end."""
    async with Late(portal, address) as late:
        await type_into(portal, label, texts[0])
        await portal.page.keyboard.press("Control+Enter")
        await late.first()
        await type_into(portal, label, texts[1])
        await portal.page.keyboard.press("Control+Enter")
        await expect(shown).to_contain_text(new)
        await late.released()
        await expect(shown).to_contain_text(new)


async def test_older_answers_of_mongodb_and_gremlin_are_dropped(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    operator.create(name, "orders", "/pk")
    documents = [{"_id": number, "pk": "a", "n": number} for number in range(5)]
    operator.ask("POST", "portal/mongo", {"database": name, "command": {"insert": "orders", "documents": documents}})
    portal = await open_portal(operator, f"c/{name}/orders/mongo")
    page = portal.page
    answer = page.get_by_label("Answer")
    find = page.locator("form").get_by_role("button", name="Find")
    for button, shown, new in (
        (find, answer, '"$numberInt": "4"'),
        (portal.button("Explain"), page.locator("main"), "0 returned"),
    ):
        async with Late(portal, "**/portal/mongo") as late:
            await page.get_by_label("Filter", exact=True).fill('{"n": 3}')
            await button.click()
            await late.first()
            await page.get_by_label("Filter", exact=True).fill('{"n": 4}' if button is find else '{"n": 9}')
            await button.click()
            await expect(shown).to_contain_text(new)
            await late.released()
            await expect(shown).to_contain_text(new)
    await page.get_by_label("Filter", exact=True).fill("{")
    await portal.button("Explain").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await portal.follow(f"c/{name}/orders/mongo?form=aggregate")
    stages = ('{"$match": {"n": {"$gte": 2}}}', '{"$match": {"n": {"$gte": 4}}}')
    await run_twice(portal, "**/portal/mongo", "Stage 1", stages, portal.test("preview-0"), "1 document")
    await portal.follow(f"c/{name}/orders/mongo?form=command")
    commands = ('{"count": "orders"}', '{"count": "orders", "query": {"n": 9}}')
    await run_twice(portal, "**/portal/mongo", "Command", commands, answer, '"$numberInt": "0"')
    await portal.follow(f"c/{name}/orders/gremlin?as=json")
    scripts = ("g.inject('older')", "g.inject('newer')")
    await run_twice(portal, "**/portal/gremlin", "Script", scripts, page.get_by_label("Result"), "newer")


async def test_older_answers_about_items_are_dropped(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk")
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": "ab"[number % 2]} for number in range(300)))
    portal = await open_portal(operator, f"c/{name}/orders/items")
    page = portal.page
    await expect(portal.test("items-foot")).to_contain_text("100 items")
    async with Late(portal, "**/colls/orders/docs") as late:
        await portal.button("Next 100").click()
        await late.first()
        await page.get_by_label("Id", exact=True).fill("i7")
        await portal.button("Find").click()
        await expect(portal.test("items-foot")).to_contain_text("1 item,")
        await late.released()
        await expect(portal.test("items-foot")).to_contain_text("1 item,")
    await portal.follow(f"c/{name}/orders/query")
    rows = portal.test("rows")
    texts = ("SELECT TOP 2 * FROM c", "SELECT TOP 3 * FROM c")
    await run_twice(portal, "**/colls/orders/docs", "Query", texts, rows, "3 rows")
    async with Late(portal, "**/colls/orders/docs", is_request=True) as late:
        await type_into(portal, "Query", "SELECT TOP 4 * FROM c")
        await page.keyboard.press("Control+Enter")
        await late.first()
        await expect(portal.button("Cancel")).to_be_visible()
        await portal.button("Cancel").click()
        await expect(portal.button("Run")).to_be_enabled()
        await late.released()
        await expect(rows).to_have_text("3 rows")


async def test_older_answers_of_other_views_are_dropped(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders")
    portal = await open_portal(operator, f"c/{name}/orders/feed")
    page = portal.page
    async with Late(portal, "**/_armillary/clock") as late:
        await portal.button("From a time").click()
        await late.first()
        await portal.button("From the beginning").click()
        await late.released()
        assert "from=beginning" in page.url
    await portal.show("")
    async with Late(portal, "**/account/keys") as late:
        await portal.button("Show").click()
        await late.first()
        await portal.button("Show").click()
        await expect(portal.test("keys")).to_contain_text("primary")
        await portal.button("Hide").click()
        await late.released()
        await expect(portal.test("keys")).to_be_empty()


async def test_changes_are_made_in_the_order_in_which_they_were_asked_for(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    path = operator.create(name, "orders")
    body = "function tell(what) { getContext().getResponse().setBody(what); }"
    operator.ask("PUT", f"{path}/scripts/procedures/tell", {"body": body})
    portal = await open_portal(operator, f"c/{name}/orders/throughput")
    page = portal.page
    async with Late(portal, f"**/{path}/mode", is_request=True) as late:
        await portal.button("get 429").click()
        await late.first()
        await portal.button("are not noticed").click()
        await late.released()
        await expect(portal.button("are not noticed")).to_have_attribute("aria-pressed", "true")
    assert operator.ask("GET", path)["mode"] == "off"
    await portal.follow(f"c/{name}/orders/partitions")
    async with Late(portal, "**/reshapes/pauses", method="PUT", is_request=True) as late:
        for point in ("begun", "copied"):
            await page.get_by_label(point, exact=True).check()
            await late.first()
        await late.released()
        await expect(portal.test("testing-line")).to_contain_text("begun, copied")
    for point in ("begun", "copied"):
        await page.get_by_label(point, exact=True).uncheck()
    await expect(portal.test("testing-line")).to_have_count(0)
    await portal.follow(f"c/{name}/orders/scripts?kind=procedures&name=tell")
    async with Late(portal, "**/procedures/tell/run", is_request=True) as late:
        await page.get_by_label("Partition key").fill("a")
        for word in ("older", "newer"):
            await page.get_by_label("Arguments, a JSON array").fill(f'["{word}"]')
            await portal.button("Dry run").click()
            await late.first()
        await late.released()
        await expect(portal.test("outcome")).to_contain_text("newer")


async def test_a_choice_stays_while_an_older_reading_arrives(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    """A box that came back ticked would be ticked again by the next choice."""
    operator.create(name, "orders")
    operator.ask("PUT", "reshapes/pauses", {"points": ["begun", "copied", "held"]})
    portal = await open_portal(operator, f"c/{name}/orders/partitions")
    begun, copied, held = [portal.page.get_by_label(each, exact=True) for each in ("begun", "copied", "held")]
    await expect(held).to_be_checked()
    async with Late(portal, "**/reshapes", method="GET") as reading:
        await begun.uncheck()
        await reading.first()
        async with Late(portal, "**/reshapes/pauses", method="PUT", is_request=True) as change:
            await copied.uncheck()
            await reading.released()
            await change.first()
            await expect(copied).not_to_be_checked()
            # The page shows a choice before the server has it.
            async with portal.page.expect_response(lambda each: each.request.post_data_json == {"points": []}):
                await held.uncheck()
                await change.released()
    await expect(portal.test("testing-line")).to_have_count(0)
    assert operator.ask("GET", "reshapes")["pauses"] == []

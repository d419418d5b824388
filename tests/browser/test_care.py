"""What holds for every view: inert to stored markup, without keys of the account, and steady when the server goes away
or the log-in ends."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from browser.conftest import OpenPortal, StartServer
from browser.portal import Operator, Portal
from playwright.async_api import expect
from support.process import call_armillary

PAYLOADS = [
    form.replace("@", f"window.was={number}")
    for number in range(25)
    for form in (
        "<script>@</script>",
        "<img src=x onerror=@>",
        '"><svg onload=@>',
        "'><iframe srcdoc='<script>parent.@</script>'>",
        "javascript:@",
        "{{constructor.constructor('@')()}}",
        "${@}",
        "</textarea><details open ontoggle=@>",
    )
]


def as_name(payload: str) -> str:
    """Without the characters that names cannot have."""
    return payload.translate({ord(each): "-" for each in "/\\?#"})


async def is_inert(portal: Portal, where: str) -> None:
    assert await portal.page.evaluate("window.was ?? null") is None, where
    made = "document.querySelectorAll('img, iframe, script:not([src]), main svg, nav svg, [onload], [onerror]').length"
    assert await portal.page.evaluate(made) == 0, where


async def test_stored_markup_is_inert(operator: Operator, name: str, open_portal: OpenPortal, tmp_path: Path) -> None:
    """As database, container, id, key, value, script and key of a fault rule, in the pages and in a report."""
    assert len(PAYLOADS) == 200
    forms = [as_name(each) for each in PAYLOADS[:8]]
    for each in forms:
        operator.create(f"{name}{each}", each, "/pk")
    database, container = f"{name}{forms[1]}", forms[1]
    path = f"databases/{quote(database, safe='')}/containers/{quote(container, safe='')}"
    items = (
        {"id": f"{number}{as_name(payload)}", "pk": payload, "value": payload, payload: {"nested": [payload]}}
        for number, payload in enumerate(PAYLOADS)
    )
    operator.fill(database, container, items)
    for payload in PAYLOADS[:8]:
        body = f"function f() {{ return {json.dumps(payload)}; }}"
        operator.ask("PUT", f"{path}/scripts/functions/{quote(as_name(payload), safe='')}", {"body": body})
        operator.ask("POST", "faults", {"operations": "read", "key": payload, "status": 503})
    portal = await open_portal(operator, allowed=("file:",))
    pair = quote(f"{database}/{container}")
    for each in [*await portal.views(database, container), f"compare?a={pair}&b={pair}"]:
        await portal.show(each)
        if each.endswith("/query"):
            await portal.button("Run").click()
            await expect(portal.test("rows")).to_contain_text("200 rows")
            await portal.page.get_by_role("button", name="JSON", exact=True).click()
        if each.endswith("/items"):
            await expect(portal.page.get_by_role("grid", name="items").locator("tbody tr").first).to_be_visible()
        await is_inert(portal, each)
    operator.ask("DELETE", "faults")
    report = tmp_path / "report.html"
    key = {"ARMILLARY_CONTROL_KEY": operator.key}
    arguments = ("report", f"{database}/{container}", "--html", str(report), "--url", operator.server.url)
    outcome = call_armillary(*arguments, environment=key)
    assert outcome.returncode == 0, outcome.stderr
    await portal.page.goto(report.as_uri())
    await expect(portal.page.locator("h1")).to_have_text(f"{database}/{container}")
    assert await portal.page.evaluate("window.was ?? null") is None
    made = "document.querySelectorAll('script, img, iframe, details, textarea, [onload], [onerror], [ontoggle]').length"
    assert await portal.page.evaluate(made) == 0


async def test_keys_of_the_account_leave_no_trace(start_server: StartServer, open_portal: OpenPortal) -> None:
    """Shown and copied, they are neither in the page after a minute nor in addresses, storage, history, console or
    log; the control key, which was typed, is not either."""
    operator = start_server("--log-level", "debug")
    operator.create("shop", "orders", "/pk")
    portal = await open_portal(operator, is_logged_in=False, permissions=["clipboard-read", "clipboard-write"])
    page = portal.page
    said: list[str] = []
    page.on("console", lambda each: said.append(each.text))
    page.on("request", lambda each: said.append(each.url))
    await page.clock.install()
    await portal.log_in()
    keys = [key for key in operator.ask("GET", "account/keys")["keys"].values() if key]
    secrets = [*keys, operator.key, *(quote(key, safe="") for key in (*keys, operator.key))]
    copied = page.locator("[data-door='mongo']").get_by_role("button", name="Copy connection string")
    assert quote(keys[0], safe="") in await portal.copied(copied)
    await portal.button("Show").click()
    for key in keys:
        await expect(portal.test("keys")).to_contain_text(key)
    await page.get_by_role("link", name="Settings").click()
    await expect(page.locator("main h1")).to_have_text("Settings")
    assert not [key for key in keys if key in await page.content()], "gone with the view"
    await page.get_by_role("link", name="Overview").click()
    await portal.button("Show").click()
    await expect(portal.test("keys")).to_contain_text(keys[0])
    await page.clock.fast_forward(61_000)
    await expect(portal.test("keys")).to_be_empty()
    kept = await page.evaluate(
        """async () => JSON.stringify([{...localStorage}, {...sessionStorage}, history.state, location.href,
        document.title, document.cookie, await indexedDB.databases(), await caches.keys(),
        document.documentElement.outerHTML, [...document.querySelectorAll('input, textarea')].map(each => each.value),
        performance.getEntries().map(each => each.name)])"""
    )
    session = await page.context.new_cdp_session(page)
    history = await session.send("Page.getNavigationHistory")
    for where in (kept, json.dumps(history), "\n".join(said), operator.server.log):
        assert where
        for secret in secrets:
            assert secret not in where


async def test_a_lost_server_is_said_and_found_again(start_server: StartServer, open_portal: OpenPortal) -> None:
    operator = start_server()
    operator.create("shop", "orders", "/pk")
    portal = await open_portal(operator, "c/shop/orders/partitions", allowed=("net::ERR",))
    await expect(portal.test("strip")).to_be_visible()
    port = operator.server.port
    operator.server.kill()
    banner = portal.page.get_by_text("The server does not answer, since")
    await expect(banner).to_be_visible()
    await expect(portal.test("strip")).to_be_visible()
    again = start_server("--sql-port", str(port))
    dialog = portal.page.get_by_role("dialog", name="Log in again")
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Control key").fill(again.key)
    await dialog.get_by_role("button", name="Log in").click()
    await expect(banner).to_be_hidden()
    again.client("shop", "orders").create_item({"id": "1", "pk": "a"})
    row = portal.page.get_by_role("grid", name="partitions").locator("tbody tr")
    await expect(row.locator("td:nth-child(5)")).to_have_text("1")


async def test_an_edit_outlives_its_log_in(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk")
    client = operator.client(name, "orders")
    client.create_item({"id": "1", "pk": "a"})
    portal = await open_portal(operator, f"c/{name}/orders/items")
    await portal.page.locator("td", has_text="1").first.click()
    await portal.page.get_by_label("Item as JSON").click()
    await portal.page.keyboard.press("Control+a")
    await portal.page.keyboard.insert_text('{"id": "1", "pk": "a", "typed": true}')
    await portal.page.context.clear_cookies()
    dialog = portal.page.get_by_role("dialog", name="Log in again")
    await expect(dialog).to_be_visible()
    await portal.page.keyboard.press("Escape")
    await expect(dialog).to_be_visible()
    await expect(dialog.get_by_label("Control key")).to_be_focused()
    await dialog.get_by_label("Control key").fill(operator.key)
    await dialog.get_by_role("button", name="Log in").click()
    await expect(dialog).to_have_count(0)
    await portal.button("Save").click()
    await expect(portal.test("spoken")).to_have_text("Saved")
    assert client.read_item("1", "a")["typed"] is True

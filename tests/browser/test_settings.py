"""Settings: log-ins, new keys of the account, and the switch that keeps overview pages from reading items."""

from __future__ import annotations

import re

from browser.conftest import OpenPortal, StartServer
from browser.portal import Operator
from playwright.async_api import Request, expect


async def test_log_ins_are_listed_and_all_are_ended(start_server: StartServer, open_portal: OpenPortal) -> None:
    operator = start_server()
    other = await open_portal(operator, "", read_only=True)
    portal = await open_portal(operator, "settings")
    rows = portal.page.get_by_role("grid", name="log-ins").locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(0)).to_contain_text("127.0.0.1 (this browser)")
    await expect(rows.nth(0)).to_contain_text("change")
    await expect(rows.nth(1)).to_contain_text("read")
    await other.follow("settings")
    await expect(other.page.get_by_role("grid", name="log-ins").locator("tbody tr")).to_have_count(2)
    await expect(other.button("Log out all")).to_have_count(0)
    await portal.button("Log out all").click()
    await expect(portal.page.get_by_label("Control key")).to_be_visible()
    await other.go("")
    await expect(other.page.get_by_label("Control key")).to_be_visible()


async def test_keys_are_replaced_in_four_steps(start_server: StartServer, open_portal: OpenPortal) -> None:
    operator = start_server()
    before = operator.ask("GET", "account/keys")["keys"]
    assert before["secondary"] is None
    portal = await open_portal(operator, "settings")
    steps = portal.test("key-steps").locator("li")
    await expect(steps).to_have_count(4)
    await expect(steps.nth(2).get_by_role("button")).to_be_disabled()
    await steps.nth(0).get_by_role("button", name="Regenerate secondary").click()
    await steps.nth(0).get_by_role("button", name="Cancel").click()
    assert operator.ask("GET", "account/keys")["keys"] == before
    await steps.nth(0).get_by_role("button", name="Regenerate secondary").click()
    await steps.nth(0).get_by_role("button", name="Replace the secondary key now").click()
    await expect(steps.nth(0)).to_contain_text("done")
    first = operator.ask("GET", "account/keys")["keys"]
    assert first["secondary"] is not None and first["primary"] == before["primary"]
    await expect(steps.nth(2).get_by_role("button")).to_be_disabled()
    await steps.nth(1).get_by_role("button").click()
    await steps.nth(2).get_by_role("button").click()
    await steps.nth(2).get_by_role("button", name="Replace the primary key now").click()
    await expect(steps.nth(2)).to_contain_text("done")
    await steps.nth(3).get_by_role("button").click()
    await steps.nth(3).get_by_role("button", name="Replace the secondary key now").click()
    await expect(steps.nth(3)).to_contain_text("done")
    last = operator.ask("GET", "account/keys")["keys"]
    assert len({before["primary"], first["secondary"], last["primary"], last["secondary"]}) == 4
    shown = await portal.page.content()
    assert all(key not in shown for keys in (first, last) for key in keys.values() if key is not None)


async def test_quiet_pages_read_no_items(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    for container in ("orders", "others"):
        operator.create(name, container)
        operator.fill(name, container, [{"id": "1", "pk": "a"}])
    portal = await open_portal(operator, "settings")
    await portal.page.get_by_label("Quiet: pages that only show").check()
    asked: list[str] = []

    def note(request: Request) -> None:
        if re.search("/keys|/sample|/verdict|/sql/", request.url) and "/static/" not in request.url:
            asked.append(request.url)

    portal.page.on("request", note)
    spent = await portal.test("spent").inner_text()
    for path in ("", f"c/{name}/orders/partitions", f"compare?a={name}/orders&b={name}/others"):
        await portal.show(path)
        await expect(portal.page.get_by_role("heading", level=1)).to_be_visible()
        if path:
            await expect(portal.test("strip").first).to_be_visible()
            await expect(portal.test("quiet").first).to_contain_text("are not read by themselves")
    assert not asked
    await expect(portal.test("spent")).to_have_text(spent)
    await portal.show(f"c/{name}/orders/partitions")
    await portal.button("Read keys").click()
    await expect(portal.test("top-keys")).to_contain_text('"a"')
    assert any("/keys?" in each for each in asked)


async def test_the_policy_requires_trusted_types(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    """Every test fails on a violation, so the libraries do without such sinks; here the browser refuses one."""
    operator.create(name, "orders")
    refused = "This document requires"
    portal = await open_portal(operator, f"c/{name}/orders/query", allowed=(refused,))
    await expect(portal.page.get_by_label("Query", exact=True)).to_be_visible()
    outcome = await portal.page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return 'set'; } catch (error) { return error.name; } }"
    )
    assert outcome == "TypeError"

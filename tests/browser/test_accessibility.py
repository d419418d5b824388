"""Accessible in both schemes, by the rules of axe-core, and by keyboard alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from browser.conftest import OpenPortal, StartServer
from browser.portal import AXE, Operator, Portal
from playwright.async_api import Locator, expect

NARROW_PX = 320  # WCAG 2.2, 1.4.10
FIXED = datetime(2026, 1, 31, 12, tzinfo=UTC)


async def tab_to(portal: Portal, wanted: Locator) -> None:
    """Press Tab until the focus is there."""
    for _ in range(60):
        await portal.page.keyboard.press("Tab")
        if await wanted.evaluate("each => each.getRootNode().activeElement === each"):
            return
    raise AssertionError(f"60 times Tab do not lead to {wanted}")


async def reflows(portal: Portal) -> list[str]:
    """Nothing but the view if it is wider than a narrow screen; the tree is folded there."""
    await portal.page.set_viewport_size({"width": NARROW_PX, "height": 800})
    await expect(portal.button("Containers")).to_have_attribute("aria-expanded", "false")
    wide = await portal.page.evaluate("document.documentElement.scrollWidth")
    await portal.page.set_viewport_size({"width": 1280, "height": 800})
    return [f"{portal.page.url}: {wide} px wide on a screen of {NARROW_PX}"] if wide > NARROW_PX else []


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: make maintenance/vendor/node_modules/.installed"
)
async def test_axe_finds_nothing(
    operator: Operator, name: str, start_server: StartServer, open_portal: OpenPortal
) -> None:
    operator.create(name, "orders", "/pk", 20_000)
    operator.fill(name, "orders", ({"id": f"i{number}", "pk": f"k{number}"} for number in range(5)))
    operator.ask("POST", "snapshots/before-the-experiment", {})
    operator.ask("POST", "faults", {"operations": "write", "database": name, "container": "orders", "status": 429})
    portal = await open_portal(operator, is_logged_in=False)
    await expect(portal.page.get_by_label("Control key")).to_be_visible()
    found = await portal.axe()
    found_frame = False
    await portal.log_in()
    for path in [*await portal.views(name, "orders"), f"compare?a={name}/orders&b={name}/orders"]:
        await portal.show(path)
        # The frame around the views is the same: it is looked at with the first.
        found += await portal.axe("main" if found_frame else "html")
        found_frame = True
        found += await reflows(portal)
    await portal.page.set_viewport_size({"width": NARROW_PX, "height": 800})
    await expect(portal.page.get_by_label("Filter by name")).to_be_hidden()
    await portal.button("Containers").click()
    await portal.page.get_by_role("link", name="orders 4 p").click()
    await expect(portal.page.get_by_label("Filter by name")).to_be_hidden()
    await portal.page.set_viewport_size({"width": 1280, "height": 800})
    await portal.show(f"c/{name}/orders/items")
    for opened in (portal.page.locator("td", has_text="i1").first, *map(portal.button, ("Scale", "New container"))):
        await opened.click()
        await expect(portal.page.get_by_role("dialog")).to_be_visible()
        found += await portal.axe("dialog")
        await portal.button("Close").click()
    assert not found, "\n".join(found)


PHONE_PX = 400


async def test_what_matters_is_seen_without_scrolling_aside(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    """The columns of partitions on a usual screen; on that of a phone the good key beside the bad one, and what can be
    done with a snapshot."""
    for container in ("orders", "orders-by-country"):
        operator.create(name, container, "/pk", 20_000)
        operator.fill(name, container, ({"id": f"i{number}", "pk": f"k{number}"} for number in range(120)))
    operator.ask("POST", f"databases/{name}/containers/orders/split", {"partition": 0})
    operator.ask("POST", "snapshots/before-the-experiment", {})
    portal = await open_portal(operator, is_new=True)
    boxes = {
        f"c/{name}/orders/partitions": (1280, ".grid-box:has([aria-label=partitions])"),
        f"compare?a={name}/orders&b={name}/orders-by-country": (PHONE_PX, "[aria-label=Figures]"),
        "keeping": (PHONE_PX, ".grid-box:has([data-test=snapshots])"),
    }
    for path, (width, box) in boxes.items():
        await portal.page.set_viewport_size({"width": width, "height": 800})
        await portal.show(path)
        await expect(portal.page.locator(box)).to_be_visible()
        beyond = await portal.page.locator(box).evaluate("each => each.scrollWidth - each.clientWidth")
        assert beyond <= 0, (path, beyond)


async def test_the_keyboard_alone_is_enough(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk")
    operator.client(name, "orders").create_item({"id": "1", "pk": "a"})
    portal = await open_portal(operator, f"c/{name}/orders/items", is_logged_in=False)
    keyboard = portal.page.keyboard
    # Two keys belong together for a second and a half, which may pass between them on a busy machine.
    await portal.page.clock.set_fixed_time(FIXED)
    await expect(portal.page.get_by_label("Control key")).to_be_focused()
    await keyboard.type(operator.key)
    await keyboard.press("Enter")
    await expect(portal.test("items-foot")).to_contain_text("1 item")
    await keyboard.press("g")
    await keyboard.press("q")
    editor = portal.page.get_by_label("Query", exact=True)
    await expect(editor).to_be_visible()
    await tab_to(portal, editor)
    await keyboard.press("Control+Enter")
    await expect(portal.test("rows")).to_have_text("1 row")
    await keyboard.press("Escape")
    await keyboard.press("Tab")
    await expect(portal.button("Run")).to_be_focused()
    await keyboard.press("g")
    await keyboard.press("p")
    await expect(portal.test("strip")).to_be_visible()
    stop = portal.page.get_by_label("begun", exact=True)
    await tab_to(portal, stop)
    await keyboard.press("Space")
    await expect(stop).to_be_checked()
    await expect(portal.test("testing-line")).to_be_visible()
    await expect(stop).to_be_focused()
    await keyboard.press("Space")
    await expect(portal.test("testing-line")).to_have_count(0)
    await keyboard.press("g")
    await keyboard.press("h")
    heat = portal.test("heat")
    await expect(heat).to_be_visible()
    await tab_to(portal, heat)
    await keyboard.press("End")
    await expect(portal.test("spoken")).to_contain_text("hashes")
    await expect(heat).to_be_focused()
    await keyboard.press("?")
    await expect(portal.page.get_by_role("dialog", name="Keys")).to_be_visible()
    await keyboard.press("Escape")
    await expect(portal.page.get_by_role("dialog")).to_have_count(0)
    await expect(heat).to_be_focused()

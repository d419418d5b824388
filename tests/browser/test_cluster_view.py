"""The view of a cluster, on two nodes that run: roles, lags, drain and fail-over."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from browser.conftest import OpenPortal
from browser.portal import AXE, Operator, Portal
from faults.cluster_processes.processes import CONTROL_KEY
from playwright.async_api import Locator, expect
from sdk.cluster import ClientCluster
from support.process import ServerProcess


def row(portal: Portal, node: str) -> Locator:
    return portal.page.locator("main tbody tr", has=portal.page.locator(f"td:first-child:text-is('{node}')"))


async def test_both_nodes_are_shown_with_their_roles_and_lags(tmp_path: Path, open_portal: OpenPortal) -> None:
    cluster = await ClientCluster.start(tmp_path, {"e1": "East US", "w1": "West US"})
    try:
        portals = {}
        for name, node in cluster.nodes.items():  # a node has the address and the log of a server
            operator = Operator(cast("ServerProcess", node), CONTROL_KEY)
            portals[name] = await open_portal(operator, "cluster", read_only=name == "w1", allowed=("net::ERR",))
        for name, portal in portals.items():
            await expect(portal.page.get_by_role("link", name="Cluster")).to_have_attribute("aria-current", "page")
            await expect(portal.page.locator("main dl")).to_contain_text(f"This node{name}")
            for each, region, role in (("e1", "East US", "leader"), ("w1", "West US", "follower")):
                cells = row(portal, each).locator("td")
                await expect(cells.nth(1)).to_have_text(region)
                await expect(cells.nth(2)).to_have_text(role)
                await expect(cells.nth(3)).to_have_text("alive")
                await expect(cells.nth(4)).to_have_text("0")
            if AXE.exists():
                assert await portal.axe("main") == []
        portal = portals["e1"]
        await expect(portals["w1"].page.locator("main button")).to_have_count(0)
        await row(portal, "w1").get_by_role("button", name="Drain").click()
        await expect(row(portal, "w1").locator("td").nth(3)).to_have_text("alive, drained")
        await row(portal, "w1").get_by_role("button", name="Undrain").click()
        await expect(row(portal, "w1").locator("td").nth(3)).to_have_text("alive")
        await row(portal, "w1").get_by_role("button", name="Let it lead").click()
        for portal in portals.values():
            await expect(row(portal, "w1").locator("td").nth(2)).to_have_text("leader")
    finally:
        await cluster.close()

"""The overview with its connection strings, and databases and containers: created, scaled and deleted in the page."""

from __future__ import annotations

import asyncio
from typing import Any

from azure.cosmos import CosmosClient
from azure.data.tables import TableServiceClient
from browser.conftest import OpenPortal
from browser.portal import Operator, Portal
from gremlin_python.driver import serializer
from gremlin_python.driver.client import Client
from playwright.async_api import expect
from pymongo import MongoClient

KB = 1024


async def copied(portal: Portal, door: str) -> str:
    button = portal.page.locator(f"[data-door='{door}']").get_by_role("button", name="Copy connection string")
    return await portal.copied(button)


async def test_copied_connection_strings_open_the_account(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    operator.create(name, "orders", "/pk")
    portal = await open_portal(operator, permissions=["clipboard-read", "clipboard-write"])
    with CosmosClient.from_connection_string(await copied(portal, "sql")) as client:
        assert name in [each["id"] for each in client.list_databases()]
    mongo: MongoClient[dict[str, Any]] = MongoClient(await copied(portal, "mongo"))
    with mongo:
        assert name in mongo.list_database_names()
    with TableServiceClient.from_connection_string(await copied(portal, "table")) as tables:
        assert list(tables.list_tables()) is not None
    graph = dict(each.split("=", 1) for each in (await copied(portal, "gremlin")).rstrip(";").split(";"))
    assert graph["ApiKind"] == "Gremlin"
    options = {"username": f"/dbs/{name}/colls/orders", "password": graph["AccountKey"], "pool_size": 1}
    serializers = serializer.GraphSONSerializersV2d0()
    gremlin = await asyncio.to_thread(Client, graph["AccountEndpoint"], "g", message_serializer=serializers, **options)
    added = await asyncio.to_thread(
        lambda: gremlin.submit("g.addV('x').property('pk', 'a').values('pk')").all().result()
    )
    await asyncio.to_thread(gremlin.close)
    assert added == ["a"]


async def test_the_first_page_is_light(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, is_logged_in=False)
    await expect(portal.page.get_by_label("Control key")).to_be_visible()
    await portal.log_in()
    await expect(portal.test("health")).to_be_visible()
    loaded = await portal.page.evaluate(
        """() => [performance.getEntriesByType('navigation'), performance.getEntriesByType('resource')].flat()
        .map(each => [each.name, each.encodedBodySize])"""
    )
    files = [each for each in loaded if "/portal/" in each[0]]
    assert sum(size for _, size in files) <= 120 * KB, files
    assert len(loaded) <= 40, loaded


async def test_containers_are_created_scaled_and_deleted(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    portal = await open_portal(operator)
    page = portal.page
    await portal.button("New container").click()
    form = page.get_by_role("dialog")
    await form.locator("[name=database]").fill(name)
    await form.locator("[name=container]").fill("orders")
    await form.locator("[name=path0]").fill("/customerId")
    await form.locator("[name=ru]").fill("20000")
    await expect(portal.test("partitions-made")).to_have_text("4 partitions")
    await form.get_by_role("button", name="Create").click()
    await page.wait_for_url(f"**/c/{name}/orders/partitions")
    assert operator.ask("GET", f"databases/{name}/containers/orders")["partitionCount"] == 4
    await expect(portal.test("strip")).to_have_attribute("data-count", "4")
    await portal.button("Scale").click()
    await form.locator("[name=ru]").fill("100")
    await form.get_by_role("button", name="Apply").click()
    await expect(form.get_by_role("alert")).to_contain_text("minimum")
    await form.locator("[name=ru]").fill("50000")
    await expect(portal.test("scale-effect")).to_contain_text("Splits 1 of 4 partitions, there will be 5")
    await form.get_by_role("button", name="Apply").click()
    await expect(form).to_be_hidden()
    assert operator.ask("GET", f"databases/{name}/containers/orders")["throughput"]["ru"] == 50_000
    await portal.button("Delete").click()
    await expect(form.get_by_role("button", name="Delete")).to_be_disabled()
    await form.get_by_label("Name").fill("orders")
    await form.get_by_role("button", name="Delete").click()
    await expect(form).to_be_hidden()
    assert operator.ask("GET", f"databases/{name}")["containers"] == []


async def test_databases_are_created_scaled_and_deleted(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator)
    form = portal.page.get_by_role("dialog")
    await portal.button("New database").click()
    await form.get_by_label("Name").fill(name)
    await form.get_by_label("Throughput").select_option("throughput")
    await form.locator("[name=ru]").fill("1000")
    await form.get_by_role("button", name="Create").click()
    await portal.button(f"Scale database {name}").click()
    assert operator.ask("GET", f"databases/{name}")["throughput"]["ru"] == 1_000
    await form.locator("[name=ru]").fill("100")
    await form.get_by_role("button", name="Apply").click()
    await expect(form.get_by_role("alert")).to_contain_text("minimum")
    await form.locator("[name=ru]").fill("2000")
    await form.get_by_role("button", name="Apply").click()
    await expect(form).to_be_hidden()
    assert operator.ask("GET", f"databases/{name}")["throughput"]["ru"] == 2_000
    await portal.button(f"Delete database {name}").click()
    await expect(form.get_by_role("button", name="Delete")).to_be_disabled()
    await form.get_by_label("Name").fill(name)
    await form.get_by_role("button", name="Delete").click()
    await expect(form).to_be_hidden()
    assert operator.ask("GET", "databases")["databases"] == []


async def test_the_sample_is_loaded_from_an_empty_server(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator)
    await portal.button("Load the sample").click()
    await portal.page.wait_for_url("**/c/shop/orders/partitions", timeout=60_000)
    items = [each["items"] for each in operator.ask("GET", "containers")["containers"]]
    assert items == [600, 600]

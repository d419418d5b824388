"""Gremlin, MongoDB, the change feed, scripts, snapshots, faults and the clock, each beside a real client."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError
from browser.conftest import OpenPortal
from browser.portal import Operator, Portal
from playwright.async_api import expect


def gremlin(operator: Operator, database: str, script: str) -> Any:
    asked = {"database": database, "graph": "graph", "script": script, "bindings": {}}
    answer = operator.ask("POST", "portal/gremlin", asked)
    assert answer["status"]["code"] < 300, answer
    return answer


def member(number: int) -> str:
    return f".addV('member').property('id', 'm{number}').property('pk', 'club')"


def local_time(seconds: float) -> str:
    """As a field for local times takes it."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


async def type_into(portal: Portal, label: str, text: str) -> None:
    await portal.page.get_by_label(label, exact=True).click()
    await portal.page.keyboard.press("Control+a")
    await portal.page.keyboard.insert_text(text)


async def click_a_vertex(portal: Portal) -> None:
    """Where the canvas has the colour of the vertices."""
    canvas = portal.test("graph")
    await expect(canvas).to_have_attribute("data-edges", "33")
    place = await canvas.evaluate(
        """canvas => { const {width, height} = canvas, ratio = width / canvas.clientWidth;
        const dots = canvas.getContext('2d').getImageData(0, 0, width, height).data;
        for (let at = 0; at < dots.length; at += 4) if (dots[at] < 20 && dots[at + 2] > 150 && dots[at + 3] === 255)
          return {x: (at / 4 % width) / ratio, y: Math.floor(at / 4 / width) / ratio + 2}; }"""
    )
    await canvas.click(position=place)


async def test_graphs_are_drawn_up_to_a_size(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "graph", "/pk")
    gremlin(operator, name, "g" + "".join(map(member, range(34))))
    for number in range(1, 34):
        gremlin(operator, name, f"g.V('m{number}').addE('knows').to(g.V('m{number // 2}'))")
    portal = await open_portal(operator, f"c/{name}/graph/gremlin")
    await portal.page.emulate_media(reduced_motion="reduce")  # vertices have their places at once
    await type_into(portal, "Script", "g.V()")
    await portal.button("Run").click()
    await expect(portal.test("graph")).to_have_attribute("data-drawn", "34")
    await portal.button("Edges among these").click()
    await expect(portal.test("graph")).to_have_attribute("aria-label", "34 vertices and 33 edges; labels member")
    await portal.page.locator("label", has_text="Vertex").locator("select").select_option("m3")
    await expect(portal.test("vertex")).to_contain_text('"m3"')
    await portal.page.locator("label", has_text="Vertex").locator("select").select_option("")
    await expect(portal.test("vertex")).to_have_count(0)
    await click_a_vertex(portal)
    await expect(portal.test("vertex")).to_contain_text('"label": "member"')
    for first in range(34, 600, 100):
        gremlin(operator, name, "g" + "".join(map(member, range(first, min(600, first + 100)))))
    await portal.button("Run").click()
    await expect(portal.test("too-large")).to_have_text("600 vertices: shown as a table.")
    await expect(portal.page.get_by_role("grid", name="result")).to_be_visible()
    await type_into(portal, "Script", "g.V('m3').out().executionProfile()")
    await portal.button("Run").click()
    steps = portal.page.get_by_role("grid", name="profile")
    await expect(steps.locator("tbody tr").first).to_contain_text("GetVertices")
    await expect(steps.locator("tbody tr", has_text="GetEdges").locator("td").nth(5)).to_have_text("1")
    await type_into(portal, "Script", "g.V().nosuch()")
    await portal.button("Run").click()
    await expect(portal.page.get_by_role("alert")).to_contain_text("nosuch")
    await portal.page.emulate_media(reduced_motion="no-preference")


async def test_pipelines_are_shown_stage_by_stage(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk")
    documents = [{"_id": number, "pk": "a", "n": {"$numberLong": str(number)}} for number in range(5)]
    operator.ask("POST", "portal/mongo", {"database": name, "command": {"insert": "orders", "documents": documents}})
    portal = await open_portal(operator, f"c/{name}/orders/mongo")
    await portal.page.locator("form").get_by_role("button", name="Find").click()
    await expect(portal.test("mongo-count")).to_have_text("5 documents")
    await expect(portal.page.get_by_label("Answer")).to_contain_text('"$numberLong": "3"')
    await portal.page.get_by_role("button", name="Aggregate").click()
    await type_into(portal, "Stage 1", '{"$match": {"n": {"$gte": 2}}}')
    await type_into(portal, "Stage 2", '{"$group": {"_id": null, "sum": {"$sum": "$n"}}}')
    await portal.button("Preview each stage").click()
    await expect(portal.test("preview-0")).to_contain_text("after stage 1: 3 documents")
    await expect(portal.test("preview-1")).to_contain_text("after stage 2: 1 document")


async def test_the_feed_shows_writes_as_they_come(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders", "/pk")
    client = operator.client(name, "orders")
    portal = await open_portal(operator, f"c/{name}/orders/feed")
    await expect(portal.page.get_by_text("Waiting for a change")).to_be_visible()
    async with portal.page.expect_request("**/changes?*position=*"):  # it has a place to go on from
        await portal.button("Clear").click()
    client.create_item({"id": "first", "pk": "a"})
    await expect(portal.test("feed")).to_contain_text("first")
    operator.ask("POST", f"{path}/split", {})
    for number in range(3):
        client.upsert_item({"id": f"after-{number}", "pk": f"k{number}"})
    for number in range(3):
        await expect(portal.test("feed")).to_contain_text(f"after-{number}")


async def test_dry_runs_keep_nothing(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders", "/pk")
    body = """function make(id) { const all = getContext().getCollection();
      all.createDocument(all.getSelfLink(), {id: id, pk: 'a'},
        (error, made) => getContext().getResponse().setBody(made.id)); }"""
    operator.ask("PUT", f"{path}/scripts/procedures/make", {"body": body})
    portal = await open_portal(operator, f"c/{name}/orders/scripts?kind=procedures&name=make")
    await portal.page.get_by_label("Partition key").fill("a")
    await portal.page.get_by_label("Arguments, a JSON array").fill('["one"]')
    await portal.button("Dry run").click()
    await expect(portal.test("outcome")).to_contain_text("Nothing was kept.")
    assert operator.ask("GET", path)["items"] == 0
    await portal.page.get_by_label("For good").check()
    await portal.button("Run for good").click()
    await expect(portal.test("outcome")).to_contain_text("is kept")
    assert operator.ask("GET", path)["items"] == 1


async def test_bringing_a_snapshot_back_undoes(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders", "/pk")
    client = operator.client(name, "orders")
    client.create_item({"id": "1", "pk": "a"})
    portal = await open_portal(operator, "keeping")
    await portal.page.get_by_label("Name", exact=True).fill(name)
    await portal.button("Take one").click()
    await expect(portal.test("snapshots")).to_contain_text(name)
    client.create_item({"id": "2", "pk": "a"})
    row = portal.test("snapshots").locator("tr", has_text=name)
    await row.get_by_role("button", name="Bring back").click()
    await row.get_by_role("button", name="Bring back now").click()
    await expect(portal.test("said")).to_contain_text("was brought back")
    assert operator.ask("GET", path)["items"] == 1


async def test_faults_and_the_clock_reach_clients(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk", definition={"defaultTtl": 600})
    client = operator.client(name, "orders")
    client.create_item({"id": "1", "pk": "a"})
    portal = await open_portal(operator, "testing")
    await portal.page.get_by_text("New rule").click()
    await portal.page.locator("[name=operations]").select_option("read")
    await portal.page.locator("[name=container]").select_option(f"{name}/orders")
    await portal.page.locator("[name=status]").select_option("404")
    await expect(portal.test("rule-sentence")).to_contain_text(f"each read of {name}/orders gets 404")
    await portal.button("Make the rule").click()
    await expect(portal.test("testing-line")).to_contain_text("1 fault rule")
    with pytest.raises(CosmosHttpResponseError) as hit:
        client.read_item("1", "a")
    assert hit.value.status_code == 404
    await expect(portal.test("rules")).to_contain_text(f"each read of {name}/orders gets 404")
    operator.ask("POST", "faults", {"operations": "write", "database": name, "key": "none", "status": 429})
    await expect(portal.test("rules")).to_contain_text(f'each write to key "none" of {name} gets 429')
    await portal.button("Delete all rules").click()
    await expect(portal.test("testing-line")).to_have_count(0)
    assert client.read_item("1", "a")["id"] == "1"
    before = operator.ask("GET", "clock")["aheadSeconds"]  # tests before may have moved it
    reached = operator.ask("GET", "clock")["nowSeconds"]
    await portal.page.get_by_label("to", exact=True).fill(local_time(reached + 300))
    await portal.button("Advance to it").click()
    await expect(portal.test("clock")).not_to_contain_text(f"{before // 60:.0f} min")
    moved = operator.ask("GET", "clock")["aheadSeconds"] - before
    assert moved == pytest.approx(300, abs=60)
    before += moved
    await portal.button("+1 h").click()
    await expect(portal.test("clock")).to_contain_text(f"{before // 3600 + 1:.0f} h")
    await expect(portal.test("clock")).to_contain_text("ahead")
    assert operator.ask("GET", "clock")["aheadSeconds"] - before == pytest.approx(3600, abs=60)
    assert json.loads(json.dumps(list(client.read_all_items()))) == []

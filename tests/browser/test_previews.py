"""Changes shown before they are made: another throughput, and another key for the same items."""

from __future__ import annotations

import re

from browser.conftest import OpenPortal
from browser.portal import Operator
from playwright.async_api import expect


async def test_another_throughput_says_what_it_would_refuse(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    path = operator.create(name, "orders", "/pk", 20_000)
    client = operator.client(name, "orders")
    operator.freeze()
    for number in range(100):
        client.upsert_item({"id": f"i{number}", "pk": "hot", "text": "x" * 30_000})
    operator.ask("POST", "clock", {"frozen": False, "advanceSeconds": 10})
    portal = await open_portal(operator, f"c/{name}/orders/throughput")
    preview = portal.test("preview")
    await expect(preview).to_have_attribute("data-ru", "20000")
    await expect(preview).to_contain_text("4, each with 5 000 RU/s")
    await expect(preview).to_contain_text("At least 0 of")
    await expect(preview).to_contain_text("A lower bound: load is known by 10 s")
    await expect(preview).to_contain_text("1 168 USD a month, without storage")
    slider = portal.page.get_by_role("slider", name="RU/s")
    await slider.press("Home")
    least = str(operator.ask("GET", path)["throughput"]["minimumRu"])
    await expect(slider).to_have_value(least)
    await expect(preview).to_have_attribute("data-ru", least)
    found = operator.ask("GET", f"{path}/throughput/preview?throughput={least}")
    assert 0 < found["refused"] < found["requests"], found
    await expect(preview).to_contain_text(re.compile(rf"At least {found['refused']} of {found['requests']} requests"))
    await portal.page.get_by_label("RU/s").first.fill("80000")
    await expect(preview).to_contain_text("8 instead of 4, each with 10 000 RU/s")
    assert operator.ask("GET", path)["throughput"]["ru"] == 20_000, "nothing is applied by looking"
    await portal.page.get_by_label("RU/s").first.fill("24000")
    await portal.button("Apply").click()
    await expect(portal.test("offer")).to_contain_text("24 000 RU/s")


async def test_autoscale_and_buckets(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.send("POST", "databases", {"name": name})
    operator.ask("POST", f"databases/{name}/containers", {"name": "auto", "partitionKey": "/pk", "autoscale": 4_000})
    portal = await open_portal(operator, f"c/{name}/auto/throughput")
    await expect(portal.test("preview")).to_contain_text("Nothing was asked.")
    await expect(portal.test("preview")).to_contain_text("35.04 USD to 350.40 USD a month")
    await portal.page.get_by_role("slider", name="Autoscale maximum").press("End")
    await expect(portal.test("preview")).to_contain_text("2 instead of 1, each with 10 000 RU/s")
    await portal.test("buckets").locator("summary").click()
    await portal.test("buckets").get_by_label("2", exact=True).fill("40")
    await portal.button("Set buckets").click()
    await expect(portal.test("buckets").locator("summary")).to_have_text("Throughput buckets: 1")
    assert operator.ask("GET", f"databases/{name}/containers/auto")["buckets"] == {"2": 40}


async def test_values_between_unknown_ones_are_drawn_as_points(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator)
    find = """async values => { const base = document.querySelector('script[type=module]').src.replace(/[^/]*$/, '');
        return (await import(base + 'widgets/chart.js')).lone(values); }"""
    assert await portal.page.evaluate(find, [1, None, 2, 3, None, 0, None, None, 4]) == [0, 5, 8]
    assert await portal.page.evaluate(find, [None, 1, 2]) is None


async def test_another_key_for_the_same_items(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "good", "/customerId", 20_000)
    countries = ("fr", "de", "de", "de", "de")
    orders = ({"id": f"o{each}", "customerId": f"c{each}", "country": countries[each % 5]} for each in range(100))
    operator.fill(name, "good", orders)
    portal = await open_portal(operator, f"compare?a={name}/good")
    section = portal.page.get_by_role("region", name="Another key for the same items")
    await section.get_by_label("by", exact=True).fill("/country")
    await section.get_by_role("button", name="Show").click()
    shown = portal.test("other-key")
    await expect(shown).to_contain_text("Sample of 100 of 100 items")
    await expect(shown).to_contain_text('["de"]: 80 %')
    answer = operator.ask("GET", f"{path}/sample/keys?paths=/country")
    segments = await shown.locator("canvas").get_attribute("data-segments")
    assert segments == " ".join(f"{each['id']}:{each['low']}-{each['high']}" for each in answer["partitions"])
    assert "key=%2Fcountry" in portal.page.url
    await section.get_by_label("by", exact=True).fill("country")
    await section.get_by_role("button", name="Show").click()
    await expect(section.get_by_role("alert")).to_contain_text("country")


def test_unknown_parameters_are_refused(operator: Operator, name: str) -> None:
    path = operator.create(name, "orders")
    for query in ("throughput/preview?ru=400", "throughput/preview", "throughput/preview?throughput=401"):
        assert operator.send("GET", f"{path}/{query}")[0] == 400, query
    for query in ("sample/keys", "sample/keys?paths=/a&top=1", "sample/keys?paths=/a&partitions=0"):
        assert operator.send("GET", f"{path}/{query}")[0] == 400, query

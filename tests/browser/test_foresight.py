"""Foresight in the portal: what a workload needs, what happens to it, and which key suits the data."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from browser.conftest import OpenPortal, StartServer
from browser.portal import Operator, Portal
from playwright.async_api import expect

# A month in few steps, with one full key: the server answers in some tenths of a second.
SMALL: dict[str, Any] = {
    "container": {"partition_key": ["/customerId"], "throughput": 20_000},
    "data": {"size": "10GB", "item_bytes": 1024, "keys": {"explicit": {"de": 0.8, "at": 0.1, "fr": 0.1}}},
    "operations": [{"kind": "create", "rate": 100}, {"kind": "read", "rate": 500}],
}


def address(workload: dict[str, Any], months: int = 4, query: str = "?step=future") -> str:
    return f"foresight{query}#{quote(json.dumps({'workload': workload, 'months': months}))}"


async def test_sliders_and_fields_change_the_estimate(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, "foresight?step=future", is_new=True)
    estimate = portal.test("estimate")
    await expect(estimate.locator("tr[data-kind=manual]")).to_contain_text("USD")
    await expect(estimate).to_contain_text("Prices as of")
    await expect(portal.test("provisioned")).to_contain_text("20 000 RU/s on")
    slider = portal.page.get_by_role("slider", name="RU/s")
    await slider.press("Home")
    await expect(portal.test("provisioned")).to_contain_text("400 RU/s on")
    await expect(estimate).to_contain_text("of the request units of the hottest partition are refused (429)")
    await portal.page.get_by_role("slider", name="Horizon in months").press("Home")
    await expect(portal.test("largest-key")).to_contain_text("k1 with 8 %")
    needed = await estimate.locator("tr[data-kind=manual] td").first.inner_text()
    await portal.page.get_by_label("Creates").fill("1000")
    await expect(estimate.locator("tr[data-kind=manual] td").first).not_to_have_text(needed)
    await portal.page.get_by_label("Skew (Zipf exponent)").fill("0")
    await expect(portal.test("largest-key")).to_contain_text("< 1 %")
    assert '"uniform":100000' in await portal.page.evaluate("decodeURIComponent(location.hash)")
    await portal.page.reload()
    await expect(portal.page.get_by_label("Creates")).to_have_value("1000")
    await expect(portal.test("largest-key")).to_contain_text("< 1 %")


async def test_refusals_of_a_workload_are_shown(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, "foresight?step=future")
    await expect(portal.test("estimate")).to_be_visible()
    await portal.page.get_by_label("Stored at the start").fill("much")
    await portal.page.get_by_label("Stored at the start").blur()
    await expect(portal.page.get_by_role("alert")).to_contain_text("data.size")
    await portal.page.get_by_text("As JSON").click()
    text = portal.page.get_by_label("Workload as JSON")
    await text.fill("{")
    await expect(portal.page.get_by_text("This is not used yet")).to_be_visible()
    await text.fill(json.dumps({**SMALL, "speed": 1}))
    await expect(portal.page.get_by_role("alert")).to_contain_text("speed")
    await text.fill(json.dumps(SMALL))
    await expect(portal.page.get_by_role("alert")).to_have_count(0)
    await expect(portal.test("largest-key")).to_contain_text("de with 80 %")
    await expect(portal.page.get_by_text("The shares of its values are given in the JSON.")).to_be_visible()


async def test_a_simulation_runs_to_its_end(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, address(SMALL), is_new=True)
    await expect(portal.page.get_by_text("Nothing was simulated yet")).to_be_visible()
    await portal.button("Simulate 4 months").click()
    found = portal.test("simulation")
    await expect(portal.test("sentences")).to_contain_text("the key de is full")
    await expect(portal.test("totals")).to_contain_text("Full keys")
    chart = found.locator("section", has=portal.page.get_by_role("heading", name="Refused for good (403), of writes"))
    await expect(chart.get_by_role("img")).to_have_attribute(
        "aria-label", "Refused for good (403), of writes: This workload at most 100 %."
    )
    await chart.get_by_label("As a table").check()
    grid = chart.get_by_role("grid")
    await expect(grid.get_by_role("columnheader").first).to_have_text("Day")
    await expect(grid).to_contain_text("0.0")
    await portal.page.get_by_text("and the largest keys").click()
    await expect(portal.page.get_by_text("The key de is full (20 GB)").first).to_be_visible()
    assert "run=" in portal.page.url
    await portal.page.reload()
    await expect(portal.test("sentences")).to_contain_text("the key de is full")


async def test_two_runs_beside_each_other(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, address(SMALL))
    await portal.page.get_by_label("Compare").select_option("throughput")
    await portal.page.get_by_label("of", exact=True).fill("20000, 80000")
    await portal.button("Simulate 4 months").click()
    await expect(portal.test("simulation")).to_have_attribute("data-runs", "2")
    await expect(portal.test("totals").locator("thead")).to_contain_text("throughput 80000")
    await expect(portal.test("totals").locator("[data-differs=partitions]")).to_contain_text("≠")
    await expect(portal.page.get_by_role("img", name="Money so far, in USD: throughput 20000 at most")).to_be_visible()
    assert not await portal.axe("main")
    await portal.page.get_by_label("of", exact=True).fill("20000, few")
    await portal.button("Simulate 4 months").click()
    await expect(portal.page.get_by_role("alert")).to_contain_text("container.throughput")


async def test_a_simulation_is_cancelled(operator: Operator, open_portal: OpenPortal) -> None:
    """Minutes of three months, eight times: it takes long."""
    keys = {"size": "2000GB", "item_bytes": 1024, "keys": {"zipf": 1, "count": 10**6}}
    workload = {**SMALL, "data": keys, "shape": {"daily": [hour % 5 for hour in range(24)]}}
    portal = await open_portal(operator, address(workload, 3, "?step=future&vary=rates&values=1,2,3,4,5,6,7,8"))
    button = portal.button("Simulate 3 months")
    await button.click()
    await expect(portal.test("job")).to_have_attribute("data-state", "running")
    await expect(portal.test("job")).to_contain_text("The simulation runs")
    await expect(button).to_be_disabled()
    number = await running(portal)
    await portal.button("Cancel").click()
    await expect(portal.test("job")).to_have_count(0)
    await expect(button).to_be_enabled()
    assert operator.send("GET", f"jobs/{number}")[0] == 404


async def running(portal: Portal) -> str:
    """The number of the job that the page waits for."""
    await portal.page.wait_for_function("new URLSearchParams(location.search).has('run')")
    found: str = await portal.page.evaluate("new URLSearchParams(location.search).get('run')")
    return found


ROWS = 1_200


def order(number: int) -> dict[str, Any]:
    country = "de" if number % 10 < 8 else "at"
    return {"id": f"o{number}", "customerId": f"c{number * 7 % 400}", "country": country, "note": "x" * 50}


RATES: dict[str, Any] = {
    "container": {"partition_key": ["/customerId"]},
    "data": {"item_bytes": 1024, "keys": {"uniform": 1000}},
    "operations": [{"kind": "create", "rate": 100}, {"kind": "query", "rate": 100, "filter": ["/customerId"]}],
}


async def test_keys_of_a_container_are_judged(
    operator: Operator, name: str, open_portal: OpenPortal, tmp_path: Path
) -> None:
    path = operator.create(name, "orders", "/country", 20_000)
    rows = tmp_path / "orders.jsonl"
    rows.write_text("\n".join(json.dumps(order(number)) for number in range(ROWS)))
    operator.command("import", str(rows), f"{name}/orders")
    portal = await open_portal(operator, address(RATES, query="?step=source"))
    await portal.page.locator("select[name=of]").select_option(f"{name}/orders")
    await expect(portal.page.get_by_text("1 200 items")).to_be_visible()
    await portal.page.get_by_label("All data").fill("500GB")
    await portal.page.get_by_label("Never has").fill("/note")
    await portal.page.get_by_label("Judge these, too").fill("/country")
    await portal.button("Requests").click()
    await portal.button("A capture").click()
    await portal.button("Start a capture").click()
    await portal.button("Stop").click()
    await expect(portal.test("captures")).to_contain_text("stopped")
    assert not await portal.axe("main")
    assert operator.ask("GET", f"{path}/captures")["captures"][0]["state"] == "stopped"
    await portal.button("Candidates").click()
    await portal.button("Judge the keys").click()
    await expect(portal.page.get_by_role("alert")).to_contain_text("The capture holds no request for items.")
    await portal.button("Requests").click()
    await portal.button("Planned rates").click()
    await portal.button("Candidates").click()
    await portal.button("Judge the keys").click()
    await expect(portal.test("advice")).to_have_attribute("data-best", "/customerId")
    bad = portal.page.locator("details[data-key='/country']")
    await bad.locator("summary").first.click()
    await expect(bad).to_contain_text("one key reaches 20 GB for de")
    strip = bad.locator("[data-test=strip]")
    await expect(strip).to_have_attribute("aria-label", re.compile("The fullest has 80 % of the bytes"))
    assert not await portal.axe("main")
    await bad.get_by_role("link", name="Items of de").click()
    await portal.button("Run").click()
    await expect(portal.test("rows")).to_have_text("100 rows")
    await portal.page.go_back()
    good = portal.page.locator("details[data-key='/customerId']")
    await good.locator("summary").first.click()
    await good.get_by_role("button", name="Try it").click()
    commands = portal.test("command")
    migrate = f"armillary migrate {name}/orders {name}/orders-by-customerId --partition-key /customerId --no-switch"
    await expect(commands.first).to_have_text(migrate)
    await expect(commands.nth(1)).to_have_text("armillary scale-model --workload workload.toml")
    async with portal.page.expect_download() as download:
        await portal.button("Save workload.toml").click()
    text = (await (await download.value).path()).read_text()
    assert tomllib.loads(text) == RATES
    assert not await portal.axe("main")


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".csv":
        with file.open("w", newline="") as opened:
            lines = csv.writer(opened)
            lines.writerow([*(name for name in rows[0] if name != "a"), "/a/b"])
            lines.writerows([*(value for name, value in each.items() if name != "a"), each["a"]["b"]] for each in rows)
    else:
        is_array = file.suffix == ".json"
        file.write_text(json.dumps(rows, indent=1) if is_array else "\n".join(map(json.dumps, rows)))
    return file


async def test_rows_of_a_file_are_sent_and_judged(operator: Operator, open_portal: OpenPortal, tmp_path: Path) -> None:
    rows = [{**order(number), "a": {"b": number}} for number in range(ROWS)]
    rows[0]["note"] = 'a "quoted", \n note [x]'
    options = "?step=source&from=file&requests=rates&size=500GB&never=/note&candidates=/a/b"
    portal = await open_portal(operator, address(RATES, query=options))
    for number, name in enumerate(("orders.jsonl", "orders.json", "orders.csv")):
        await portal.button("Source").click()
        await portal.page.get_by_label("File").set_input_files(write(tmp_path / name, rows[number:]))
        await expect(portal.test("file")).to_contain_text(name)
        await portal.button("Candidates").click()
        await portal.button("Judge the keys").click()
        await expect(portal.test("advice")).to_contain_text(f"1\u2009{ROWS - number - 1000} rows of the file")
        await expect(portal.test("advice")).to_have_attribute("data-best", "/customerId")
        await expect(portal.page.locator("details[data-key='/a/b']")).to_be_visible()
        await expect(portal.page.get_by_text("could not be read")).to_have_count(0)


async def test_too_little_to_judge_is_said(operator: Operator, open_portal: OpenPortal, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text(json.dumps(order(1)) + "\n[1]\n")
    portal = await open_portal(operator, "foresight?step=candidates", is_new=True)  # no file is chosen yet
    await expect(portal.page.get_by_text("Read 1,000 rows at least.")).to_be_visible()
    await expect(portal.button("Judge the keys")).to_be_disabled()
    await portal.button("Source").click()
    await portal.button("A file").click()
    await portal.page.get_by_label("File").set_input_files(file)
    await portal.button("Candidates").click()
    await portal.button("Judge the keys").click()
    await expect(portal.test("advice")).to_contain_text("1 rows are too few: read 999 more")
    await expect(portal.test("advice")).to_contain_text("1 rows could not be read")
    await portal.button("Source").click()
    await portal.page.get_by_label("Must have").fill("customerId")
    await portal.page.get_by_label("File").set_input_files(file)
    await portal.button("Candidates").click()
    await portal.button("Judge the keys").click()
    await expect(portal.page.get_by_role("alert")).to_contain_text("customerId")


# Processes of jobs find no numpy; the server itself needs none.
WITHOUT_NUMPY = """import os, sys
os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(sys.argv[sys.argv.index("--data") + 1])) + "/path"
from armillary.tools.cli import main
sys.exit(main(sys.argv[1:]))
"""


async def test_what_is_not_installed_is_named(
    start_server: StartServer, open_portal: OpenPortal, tmp_path: Path
) -> None:
    hiding = tmp_path / "path" / "numpy"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").write_text("raise ImportError('hidden by a test')")
    portal = await open_portal(start_server(program=("-c", WITHOUT_NUMPY)), address(SMALL))
    await expect(portal.test("estimate")).to_be_visible()
    await portal.button("Simulate 4 months").click()
    await expect(portal.page.get_by_role("alert")).to_contain_text("Simulations need numpy")
    await expect(portal.page.get_by_text("pip install 'armillary[foresight]'")).to_be_visible()

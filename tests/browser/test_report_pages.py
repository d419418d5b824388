"""Reports of what lies ahead as single files, as they are attached to a design review: in a browser without a server.
They ask for nothing, their plots are drawn, they are accessible in both schemes and fit a small screen and paper.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.portal import AXE, axe_faults
from playwright.async_api import Browser, Page, expect
from support.process import call_armillary

WORKLOAD = """
container = { partition_key = ["/customerId"], throughput = 20000 }
data = { size = "60GB", item_bytes = 1024, keys = { zipf = 1.0, count = 5_000 } }
operations = [
    { kind = "create", rate = 300 },
    { kind = "query", rate = 60, filter = ["/customerId"], rows = 10 },
    { kind = "query", rate = 30, filter = ["/country"], rows = 20 },
]
"""
HOSTILE = "<img src=x onerror=alert(1)>"
SMALL_PX = 400
# Of each plot: its name, its size on the screen, and how many of its shapes have a line to draw.
PLOTS = """() => [...document.querySelectorAll('svg')].map(each => {
    const {width, height} = each.getBoundingClientRect();
    const shapes = [...each.querySelectorAll('rect, path, line, circle')];
    return [each.getAttribute('aria-label'), width, height, shapes.filter(one => one.getTotalLength()).length]; })"""
MONTH = ("--for", "1mo", "--step", "6h")
REPORTS = {
    "advise": ("Partition key for ", 2, ("--size", "300GB")),
    "estimate": ("Estimate for /customerId", 3, ()),
    "simulate": ("Simulation of /customerId", 5, MONTH),
    "simulate --vary": ("Simulations of /customerId", 0, (*MONTH, "--vary", "throughput=20000,40000")),
}


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "workload.toml"
    path.write_text(WORKLOAD)
    return str(path)


def rows(directory: Path) -> str:
    def items() -> Iterator[dict[str, object]]:
        for number in range(1_500):
            country = HOSTILE if number % 4 else "at"
            yield {"id": f"o{number}", "customerId": f"c{number * 7919 % 400}", "country": country}

    path = directory / "orders.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in items()))
    return str(path)


@pytest.mark.parametrize("report", REPORTS)
async def test_a_report_is_a_page_of_its_own(browser: Browser, tmp_path: Path, workload: str, report: str) -> None:
    title, plots_least, options = REPORTS[report]
    command = report.partition(" ")[0]
    source = (rows(tmp_path),) if command == "advise" else ()
    file = tmp_path / "report.html"
    told = call_armillary(command, *source, "--workload", workload, *options, "--html", str(file))
    assert told.returncode == 0, told.stderr
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    try:
        seen: list[str] = []
        page.on("console", lambda message: seen.append(message.text))
        page.on("request", lambda request: seen.append(request.url))
        await page.goto(file.as_uri())
        await expect(page.locator("h1")).to_contain_text(title)
        await check_plots(page, plots_least)
        for name in ("What the figures rest on", "Assumptions"):
            await expect(page.get_by_role("heading", name=name)).to_be_visible()
        if AXE.exists():
            assert await axe_faults(page) == []
        await page.set_viewport_size({"width": SMALL_PX, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= SMALL_PX
        await page.emulate_media(media="print")
        await check_plots(page, plots_least)
        assert await page.locator("script, img, iframe, link").count() == 0
        assert seen == [file.as_uri()], "it asks for nothing, and nothing is refused by its policy"
    finally:
        await page.close()


async def check_plots(page: Page, least: int) -> None:
    plots = await page.evaluate(PLOTS)
    assert len(plots) >= least
    for label, width, height, drawn in plots:
        assert label and width > 0 and height > 0 and drawn, (label, width, height, drawn)

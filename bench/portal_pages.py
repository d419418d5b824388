"""The portal's pages in a browser: how soon the first page is painted and usable, and how long 1,000 partitions, 10,000
rows of a result and a heat map of 256 × 360 cells take to draw.

Times are taken in the page, by its own clock, several times; the median counts.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from playwright.sync_api import Browser, Page

from bench import servers
from bench.portal_browser import BASE, CONTROL_KEY, address, filled_container, opened_page
from bench.protocol import DATABASE, NUMBER_FIRST
from bench.sections import Aim, Say, row
from bench.servers import Server

PARTITIONS: Final = 1_000
ROWS: Final = 10_000
HEAT_ROWS, HEAT_COLUMNS = 256, 360
_PARTITION_RU: Final = 1_000
_HEAT_RU: Final = 8 * _PARTITION_RU * 6 // 10  # 8 partitions of 32 rows
_SCROLLS: Final = 50

# When the tree names a container and the overview its doors, the page is usable.
_USABLE: Final = """
const look = new MutationObserver(() => {
  if (document.querySelector("nav.tree a") && document.querySelector("main [data-door]")) {
    window.usableAt ??= performance.now();
  }
});
addEventListener("DOMContentLoaded", () => look.observe(document.body, {childList: true, subtree: true}));
"""
_PAINTED: Final = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null"""
# From the click to the frame that shows what the selector finds.
_CLICKED: Final = """async ([clicked, wanted]) => {
  const begun = performance.now();
  document.querySelector(clicked).click();
  while (!document.querySelector(wanted)) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - begun;
}"""
# *All* stops after 1,000 request units: it is pressed until all rows are there.
_ALL: Final = """async (wanted) => {
  const begun = performance.now();
  while (!document.querySelector(wanted)) {
    [...document.querySelectorAll("main button")].find((each) => each.textContent === "All" && !each.disabled)?.click();
    await new Promise(requestAnimationFrame);
  }
  await new Promise(requestAnimationFrame);
  return performance.now() - begun;
}"""
# Each step to the frame after it, and at last the row of the given number.
_SCROLLED: Final = """async ([steps, last]) => {
  const box = document.querySelector("section[aria-label=Results] .grid-box"), taken = [];
  for (let step = 1; step <= steps; step += 1) {
    const begun = performance.now();
    box.scrollTop = (box.scrollHeight - box.clientHeight) * step / steps;
    await new Promise(requestAnimationFrame);
    await new Promise((painted) => setTimeout(painted));
    taken.push(performance.now() - begun);
  }
  while (!document.querySelector(`section[aria-label=Results] tr[aria-rowindex="${last + 1}"]`)) {
    await new Promise(requestAnimationFrame);
  }
  return taken;
}"""
# The map is drawn from `clearRect` to the last time of its axis, in one go.
_DRAWINGS: Final = """
window.drawings = [];
const {clearRect, fillText} = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...box) {
  if (this.canvas.className === "heat") window.drawings.push({begun: performance.now(), ended: 0});
  return clearRect.apply(this, box);
};
CanvasRenderingContext2D.prototype.fillText = function (...given) {
  const done = fillText.apply(this, given);
  if (this.canvas.className === "heat") window.drawings.at(-1).ended = performance.now();
  return done;
};
"""


@dataclass
class PageFigures:
    painted_ms: list[float] = field(default_factory=list)
    usable_ms: list[float] = field(default_factory=list)
    partitions_ms: list[float] = field(default_factory=list)
    rows_ms: list[float] = field(default_factory=list)
    scrolled_ms: list[float] = field(default_factory=list)
    drawn_ms: list[float] = field(default_factory=list)
    heat_bytes: int = 0

    def lines(self) -> Iterable[str]:
        yield ""
        yield "portal: pages in Chromium, ms"
        yield row("", ["median", "longest"])
        for name, found in (
            ("first contentful paint, empty cache", self.painted_ms),
            ("first page usable", self.usable_ms),
            (f"strip and table of {PARTITIONS:,} partitions, from the click", self.partitions_ms),
            (f"all {ROWS:,} rows of a result asked for and shown", self.rows_ms),
            (f"one of {_SCROLLS} steps of scrolling through them", self.scrolled_ms),
            (f"heat map of {HEAT_ROWS} × {HEAT_COLUMNS} cells drawn", self.drawn_ms),
        ):
            yield row(name, [f"{median(found):.1f}", f"{max(found):.1f}"])
        yield row("answer with the heat map, KB", [f"{self.heat_bytes / 1024:.0f}"])

    def aims(self) -> Iterable[Aim]:
        yield Aim("first contentful paint, ms", median(self.painted_ms), 500, True)
        yield Aim("first page usable, ms", median(self.usable_ms), 1_000, True)
        yield Aim("heat map drawn, ms", median(self.drawn_ms), 16, True)
        yield Aim("answer with a heat map, KB", self.heat_bytes / 1024, 600, True)


def measure_pages(browser: Browser, directory: Path, *, is_quick: bool, say: Say) -> PageFigures:
    figures, times = PageFigures(), 3 if is_quick else 9
    environment = {"ARMILLARY_PARTITION_THROUGHPUT": str(_PARTITION_RU), "ARMILLARY_CLOCK": "movable"}
    server = servers.start_armillary(directory, "relaxed", CONTROL_KEY, environment)
    try:
        items = filled_container(server, range(NUMBER_FIRST, NUMBER_FIRST + ROWS))
        _create(server, "partitions", PARTITIONS * _PARTITION_RU * 6 // 10)
        _create(server, "heat", _HEAT_RU)
        for turn in range(times):
            say(f"portal: first page, turn {turn + 1} of {times}")
            _first_page(browser, server, figures)
        for turn in range(times):
            say(f"portal: {PARTITIONS:,} partitions, turn {turn + 1} of {times}")
            _partitions(browser, server, figures)
        say(f"portal: {ROWS:,} rows")
        with opened_page(browser, server) as page:
            _rows(page, server, items, figures)
        say("portal: heat map")
        with opened_page(browser, server, script=_DRAWINGS) as page:
            _heat(page, server, figures, 4 * times)
    finally:
        server.stop()
    return figures


def _first_page(browser: Browser, server: Server, figures: PageFigures) -> None:
    with opened_page(browser, server, script=_USABLE) as page:
        page.goto(address(server, BASE))
        page.wait_for_function("() => window.usableAt !== undefined")
        figures.usable_ms.append(page.evaluate("() => window.usableAt"))
        figures.painted_ms.append(page.wait_for_function(_PAINTED).json_value())


def _partitions(browser: Browser, server: Server, figures: PageFigures) -> None:
    with opened_page(browser, server) as page:
        page.goto(address(server, BASE))
        link = f'nav.tree a[href*="/{DATABASE}/partitions"]'
        page.wait_for_selector(link)
        shown = f'main:has(canvas[data-count="{PARTITIONS}"]) table[aria-rowcount="{PARTITIONS + 1}"]'
        figures.partitions_ms.append(page.evaluate(_CLICKED, [link, shown]))


def _rows(page: Page, server: Server, container: str, figures: PageFigures) -> None:
    page.goto(address(server, f"{BASE}c/{DATABASE}/{container}/query"))
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="All", exact=True).wait_for()
    shown = f'section[aria-label=Results] table[aria-rowcount="{ROWS + 1}"]'
    figures.rows_ms.append(page.evaluate(_ALL, shown))
    figures.scrolled_ms += page.evaluate(_SCROLLED, [_SCROLLS, ROWS])


def _heat(page: Page, server: Server, figures: PageFigures, times: int) -> None:
    """The last hour, on a clock that is moved: a map has as many cells whatever was asked."""
    _control(server, "POST", "clock", {"advanceSeconds": 3_600})
    to_s = _control(server, "GET", "clock")["nowSeconds"] // 10 * 10
    with page.expect_response(lambda answer: "/containers/heat/heat?" in answer.url) as answered:
        page.goto(address(server, f"{BASE}c/{DATABASE}/heat/heat?from={to_s - 3_600:.0f}&to={to_s:.0f}"))
    figures.heat_bytes = len(answered.value.body())
    page.wait_for_selector(f'canvas.heat[data-rows="{HEAT_ROWS}"][data-columns="{HEAT_COLUMNS}"]')
    for turn in range(times):
        # Another scale means other colours: all cells are computed again.
        page.evaluate("() => window.drawings.length = 0")
        page.get_by_role("button", name=("Logarithmic", "Linear")[turn % 2], exact=True).click()
        page.wait_for_function("() => window.drawings.some((each) => each.ended > 0)")
        figures.drawn_ms += page.evaluate(
            "() => window.drawings.filter((each) => each.ended > 0).slice(0, 1).map((each) => each.ended - each.begun)"
        )


def _create(server: Server, name: str, throughput_ru: int) -> None:
    body = {"name": name, "partitionKey": "/key", "throughput": throughput_ru}
    _control(server, "POST", f"databases/{DATABASE}/containers", body)


def _control(server: Server, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        address(server, f"/_armillary/{path}"),
        json.dumps(body).encode() if body is not None else None,
        {"authorization": f"Bearer {CONTROL_KEY}", "content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)

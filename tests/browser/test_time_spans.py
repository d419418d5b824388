"""Each span of time is shown in the columns of the history that are kept for it, whatever the time is."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from browser.conftest import OpenPortal
from browser.portal import Operator
from playwright.async_api import Response, expect

HOUR_S, DAY_S = 3_600, 86_400
# Seconds of a column, by the span.
SPANS = {600: 10, HOUR_S: 10, 6 * HOUR_S: 60, 4 * DAY_S: 1_200, 28 * DAY_S: 7_200}


async def test_spans_have_the_finest_columns(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    path = operator.create(name, "orders")
    portal = await open_portal(operator)
    for view, asked in (("heat", "heat"), ("throughput", "history")):
        for span_s, column_s in SPANS.items():
            # By no multiple of ten: columns of a minute and more begin at whole ones.
            operator.ask("POST", "clock", {"advanceSeconds": 7})

            def is_wanted(response: Response, span_s: int = span_s, asked: str = asked) -> bool:
                address = urlsplit(response.url)
                given = parse_qs(address.query)
                is_of_view = address.path.endswith(f"{path}/{asked}")
                return is_of_view and int(given["to"][0]) - int(given["from"][0]) == span_s

            async with portal.page.expect_response(is_wanted) as answered:
                await portal.follow(f"c/{name}/orders/{view}?last={span_s}")
            times = (await (await answered.value).json())["times"]
            assert times[1] - times[0] == column_s, (view, span_s)
            if view == "heat":
                await expect(portal.test("heat")).to_have_attribute("data-columns", str(span_s // column_s))
            else:
                assert len(times) == span_s // column_s

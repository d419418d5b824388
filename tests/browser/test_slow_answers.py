"""Views of a server that answers late: they ask once, not at every turn of their timers, show what comes, and are at
rest when nothing has changed.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from browser.conftest import OpenPortal
from browser.portal import Operator, Portal
from playwright.async_api import Error, Request, Route, expect

HELD = re.compile(r"/_armillary/(?!portal/(?!sql/)|session|watch)")
WAITING = re.compile(r"/watch\?|/changes\?")
LONG_MS = 60_000  # timers have at most ten seconds
ASKED_AT_MOST = 2  # a path, by the view and by the frame around it
WATCHED = 5  # answers that tell of nothing
ROUNDS_AT_MOST = 4  # a timer of the view may fall into one
MUTATIONS_AT_MOST = 20  # of the page for each of them: the time that it shows
COUNT_MUTATIONS = """() => { window.mutations = 0; window.observer?.disconnect();
    window.observer = new MutationObserver(found => { window.mutations += found.length; });
    const kinds = {childList: true, attributes: true, characterData: true};
    window.observer.observe(document.body, {subtree: true, ...kinds}); }"""


class Held:
    """Keeps answers back until they are released."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.first = asyncio.Event()
        self.released = asyncio.Event()

    async def take(self, route: Route) -> None:
        self.asked[urlsplit(route.request.url).path] += 1
        self.first.set()
        await self.released.wait()
        await route.fallback()


class Unchanged:
    """Answers requests to `watch`: the first of a view as the server does, some that tell of nothing, and then none
    until there is another view."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._left = 0
        self._begun = asyncio.Event()
        self.is_at_end = asyncio.Event()

    def begin(self) -> None:
        self._left = WATCHED
        self.is_at_end.clear()
        self._begun.set()

    async def take(self, route: Route) -> None:
        if "since=0&" in route.request.url:
            answer = await route.fetch()
            self._last = await answer.json()
            return await route.fulfill(response=answer)
        while self._left == 0:
            self._begun.clear()
            self.is_at_end.set()
            await self._begun.wait()
        self._left -= 1
        known = self._last.get("containers", {})
        nothing = {name: {**each, "partitions": [], "gone": []} for name, each in known.items() if each}
        with suppress(Error):  # the view was left meanwhile
            await route.fulfill(json={**self._last, "containers": nothing, "events": []})


class Traffic:
    """Of a page, but for the requests that wait for changes."""

    def __init__(self, portal: Portal) -> None:
        self._page = portal.page
        self._open: set[Request] = set()
        self._page.on("request", lambda each: self._open.add(each) if not WAITING.search(each.url) else None)
        for event in ("requestfinished", "requestfailed"):
            self._page.on(event, lambda each: self._open.discard(each))

    async def ended(self) -> None:
        """Until all is answered and drawn: an answer may be the reason of another request."""
        is_quiet = False
        while not is_quiet:
            await self._page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            is_quiet = not self._open
            await self._page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            is_quiet = is_quiet and not self._open


async def views_of(portal: Portal, name: str) -> list[str]:
    found = await portal.views(name, "orders")
    return [each for each in found if each != "cluster"] + [f"compare?a={name}/orders&b={name}/orders"]


async def test_views_ask_once_for_what_takes_long(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk", 20_000)
    operator.client(name, "orders").create_item({"id": "1", "pk": "a"})
    portal = await open_portal(operator, is_logged_in=False)
    await portal.page.clock.install()
    await portal.log_in()
    for view in await views_of(portal, name):
        held = Held()
        await portal.page.route(HELD, held.take)
        await portal.follow(view)
        await portal.page.clock.run_for(LONG_MS)
        await held.first.wait()
        await portal.page.clock.run_for(LONG_MS)
        more = {path: count for path, count in held.asked.items() if count > ASKED_AT_MOST}
        assert not more, (view, more)
        held.released.set()
        await portal.settled()
        await expect(portal.page.locator("main .failure")).to_have_count(0)
        await portal.page.unroute_all()


async def test_views_are_at_rest_when_nothing_changes(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders", "/pk", 20_000)
    operator.client(name, "orders").create_item({"id": "1", "pk": "a"})
    portal = await open_portal(operator, is_logged_in=False)
    unchanged = Unchanged()
    await portal.page.route("**/_armillary/watch?*", unchanged.take)
    traffic = Traffic(portal)
    await portal.log_in()
    for view in await views_of(portal, name):
        await unchanged.is_at_end.wait()
        await portal.show(view)
        counts: list[int] = []
        while not counts or min(counts) > WATCHED * MUTATIONS_AT_MOST:
            await traffic.ended()
            await portal.page.evaluate(COUNT_MUTATIONS)
            unchanged.begin()
            await unchanged.is_at_end.wait()
            counts.append(await portal.page.evaluate("window.mutations"))
            assert len(counts) < ROUNDS_AT_MOST, (view, counts)

"""The portal in a real browser: Debian's Chromium, found by CHROMIUM or on the path, driven by playwright.

Every test fails on an error in the console, a violation of the content security policy, a request to another host or
an answer of 500 and more. Where there is no browser the tests are skipped, and fail if CI=true.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from browser.portal import Operator, Portal, Watcher
from playwright.async_api import Browser, async_playwright, expect
from support.process import ServerProcess

_numbers = count(1)
_TRACES = Path(__file__).parents[2] / ".cache" / "browser"
_PATIENCE_MS = 90_000  # with what tests wait for: machines are busy, and computations have less priority
OpenPortal = Callable[..., Awaitable[Portal]]
StartServer = Callable[..., Operator]


class Opened(NamedTuple):
    portal: Portal
    watcher: Watcher


def chromium() -> str | None:
    """The machine's Chromium. The one without windows first: the other draws its own frame around every page, unseen,
    which takes as long as the tests do."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # One event loop and one browser for all tests of this process.
        is_ours = item.path.parent == Path(__file__).parent
        if is_ours and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    program = chromium()
    if program is None:
        reason = "there is no Chromium: install it (Debian: chromium-headless-shell) or name it in CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=_PATIENCE_MS)
    async with async_playwright() as driver:
        opened = await driver.chromium.launch(executable_path=program, args=options)
        yield opened
        await opened.close()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """With a clock that can be moved, and budgets that are enforced where a container says so. One for all tests of
    this process: a server and its first page take longer than most tests."""
    started = ServerProcess.start(tmp_path_factory.mktemp("portal"), "--durability", "relaxed", "--clock", "movable")
    yield started
    started.stop()
    assert "ERROR" not in started.log, started.log


@pytest.fixture
def operator(shared_server: ServerProcess) -> Iterator[Operator]:
    """Of the shared server, without what the tests before have left there."""
    operator = Operator(shared_server)
    operator.tidy()
    said = len(shared_server.log)
    yield operator
    assert "ERROR" not in shared_server.log[said:], shared_server.log[said:]


@pytest.fixture
def name() -> str:
    """A database that no other test of this process uses."""
    return f"shop{next(_numbers)}"


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """start_server(*arguments): a server of the test's own, which outlives the pages that look at it. `program`: run in
    place of the server's own module."""
    started: list[ServerProcess] = []

    def start(*arguments: str, program: tuple[str, ...] | None = None) -> Operator:
        options = ("--durability", "relaxed", *arguments)
        started.append(ServerProcess.start(tmp_path / "data", *options, program=program))
        return Operator(started[-1])

    yield start
    for each in started:
        each.stop()


class Pages:
    """Pages of the portal in contexts of their own, and of the shared server one that is kept for the next test."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._kept: dict[int, Opened] = {}

    async def new(self, operator: Operator, allowed: tuple[str, ...], options: dict[str, Any]) -> Opened:
        context = await self._browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        context.set_default_timeout(_PATIENCE_MS)
        await context.tracing.start()  # of actions: pictures and copies of the page would cost as much as the test
        page = await context.new_page()
        return Opened(Portal(page, operator), Watcher(page, operator.server.port, allowed))

    async def kept(self, operator: Operator, path: str) -> Opened:
        """Logged in, and led to the path by a link: a page that is loaded takes ten times as long."""
        opened = self._kept.pop(operator.server.port, None)
        if opened is None:
            opened = await self.new(operator, (), {})
            await opened.portal.open(path)
        else:
            await opened.portal.page.context.tracing.start_chunk()
            await opened.portal.begin_again(path)
        return opened

    def keep(self, opened: Opened) -> None:
        self._kept[opened.portal.operator.server.port] = opened

    async def close(self) -> None:
        for opened in self._kept.values():
            await opened.portal.page.context.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pages(browser: Browser) -> AsyncIterator[Pages]:
    opened = Pages(browser)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_portal(
    pages: Pages, shared_server: ServerProcess, start_server: StartServer, request: pytest.FixtureRequest
) -> AsyncIterator[OpenPortal]:
    """await open_portal(operator, path): a page, logged in unless told otherwise. The first page of a test on the
    shared server is the one of the test before, but for `is_new` and where it has to differ from it."""
    opened: list[Opened] = []
    lent: list[Opened] = []

    async def open_one(
        operator: Operator,
        path: str = "",
        *,
        is_logged_in: bool = True,
        is_new: bool = False,
        read_only: bool = False,
        allowed: tuple[str, ...] = (),
        **options: object,
    ) -> Portal:
        is_plain = is_logged_in and not (is_new or read_only or allowed or options)
        if is_plain and not lent and operator.server is shared_server:
            lent.append(await pages.kept(operator, path))
            return lent[0].portal
        found = await pages.new(operator, allowed, options)
        opened.append(found)
        if is_logged_in:
            await found.portal.open(path, read_only=read_only)
        else:
            await found.portal.page.goto(found.portal.address(path))
        return found.portal

    yield open_one
    has_failed = getattr(request.node, "has_failed", False)
    problems = [problem for each in (*opened, *lent) for problem in each.watcher.problems]
    for number, (portal, _) in enumerate((*opened, *lent)):
        context = portal.page.context
        if has_failed:
            _TRACES.mkdir(parents=True, exist_ok=True)
            stem = f"{request.node.name}-{number}".replace("/", "-")
            if not portal.page.is_closed():
                await portal.page.screenshot(path=_TRACES / f"{stem}.png")
            await context.tracing.stop(path=_TRACES / f"{stem}.zip")
    is_kept = not has_failed and not problems
    for each in lent if is_kept else ():
        await each.portal.page.context.tracing.stop_chunk()
        await each.portal.page.unroute_all()
        pages.keep(each)
    for each in opened if is_kept else (*opened, *lent):
        await each.portal.page.context.close()
    assert not problems, "\n".join(problems)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.has_failed = True  # type: ignore[attr-defined]
    return report

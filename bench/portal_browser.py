"""A browser for the benchmark of the portal: the machine's Chromium, found by CHROMIUM or on the path and driven by
playwright, as in tests/browser; and pages of it that are logged in to a server.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, Error, Page, sync_playwright

from bench.servers import Server, Unavailable

CONTROL_KEY: Final = base64.b64encode(b"the control key of a benchmark").decode()
BASE: Final = "/_armillary/portal/"
_TIMEOUT_MS: Final = 60_000


@contextmanager
def opened_browser() -> Iterator[Browser]:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        raise Unavailable(
            "the portal's pages: no Chromium. Install it (Debian: chromium-headless-shell) or name it in CHROMIUM"
        )
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=program, args=options)
        except Error as error:
            raise Unavailable(f"the portal's pages: {program} does not start: {str(error).splitlines()[0]}") from error
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened_page(browser: Browser, server: Server, *, script: str = "") -> Iterator[Page]:
    """A page with an empty cache, logged in. `script` runs in each document before those of the portal."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        context.set_default_timeout(_TIMEOUT_MS)
        answer = context.request.post(address(server, "/_armillary/session"), data={"key": CONTROL_KEY})
        if not answer.ok:
            raise RuntimeError(f"the benchmark could not log in: {answer.status} {answer.text()}")
        if script:
            context.add_init_script(script)
        yield context.new_page()
    finally:
        context.close()


def address(server: Server, path: str) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def filled_container(server: Server, items: range) -> str:
    """A new container with these items. In a thread: playwright has an event loop in this one, and loading items runs
    another."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(server.new_container, items).result()

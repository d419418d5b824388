"""How tests speak to a server and to the portal's pages in a browser."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from azure.cosmos import ContainerProxy, CosmosClient
from playwright.async_api import ConsoleMessage, Locator, Page, Request, Response, expect
from support.server_operator import Operator as ServerOperator

BASE = "/_armillary/portal/"
# Chromium writes a line for every answer from 400 on. Refusals are part of many tests; failures of the server are
# found by their status.
_ANSWERED = "Failed to load resource: the server responded with a status of 4"


AXE = Path(__file__).parents[2] / "maintenance" / "vendor" / "node_modules" / "axe-core" / "axe.min.js"
_AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# What is not needed takes longer to send than to find.
_AXE_RUN = """async ([rules, part]) => { const options = {resultTypes: ['violations'], preload: false, iframes: false};
    const {violations} = await axe.run(part, {runOnly: rules, ...options});
    return violations.map(({id, help, nodes}) => ({id, help, places: nodes.slice(0, 3).map(each => each.html)})); }"""
# All rules in one scheme, those about colours in both.
_SCHEMES: dict[Literal["light", "dark"], list[str]] = {
    "light": _AXE_RULES,
    "dark": ["color-contrast", "link-in-text-block"],
}


class Operator(ServerOperator):
    """With containers for the pages to show."""

    def create(self, database: str, container: str, key: str | list[str] = "/pk", ru: int = 400, **more: Any) -> str:
        """A container with its database; its path in the control API."""
        self.send("POST", "databases", {"name": database})
        path = f"databases/{quote(database, safe='')}/containers"
        self.ask("POST", path, {"name": container, "partitionKey": key, "throughput": ru, **more})
        return f"{path}/{quote(container, safe='')}"

    def tidy(self) -> None:
        """An empty server whose tests are off."""
        for reshape in self.ask("GET", "reshapes")["reshapes"]:  # one that is stopped keeps its container
            path = f"databases/{quote(reshape['database'], safe='')}/containers/{quote(reshape['container'], safe='')}"
            self.send("DELETE", f"{path}/reshapes/{reshape['number']}")
        self.ask("PUT", "reshapes/pauses", {"points": []})
        self.ask("DELETE", "faults")
        self.ask("POST", "clock", {"frozen": False})
        for database in self.ask("GET", "databases")["databases"]:
            self.ask("DELETE", f"databases/{quote(database['name'], safe='')}")

    def fill(self, database: str, container: str, items: Iterable[dict[str, Any]]) -> None:
        """Many items at once: one by one, they take longer than the page that shows them."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(item) + "\n" for item in items)
            file.flush()
            self.command("import", file.name, f"{database}/{container}")

    def client(self, database: str, container: str) -> ContainerProxy:
        """The container in azure-cosmos."""
        client = CosmosClient(self.server.url, self.server.key)
        return client.get_database_client(database).get_container_client(container)


class Watcher:
    """Collects what no page may do."""

    def __init__(self, page: Page, port: int, allowed: tuple[str, ...] = ()) -> None:
        """`allowed`: parts of messages that the test brings about."""
        self.problems: list[str] = []
        self._port = port
        self._allowed = allowed
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._add(f"an exception in the page: {error}"))
        page.on("request", self._request)
        page.on("response", self._response)

    def _add(self, problem: str) -> None:
        if not any(each in problem for each in self._allowed):
            self.problems.append(problem)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_ANSWERED):
            self._add(f"the console says: {message.text}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and (parts.hostname, parts.port) != ("127.0.0.1", self._port):
            self._add(f"a request to another host: {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self._add(f"{response.request.method} {response.url}: {response.status}")


async def axe_faults(page: Page, part: str = "html", *, scheme_attribute: str | None = None) -> list[str]:
    """What axe-core finds in both schemes; `scheme_attribute`: where a script of the page says which one it has."""
    found = []
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    for scheme, rules in _SCHEMES.items():
        await page.emulate_media(color_scheme=scheme)
        if scheme_attribute is not None:
            await expect(page.locator("html")).to_have_attribute(scheme_attribute, scheme)
        for violation in await page.evaluate(_AXE_RUN, [rules, part]):
            places = [each[:120] for each in violation["places"]]
            found.append(f"{page.url}, {scheme}: {violation['id']}: {violation['help']}: {places}")
    return found


class Portal:
    """A page of the portal."""

    def __init__(self, page: Page, operator: Operator) -> None:
        self.page = page
        self.operator = operator

    def address(self, path: str = "") -> str:
        return f"{self.operator.server.url}{BASE}{path}"

    async def log_in(self, path: str = "", *, read_only: bool = False) -> None:
        await self.page.goto(self.address(path))
        await self.page.get_by_label("Control key").fill(self.operator.key)
        if read_only:
            await self.page.get_by_label("Read-only").check()
        await self.page.get_by_role("button", name="Log in").click()
        await expect(self.page.get_by_role("navigation", name="Databases and containers")).to_be_visible()

    async def open(self, path: str = "", *, read_only: bool = False) -> None:
        """Logged in without the form: the context keeps the cookie of the answer."""
        asked = {"key": self.operator.key, "readOnly": read_only}
        answer = await self.page.context.request.post(f"{self.operator.server.url}/_armillary/session", data=asked)
        assert answer.status == 201, await answer.text()
        await self.page.goto(self.address(path))
        await expect(self.page.get_by_role("navigation", name="Databases and containers")).to_be_visible()

    async def begin_again(self, path: str) -> None:
        """Another view for another test: without what the one before has left in the page, and with what there is on
        the server now."""
        await self.page.evaluate(
            """async () => { const base = document.querySelector('script[type=module]').src.replace(/[^/]*$/, '');
            const load = name => import(base + name);
            const preferences = await load('data/preferences.js');
            preferences.setQuiet(false);
            preferences.setScheme('auto');
            (await load('widgets/parts.js')).speak('', true);
            localStorage.clear();
            await (await load('data/resources.js')).readResources(); }"""
        )
        await self.follow("none")  # a view that is shown already would not begin anew
        await self.follow(path)
        await expect(self.page.get_by_role("navigation", name="Databases and containers")).to_be_visible()

    async def go(self, path: str) -> None:
        """Another view, by its address."""
        await self.page.goto(self.address(path))

    async def follow(self, path: str) -> None:
        """Another view, by a link: the page is not loaded again, which takes longer than the view."""
        await self.page.evaluate(
            """address => { const link = document.createElement('a'); link.href = address; document.body.append(link);
            link.click(); link.remove();
            return new Promise(done => requestAnimationFrame(() => setTimeout(done))); }""",
            BASE + path,
        )
        assert urlsplit(self.page.url).path == urlsplit(BASE + path).path

    async def show(self, path: str) -> None:
        """The same, until the view is loaded, with what it asks for first."""
        await self.follow(path)
        await self.settled()

    def test(self, name: str) -> Locator:
        return self.page.locator(f"[data-test='{name}']")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    async def copied(self, button: Locator) -> str:
        """What a button copies. Its own word for it is gone after two seconds, which a busy machine may not see."""
        await self.page.evaluate("navigator.clipboard.writeText('-')")
        await button.click()
        copied = "-"
        while copied == "-":  # `wait_for_function` takes the promise of an answer for the answer
            copied = str(await self.page.evaluate("navigator.clipboard.readText()"))
        return copied

    async def type_query(self, text: str) -> None:
        editor = self.page.get_by_label("Query", exact=True)
        await editor.click()
        await self.page.keyboard.press("Control+a")
        await self.page.keyboard.insert_text(text)
        await expect(editor).to_have_text(text.replace("\n", ""))

    async def views(self, database: str, container: str) -> list[str]:
        """The addresses of all views, as the page's own menu has them: those of a container first."""
        found = await self.page.evaluate(
            """async () => { const base = document.querySelector('script[type=module]').src.replace(/[^/]*$/, '');
            const menu = await import(base + 'views/menu.js');
            return [menu.CONTAINER_VIEWS.map(each => each.id), menu.VIEWS.map(each => each.path)]; }"""
        )
        place = f"c/{quote(database, safe='')}/{quote(container, safe='')}"
        return [*(f"{place}/{view}" for view in found[0]), *found[1]]

    async def settled(self) -> None:
        """Until the view is loaded, with what it asks for first."""
        await expect(self.page.locator("main h1")).to_be_visible()
        await expect(self.test("loading")).to_have_count(0)

    async def axe(self, part: str = "html") -> list[str]:
        """What axe-core finds in the page as it is, or in a part of it, in both schemes, by the rules of the levels A
        and AA."""
        return await axe_faults(self.page, part, scheme_attribute="data-scheme")

    async def segments(self) -> dict[str, str]:
        """The bounds of the partitions that the strip shows."""
        shown = await self.test("strip").first.get_attribute("data-segments") or ""
        return dict(each.split(":", 1) for each in shown.split())

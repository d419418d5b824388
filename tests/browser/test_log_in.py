"""Coming in: redirects, log-in with key and ticket, cookies, policy, and what other sites can do."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from azure.cosmos import CosmosClient
from browser.conftest import OpenPortal, StartServer
from browser.portal import BASE, Operator
from playwright.async_api import expect


async def test_browsers_are_led_to_the_portal(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, is_logged_in=False)
    for path in ("/", "/_explorer/index.html"):
        await portal.page.goto(operator.server.url + path)
        await expect(portal.page.get_by_label("Control key")).to_be_focused()
        assert portal.page.url == portal.address()
    with CosmosClient(operator.server.url, operator.server.key) as client:
        assert list(client.list_databases()) == []
    answer = await portal.page.request.get(operator.server.url, headers={"accept": "*/*"}, max_redirects=0)
    assert answer.status == 401


async def test_wrong_keys_are_refused_in_words(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, is_logged_in=False)
    field = portal.page.get_by_label("Control key")
    for key, said in (("wrong", "The control key is wrong."), (operator.server.key, "That is the account's key.")):
        await field.fill(key)
        await portal.button("Log in").click()
        await expect(portal.page.get_by_role("alert")).to_contain_text(said)
    await field.fill(operator.key)
    await portal.button("Log in").click()
    await expect(portal.test("health")).to_have_text("● ready")
    await portal.button("Log out").click()
    await expect(field).to_be_visible()


async def test_tickets_are_good_once_and_leave_the_address(operator: Operator, open_portal: OpenPortal) -> None:
    first, second = [await open_portal(operator, is_logged_in=False) for _ in range(2)]
    ticket = operator.ask("POST", "session/tickets", {})["ticket"]  # good for a minute
    address = first.address(f"#ticket={ticket}")
    for portal in (first, second):
        await portal.page.goto("about:blank")
        await portal.page.goto(address)
        if portal is first:
            await expect(portal.test("health")).to_be_visible()
            assert portal.page.url == portal.address()
    await expect(second.page.get_by_label("Control key")).to_be_visible()


# Wrong keys are counted for a minute; a busy machine may need longer for eleven.
PATIENT = """import sys
from armillary import limits
limits.LOG_IN_FAILURES_SECONDS = 3600.0
from armillary.tools.cli import main
sys.exit(main(sys.argv[1:]))"""


async def test_the_eleventh_wrong_key_is_refused_for_a_while(
    start_server: StartServer, open_portal: OpenPortal
) -> None:
    portal = await open_portal(start_server(program=("-c", PATIENT)), is_logged_in=False)
    field = portal.page.get_by_label("Control key")
    for number in range(11):
        await field.fill(f"wrong-{number}")
        async with portal.page.expect_response("**/session") as answered:
            await portal.button("Log in").click()
        assert (await answered.value).status == (401 if number < 10 else 429)
        await expect(portal.button("Log in")).to_be_enabled()


async def test_cookies_are_kept_from_scripts_and_other_servers(
    operator: Operator, start_server: StartServer, open_portal: OpenPortal
) -> None:
    portal = await open_portal(operator, is_new=True)
    (cookie,) = await portal.page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/_armillary"
    assert await portal.page.evaluate("document.cookie") == ""
    beside = start_server()
    page = await portal.page.context.new_page()
    await page.goto(f"{beside.server.url}{BASE}")
    await page.get_by_label("Control key").fill(beside.key)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.locator("[data-test='health']")).to_be_visible()
    await portal.page.reload()
    await expect(portal.test("health")).to_be_visible()
    port = beside.server.port
    beside.server.stop()
    start_server("--sql-port", str(port))
    await page.goto(f"{beside.server.url}{BASE}")
    await expect(page.get_by_label("Control key")).to_be_visible()


async def test_requests_need_the_value_of_the_log_in_and_the_own_origin(
    operator: Operator, open_portal: OpenPortal
) -> None:
    portal = await open_portal(operator)
    send = """async (headers) => (await fetch('/_armillary/databases', {method: 'POST', headers: {'content-type':
        'application/json', ...headers}, body: '{"name": "stolen"}'})).status"""
    assert await portal.page.evaluate(send, {}) == 403
    assert await portal.page.evaluate(send, {"x-armillary-csrf": "wrong"}) == 403
    (cookie,) = await portal.page.context.cookies()
    sent = {"Authorization": "", "Cookie": f"{cookie['name']}={cookie['value']}", "Origin": "http://elsewhere.example"}
    assert operator.send("GET", "databases", None, sent)[0] == 403
    assert operator.send("GET", "databases", None, {"Host": "elsewhere.example"})[0] in (403, 421)
    assert operator.ask("GET", "databases") == {"databases": []}


class OtherSite:
    """A page on another port of the same host: the browser sends the cookie of the log-in with its requests."""

    def __init__(self, page: str) -> None:
        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: object) -> None:
                """Not into the tests' output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> OtherSite:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


STOLEN: dict[str, dict[str, Any]] = {
    "databases": {"name": "stolen"},
    "portal/sql/dbs": {"id": "stolen"},
    "portal/mongo": {"database": "stolen", "command": {"create": "stolen"}},
    "faults": {"operations": "read", "status": 503},
    "snapshots/stolen": {},
}


def form(url: str, target: str, content: dict[str, Any], kind: str) -> str:
    """That posts JSON, as far as a form can: its only field's name and value are parts of it."""
    start = json.dumps({**content, "x": ""})[:-2]
    return f"""<form method="post" enctype="{kind}" action="{url}/_armillary/{target}">
        <input name='{start}' value='"}}'><button>{target}</button></form>"""


async def test_forms_of_other_sites_cannot_post(operator: Operator, open_portal: OpenPortal) -> None:
    before = [operator.ask("GET", path) for path in ("databases", "faults", "snapshots")]
    plain, encoded = (
        "".join(form(operator.server.url, target, content, kind) for target, content in STOLEN.items())
        for kind in ("text/plain", "application/x-www-form-urlencoded")
    )
    # Without a referrer the browser says "Origin: null".
    with OtherSite(plain) as site, OtherSite(f'<meta name="referrer" content="no-referrer">{encoded}') as hidden:
        portal = await open_portal(operator, allowed=(site.url, hidden.url))
        for url, origin in ((site.url, site.url.rstrip("/")), (hidden.url, "null")):
            for target in STOLEN:
                await portal.page.goto(url)
                async with portal.page.expect_response(f"**/_armillary/{target}") as answered:
                    await portal.button(target).click()
                answer = await answered.value
                sent = await answer.request.all_headers()
                assert (sent["origin"], answer.status) == (origin, 403) and sent["cookie"], (target, sent)
    assert [operator.ask("GET", path) for path in ("databases", "faults", "snapshots")] == before


async def test_policy_forbids_inline_scripts_and_other_hosts(operator: Operator, open_portal: OpenPortal) -> None:
    portal = await open_portal(operator, allowed=("Content Security Policy", "TrustedHTML", "TrustedScript"))
    inject = """text => { const script = document.createElement('script'); try { script.append(text); } catch (error) {
        return String(error); } document.body.append(script); return window.was ?? null; }"""
    assert await portal.page.evaluate(inject, "window.was = 1") is None, "it is in the page, and does not run"
    write = "() => { try { document.body.innerHTML = '<p>'; } catch (error) { return String(error); } }"
    assert "TrustedHTML" in await portal.page.evaluate(write)
    for path in ("", "compare", "testing", "keeping", "settings"):
        answer = await portal.page.request.get(portal.address(path), headers={"accept": "text/html"})
        headers = answer.headers
        assert answer.ok and "text/html" in headers["content-type"]
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"

"""Read-only log-ins: every control of their pages is used and none asks for a change, and every request that changes
something is refused.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from browser.conftest import OpenPortal
from browser.portal import BASE, Operator, Portal
from playwright.async_api import Request, expect

from armillary.doors.control.routes import CHANGING

READING_COMMANDS = {"find", "aggregate", "explain", "count", "distinct", "listIndexes", "ping", "hello"}
COMPUTING = {"estimate", "simulations", "advice", "jobs", "uploads"}  # what these change is a computation of their own
CONTROLS_AT_MOST = 80  # of a view; pages that answer with ever more of them must not keep the test


def changes(request: Request) -> bool:
    """Whether a request of a page may change something."""
    path = urlsplit(request.url).path
    if request.method == "GET" or path == "/_armillary/session" or path.endswith("/parse"):
        return False
    if path.removeprefix("/_armillary/").partition("/")[0] in COMPUTING:
        return False
    if path.startswith(f"{BASE}sql/"):
        return not {"x-ms-documentdb-isquery", "x-ms-cosmos-is-query-plan-request"} & set(request.headers)
    content: Any = json.loads(request.post_data or "{}")
    if path == f"{BASE}mongo":
        return next(iter(content["command"])) not in READING_COMMANDS
    return not (path == f"{BASE}gremlin" and content["script"].startswith("g.V()") and "add" not in content["script"])


# In the page: 300 clicks from outside would take half a minute.
USE_EVERYTHING = """async most => { const used = [], controls = () => [...document.querySelectorAll(
    'main button, main input[type=checkbox], main summary, nav.tree button')].filter(
    each => each.checkVisibility() && !each.disabled);
    for (let at = 0; at < Math.min(most, controls().length); at += 1) {
      const control = controls()[at];
      used.push(control.ariaLabel ?? control.innerText);
      control.click();
      await new Promise(done => setTimeout(done));
      for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
    } return used; }"""


async def use_everything(portal: Portal) -> list[str]:
    """Press every button of the view and the tree, check every box, run every editor; the names of the controls."""
    used: list[str] = await portal.page.evaluate(USE_EVERYTHING, CONTROLS_AT_MOST)
    for editor in await portal.page.locator("code-editor .cm-content").all():
        await editor.press("Control+Enter")
    return used


async def test_no_control_of_a_read_only_page_changes_anything(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    path = operator.create(name, "orders", "/customerId", 20_000)
    operator.client(name, "orders").create_item({"id": "1", "customerId": "a"})
    operator.ask("POST", "snapshots/before", {})
    procedure = {"body": "function f() { getContext().getResponse().setBody(1); }"}
    operator.ask("PUT", f"{path}/scripts/procedures/f", procedure)
    operator.ask("POST", "faults", {"operations": "read", "key": "none", "status": 429})
    operator.ask("PUT", "reshapes/pauses", {"points": ["begun"]})
    operator.ask("POST", f"{path}/split", {})
    portal = await open_portal(operator, read_only=True, permissions=["clipboard-read", "clipboard-write"])
    asked: list[str] = []
    portal.page.on("request", lambda each: asked.append(f"{each.method} {each.url}") if changes(each) else None)
    used: dict[str, list[str]] = {}
    scripts = f"c/{name}/orders/scripts?kind=procedures&name=f"
    for view in [*await portal.views(name, "orders"), scripts]:
        await portal.show(view)
        used[view] = await use_everything(portal)
        assert not asked, (view, asked)
        await expect(portal.page.locator("main").locator("input:disabled, select:disabled")).to_have_count(0)
    assert "Run" in used[f"c/{name}/orders/query"] and any(used.values())
    await portal.show(f"c/{name}/orders/items")
    await portal.page.locator("td", has_text="1").first.click()
    shown = portal.page.get_by_role("dialog").get_by_role("button")
    await expect(shown).to_have_text(["Close", "Copy"])
    operator.ask("PUT", "reshapes/pauses", {"points": []})
    operator.ask("DELETE", "faults")


async def test_read_only_log_ins_are_refused_every_change(
    operator: Operator, name: str, open_portal: OpenPortal
) -> None:
    """The routes of the control API from its own table, and writes through each bridge."""
    operator.create(name, "orders", "/customerId")
    portal = await open_portal(operator, read_only=True)
    csrf = await portal.page.evaluate("async () => (await (await fetch('/_armillary/session')).json()).csrf")
    send = """async ([method, path, csrf, body]) => { const answer = await fetch(path, {method, body, headers: {
        'x-armillary-csrf': csrf, 'content-type': 'application/json', 'x-ms-documentdb-partitionkey': '["a"]'}});
        return [answer.status, await answer.text()]; }"""

    async def sent(method: str, path: str, content: Any) -> tuple[int, Any]:
        status, text = await portal.page.evaluate(send, [method, path, csrf, json.dumps(content)])
        return status, json.loads(text)

    for method, pattern in CHANGING:
        status, answer = await sent(method, "/_armillary/" + pattern.replace("{}", "x"), {})
        assert (status, answer["error"]["code"]) == (403, "forbidden"), (method, pattern)
    assert (await sent("DELETE", "/_armillary/session?all=true", {}))[0] == 403
    items = f"{BASE}sql/dbs/{name}/colls/orders/docs"
    assert (await sent("POST", items, {"id": "1", "customerId": "a"}))[0] == 403
    insert = {"database": name, "command": {"insert": "orders", "documents": [{"_id": 1, "customerId": "a"}]}}
    status, answer = await sent("POST", f"{BASE}mongo", insert)
    assert status == 200 and answer["reply"]["codeName"] == "Unauthorized"
    script = {"database": name, "graph": "orders", "script": "g.addV('a').property('customerId', 'a')", "bindings": {}}
    status, answer = await sent("POST", f"{BASE}gremlin", script)
    assert status == 200 and "may read and not write" in answer["status"]["message"], answer
    assert operator.ask("GET", f"databases/{name}/containers/orders")["items"] == 0

"""The editor of the query view: texts that are typed and chosen faster than the page is painted."""

from __future__ import annotations

from browser.conftest import OpenPortal
from browser.portal import Operator
from playwright.async_api import expect

# Between two changes the page renders, which takes microtasks, and is not painted: nothing else runs in this time. An
# editor and a page that answer each other's changes would do so for ever, so edits beyond the most are kept from it.
WITHOUT_PAINTING = """async ([most, change]) => { let edits = 0;
    const count = event => { edits += 1; if (edits > most) event.stopPropagation(); };
    addEventListener('edit', count, true);
    const rendered = async () => { for (let turn = 0; turn < 50; turn += 1) await null; };
    const editor = document.querySelector('code-editor');
    const examples = [...document.querySelectorAll('.empty button')];
    const type = text => editor.view.dispatch({changes: {from: editor.view.state.doc.length, insert: text}});
    const changes = {
      chosen: examples.map(each => () => each.click()),
      typed: [...'WHERE c.a = 1'].map(letter => () => type(letter)),
    };
    for (const one of changes[change]) { one(); await rendered(); }
    await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    removeEventListener('edit', count, true);
    return edits; }"""
EDITS_AT_MOST = 40


async def test_texts_chosen_at_once_come_to_rest(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders")
    portal = await open_portal(operator, f"c/{name}/orders/query")
    await expect(portal.page.locator("code-editor[data-ready]")).to_be_visible()
    last = await portal.page.locator(".empty button").last.inner_text()
    edits = await portal.page.evaluate(WITHOUT_PAINTING, [EDITS_AT_MOST, "chosen"])
    assert edits < EDITS_AT_MOST, edits
    await expect(portal.page.get_by_label("Query", exact=True)).to_have_text(last)


async def test_keys_typed_at_once_are_all_kept(operator: Operator, name: str, open_portal: OpenPortal) -> None:
    operator.create(name, "orders")
    portal = await open_portal(operator, f"c/{name}/orders/query#SELECT%20*%20FROM%20c%20")
    await expect(portal.page.locator("code-editor[data-ready]")).to_be_visible()
    edits = await portal.page.evaluate(WITHOUT_PAINTING, [EDITS_AT_MOST, "typed"])
    assert edits < EDITS_AT_MOST, edits
    await expect(portal.page.get_by_label("Query", exact=True)).to_have_text("SELECT * FROM c WHERE c.a = 1")

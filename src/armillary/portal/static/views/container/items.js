// Items of a container, a page at a time: by id and key, by key, or all; read, made, changed and deleted one by one.

import { html, useState } from "../../vendor/core.js";
import { choose, route } from "../../data/address.js";
import { session } from "../../data/client.js";
import { PAGE, deleteByKey, keyOf, queryPage } from "../../data/items.js";
import { findContainer } from "../../data/resources.js";
import { charge, count, plural } from "../../text/numbers.js";
import { Grid } from "../../widgets/grid.js";
import { JsonText, cellText, columnNames } from "../../widgets/json.js";
import { useInTurn, useLatest } from "../../widgets/asking.js";
import { Choice, Dialog, Failure, Field, useData } from "../../widgets/parts.js";
import { ItemDialog } from "./item-dialog.js";
import { keyText } from "./top-keys.js";

const REQUESTS_AT_ONCE = 64;

/** A partition key as it is typed: JSON, or plain text for a string. @param {string} text @returns {any[]} */
export function parseKey(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    value = text;
  }
  return Array.isArray(value) ? value : [value];
}

/** @typedef {{rows: any[], next: string | null, chargeRu: number}} Pages */

/**
 * The pages so far and those after them. A page ends with its partition, and may be empty: reading goes on until there
 * are a hundred items more, or so many requests were needed.
 * @param {Pages} before @param {(continuation: string | null) => Promise<any>} read @returns {Promise<Pages>}
 */
async function readOn(before, read) {
  let { rows, next, chargeRu } = before;
  for (let requests = 0; requests < REQUESTS_AT_ONCE; requests += 1) {
    const page = await read(next);
    rows = [...rows, ...page.rows];
    next = page.continuation;
    chargeRu += page.chargeRu;
    if (!next || rows.length >= before.rows.length + PAGE) break;
  }
  return { rows, next, chargeRu };
}

/** @param {{database: string, container: string}} props */
export default function Items({ database, container }) {
  const { params } = route.value;
  const about = findContainer(database, container);
  const paths = about?.partitionKey ?? [];
  const key = params.get("key") ?? "";
  const id = params.get("id") ?? "";
  const [pages, setPages] = useState(/** @type {Pages} */ ({ rows: [], next: null, chargeRu: 0 }));
  const [shown, setShown] = useState(/** @type {any} */ (null));
  const [isDeleting, setDeleting] = useState(false);
  const further = useLatest();
  const asked = {
    query: id ? "SELECT * FROM c WHERE c.id = @id" : "SELECT * FROM c",
    parameters: id ? [{ name: "@id", value: id }] : [],
    key: key ? parseKey(key) : null,
  };
  const state = useData(async (signal) => {
    further.cancel(); // pages of other items
    const page = await readOn({ rows: [], next: null, chargeRu: 0 }, (continuation) => queryPage(database, container, { ...asked, continuation, signal }));
    if (!signal.aborted) setPages(page);
    return page;
  }, [database, container, key, id]);
  const more = () => further.ask((signal) => readOn(pages, (continuation) => queryPage(database, container, { ...asked, continuation, signal })), setPages);
  const find = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    choose({ id: String(form.get("id") ?? ""), key: String(form.get("key") ?? "") }, true);
  };
  const names = columnNames(pages.rows);
  const columns = [
    ...(paths.length > 0 ? [{ id: "(key)", label: "Partition key", value: (/** @type {any} */ row) => JSON.stringify(keyOf(row, paths)), text: (/** @type {any} */ row) => keyText(keyOf(row, paths).map((each) => each)) }] : []),
    ...names.map((name) => ({ id: name, label: name, value: (/** @type {any} */ row) => row[name], text: (/** @type {any} */ row) => cellText(row[name]) })),
  ];
  const { readOnly } = session.value;
  return html`
    <form class="tools" onSubmit=${find} key=${`${id} ${key}`}>
      <label>Id <input name="id" defaultValue=${id} /></label>
      ${paths.length > 0 && html`<label>Key <input name="key" defaultValue=${key} placeholder=${paths.join(", ")} /></label>`}
      <button type="submit">Find</button>
      ${(id || key) && html`<button type="button" class="quiet" onClick=${() => choose({ id: null, key: null }, true)}>All items</button>`}
      ${!readOnly && html`<button type="button" class="quiet" onClick=${() => setShown({ isNew: true })}>New item</button>`}
      ${!readOnly && key && html`<button type="button" class="quiet" onClick=${() => setDeleting(true)}>Delete all of this key</button>`}
    </form>
    <p class="small">A key is JSON: <code>"de"</code>, <code>7</code>, <code>true</code>, <code>null</code>, <code>{}</code> for a missing value, <code>["eu","de"]</code> for a hierarchical key. Text without quotes is a string.</p>
    <${Failure} error=${further.error ?? state.error} />
    ${state.data && pages.rows.length === 0
      ? html`<p class="empty">No items${id || key ? " match" : ""}${pages.next ? " so far" : ""}. ${about ? emptySentence(about.partitionCount) : ""}</p>`
      : params.get("as") === "json"
        ? html`<${JsonText} text=${JSON.stringify(pages.rows, null, 2)} label="Items as JSON" />`
        : html`<${Grid} label="items" columns=${columns} rows=${pages.rows} keyOf=${(/** @type {any} */ row, /** @type {number} */ index) => row._rid ?? index} sort=${params.get("sort") ?? ""} onSort=${(/** @type {string} */ sort) => choose({ sort })} onOpen=${setShown} />`}
    <p class="tools"><span class="small" data-test="items-foot">${plural(pages.rows.length, "item")}, ${charge(pages.chargeRu)} RU${about ? `; ${count(about.items)} in the container` : ""}</span>
      ${pages.next && html`<button type="button" class="quiet" onClick=${more}>Next ${count(PAGE)}</button>`}
      <${Choice} label="Form" value=${params.get("as") ?? "table"} onChange=${(/** @type {string} */ as) => choose({ as: as === "table" ? null : as })} options=${[["table", "Table"], ["json", "JSON"]]} /></p>
    ${shown && html`<${ItemDialog} database=${database} container=${container} paths=${paths} item=${shown.isNew ? null : shown} onClose=${() => setShown(null)} onChanged=${state.again} />`}
    ${isDeleting && html`<${DeleteKey} database=${database} container=${container} keyText=${key} onClose=${() => setDeleting(false)} onDone=${state.again} />`}
  `;
}

/** @param {number} partitions */
const emptySentence = (partitions) => (partitions === 1 ? "There is one partition." : `There are ${count(partitions)} partitions.`);

/** @param {{database: string, container: string, keyText: string, onClose: () => void, onDone: () => void}} props */
function DeleteKey({ database, container, keyText: text, onClose, onDone }) {
  const { act, error, isActing } = useInTurn();
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void act(async () => {
      await deleteByKey(database, container, parseKey(text));
      onDone();
      onClose();
    });
  };
  return html`<${Dialog} title="Delete all items of a key" onClose=${onClose}><form onSubmit=${submit}>
    <${Field} label="Key"><input value=${text} readOnly /><//>
    <p>The items are deleted in the background, and are not found from now on.</p>
    <${Failure} error=${error} /><p><button type="submit" class="danger" disabled=${isActing}>Delete</button></p>
  </form><//>`;
}

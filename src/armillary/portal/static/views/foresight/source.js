// Where the rows of an advice come from: a container, or a file of the browser's machine; and how much data there will
// be. Also the requests: none, those of a capture, or planned rates.

import { html, signal } from "../../vendor/core.js";
import { choose, route } from "../../data/address.js";
import { containerPath, control, reading, session } from "../../data/client.js";
import { containers } from "../../data/resources.js";
import { BYTES_MAX } from "../../data/rows-of-file.js";
import { bytes, count, plural } from "../../text/numbers.js";
import { useInTurn } from "../../widgets/asking.js";
import { Choice, Copy, Failure, Field, Time, useData, useEvery } from "../../widgets/parts.js";
import { WorkloadForm } from "./workload-form.js";

const REFRESH_MS = 2000;
/** The file that was chosen: it cannot be in the address. */
export const file = signal(/** @type {File | null} */ (null));

/** @param {URLSearchParams} params */
export const isFile = (params) => params.get("from") === "file";

/** @param {{name: string, label: string, hint?: string, placeholder?: string}} props */
const Option = ({ name, label, hint, placeholder }) => html`<${Field} label=${label} hint=${hint}><input name=${name} placeholder=${placeholder} value=${route.value.params.get(name) ?? ""} onChange=${(/** @type {any} */ event) => choose({ [name]: event.currentTarget.value.trim() })} /><//>`;

export function Source() {
  const { params } = route.value;
  const all = containers.value.map((each) => `${each.database}/${each.name}`);
  const of = params.get("of") ?? "";
  const chosen = containers.value.find((each) => `${each.database}/${each.name}` === of);
  const take = (/** @type {any} */ event) => {
    file.value = event.currentTarget.files[0] ?? null;
  };
  const command = `armillary advise ${file.value?.name ?? "items.jsonl"}`;
  return html`<p class="tools"><${Choice} label="Rows of" value=${isFile(params) ? "file" : "container"} onChange=${(/** @type {string} */ from) => choose({ from: from === "file" ? from : null, ...(params.get("requests") === "capture" ? { requests: null } : {}) })} options=${[["container", "A container"], ["file", "A file"]]} /></p>
    ${isFile(params)
      ? html`<${Field} label="File" hint="JSON lines, a JSON array or CSV, up to 64 MB. It is sent to the server, kept in memory, and forgotten with the answer."><input type="file" name="file" accept=".json,.jsonl,.ndjson,.csv" onChange=${take} /><//>
        ${file.value && html`<p data-test="file">${file.value.name}: ${bytes(file.value.size)}</p>`}
        ${file.value && file.value.size > BYTES_MAX && html`<div class="failure" role="alert"><p>The file is larger than 64 MB. The command reads files of any size:</p><p class="tools"><code>${command}</code><${Copy} text=${command} what="the command" /></p></div>`}`
      : html`<p class="tools"><label>Container <select name="of" value=${of} onChange=${(/** @type {any} */ event) => choose({ of: event.currentTarget.value, capture: null })}><option value="">–</option>${all.map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
          ${chosen && html`<span>${plural(chosen.items, "item")}, ${bytes(chosen.bytes)}, by ${(chosen.partitionKey ?? ["no key"]).join(", ")}</span>`}</p>
        ${all.length === 0 && html`<p class="empty">There are no containers yet. A file does as well.</p>`}
        ${chosen && chosen.items < 1000 && html`<p class="note">Read 1,000 rows at least: ${plural(chosen.items, "item")} cannot tell much about a key.</p>`}`}
    <h3>How much it will be</h3>
    <div class="columns">
      <${Option} name="size" label="All data" hint="If the rows are a sample of it. Empty: they are all." placeholder="500GB" />
      <${Option} name="growth" label="Growth a day" placeholder="2GB/day" />
      <${Option} name="horizon" label="Horizon" hint="Empty: 24 months." placeholder="24mo" />
    </div>
    <h3>What the key may be</h3>
    <div class="columns">
      <${Option} name="must" label="Must have" hint="Paths with commas." placeholder="/tenantId" />
      <${Option} name="never" label="Never has" hint="Paths with commas." placeholder="/email" />
      <${Option} name="candidates" label="Judge these, too" hint="Keys with spaces between them; the paths of a hierarchical one with commas." placeholder="/country /tenantId,/userId" />
    </div>`;
}

const REQUESTS = /** @type {[string, string][]} */ ([["none", "Not known"], ["rates", "Planned rates"], ["capture", "A capture"]]);

export function Requests() {
  const { params } = route.value;
  const offered = REQUESTS.filter(([id]) => id !== "capture" || (!isFile(params) && params.get("of")));
  const kind = offered.find(([id]) => id === params.get("requests"))?.[0] ?? "none";
  return html`<p>What applications ask for decides between keys that the data allows.</p>
    <p class="tools"><${Choice} label="Requests" value=${kind} onChange=${(/** @type {string} */ value) => choose({ requests: value === "none" ? null : value })} options=${offered} /></p>
    ${kind === "rates" && html`<p>Queries pin the paths of <code>filter</code> in the JSON. Sizes and keys are those of the rows.</p><${WorkloadForm} />`}
    ${kind === "capture" && html`<${Captures} name=${params.get("of") ?? ""} />`}
    ${kind === "none" && html`<p class="empty">Without requests a key can be told to be impossible or poor, but often not which of the others is best.</p>`}`;
}

/** @param {{name: string}} props */
function Captures({ name }) {
  const [database, container = ""] = name.split("/");
  const path = `${containerPath(database, container)}/captures`;
  const state = useData(reading(path), [path]);
  const { act: inTurn, error } = useInTurn();
  useEvery(state.refresh, REFRESH_MS);
  const act = (/** @type {string} */ target, /** @type {any} */ body) => () =>
    inTurn(() => control("POST", target, body).then(({ id }) => choose({ capture: id })).finally(state.again));
  const { readOnly } = session.value;
  const chosen = route.value.params.get("capture") ?? "";
  const found = state.data?.captures ?? [];
  return html`<${Failure} error=${error ?? state.error} />
    ${!readOnly && html`<p class="tools"><button type="button" onClick=${act(path, { seconds: 3600 })}>Start a capture</button><span class="small">Of one hour at most, values as digests. Then let the application work.</span></p>`}
    ${state.data && (found.length === 0 ? html`<p class="empty">No captures of ${name}.</p>`
      : html`<table data-test="captures"><thead><tr><th scope="col">Use</th><th scope="col">Begun</th><th scope="col">State</th><th scope="col" class="number">Requests</th><th scope="col"><span class="visually-hidden">Actions</span></th></tr></thead>
      <tbody>${found.map((/** @type {any} */ each) => html`<tr key=${each.id}><td><input type="radio" name="capture" aria-label=${`Capture ${each.id}`} checked=${chosen === each.id} onChange=${() => choose({ capture: each.id })} /></td>
        <td><${Time} value=${each.begunAt} /></td><td>${each.state}</td><td class="number">${count(each.requests)}</td>
        <td>${each.state === "running" && !readOnly && html`<button type="button" class="quiet" onClick=${act(`${path}/${encodeURIComponent(each.id)}/stop`, {})}>Stop</button>`}</td></tr>`)}</tbody></table>
      ${found.some((/** @type {any} */ each) => each.requests < 1000 && each.id === chosen) && html`<p class="note">1,000 requests at least tell keys apart.</p>`}`)}`;
}

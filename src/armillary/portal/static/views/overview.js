// The first page: the server and its doors with connection strings, what has happened lately, and the containers that
// spend and refuse most.

import { html, useEffect, useRef, useState } from "../vendor/core.js";
import { viewPath } from "../data/address.js";
import { BASE, control, reading, session } from "../data/client.js";
import { containers, databases } from "../data/resources.js";
import { events } from "../data/watch.js";
import { bytes, count, duration, plural } from "../text/numbers.js";
import { codeOf } from "../text/samples.js";
import { useLatest } from "../widgets/asking.js";
import { Copy, Failure, Stale, Time, useData, useEvery } from "../widgets/parts.js";
import { LoadSample } from "./sample-data.js";

const SERVER_MS = 5000;
const DOORS = { sql: "SQL (NoSQL)", mongo: "MongoDB", table: "Table", gremlin: "Gremlin", control: "Control" };

export default function Overview() {
  const state = useData(reading("server"), []);
  useEvery(state.refresh, SERVER_MS);
  const found = state.data;
  return html`<h1>Overview</h1>
    <${Stale} state=${state} />
    ${found && html`<${Server} found=${found} />`}
    ${databases.value !== null && containers.value.length === 0 && html`<${Nothing} />`}
    ${found && html`<h2>Doors</h2><div class="columns">${found.doors.map((door) => html`<${Door} key=${door.name} door=${door} />`)}</div>`}
    ${!session.value.readOnly && html`<${Keys} />`}
    <div class="columns"><${Top} /><${Lately} /></div>`;
}

/** @param {{found: any}} props */
const Server = ({ found }) => html`<div class="panel"><dl class="facts">
  <dt>State</dt><dd><span class=${found.ready ? "good" : "bad"} data-test="health">● ${found.ready ? "ready" : "storage cannot be read"}</span>${found.isReadOnly ? ", read-only" : ""}</dd>
  <dt>Account</dt><dd>${found.account}, version ${found.version}, ${found.consistency} consistency${found.serverless ? ", serverless" : ""}</dd>
  <dt>Up</dt><dd>${duration(found.uptimeSeconds)}, since <${Time} value=${found.startedAt} /></dd>
  <dt>Budgets</dt><dd>${MODES[/** @type {keyof typeof MODES} */ (found.mode)] ?? found.mode}; a partition carries ${count(found.limits?.partitionThroughputRu)} RU/s and ${bytes(found.limits?.partitionStorageBytes)}, a key ${bytes(found.limits?.logicalPartitionBytes)}</dd>
  <dt>Memory and disk</dt><dd>${bytes(found.memoryBytes)} in use${found.disk ? `; ${bytes(found.disk.usedBytes)} stored, ${bytes(found.disk.freeBytes)} free` : ""}</dd>
  <dt>Connections</dt><dd>${Object.entries(found.connections ?? {}).map(([name, number]) => `${name} ${number}`).join(", ") || "none"}</dd>
</dl></div>`;

const MODES = {
  enforce: "enforced: requests over budget get 429",
  observe: "observed: requests over budget pass and are counted",
  off: "off",
};

/** @param {{door: any}} props */
function Door({ door }) {
  const code = codeOf(door);
  const filled = async () => {
    const { keys } = await control("GET", "account/keys");
    const key = session.value.readOnly ? keys.primaryReadonly : keys.primary;
    const isUrl = door.connectionString.startsWith("mongodb:");
    return door.connectionString.replaceAll("<key>", isUrl ? encodeURIComponent(key) : key);
  };
  return html`<section class="panel" data-door=${door.name}>
    <h3>${DOORS[/** @type {keyof typeof DOORS} */ (door.name)] ?? door.name}</h3>
    ${door.endpoints.map((each) => html`<p key=${each} class="tools"><code>${each}</code><${Copy} text=${each} what=${`endpoint ${each}`} /></p>`)}
    ${door.connectionString && html`<p class="small code">${door.connectionString}</p>
      <p><${Copy} text=${filled} label="Copy connection string" what=${`of ${door.name}`} /></p>`}
    ${code.map(({ name, text }) => html`<details key=${name}><summary>${name}</summary><pre>${text}</pre><${Copy} text=${text} what=${`code for ${name}`} /></details>`)}
  </section>`;
}

const SHOWN_MS = 60_000;

/** The account's keys: fetched when asked for, written into the page alone, and gone after a minute. */
function Keys() {
  const place = useRef(/** @type {HTMLDListElement | null} */ (null));
  const timer = useRef(0);
  const [isShown, setShown] = useState(false);
  const { ask, cancel, error } = useLatest();
  const hide = () => {
    cancel();
    clearTimeout(timer.current);
    place.current?.replaceChildren();
    setShown(false);
  };
  useEffect(() => hide, []);
  const show = () => ask(reading("account/keys"), ({ keys }) => {
    const nodes = Object.entries(keys).flatMap(([name, key]) => {
      const term = document.createElement("dt");
      const value = document.createElement("dd");
      term.textContent = name;
      value.textContent = String(key ?? "none");
      value.className = "code";
      return [term, value];
    });
    place.current?.replaceChildren(...nodes);
    setShown(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(hide, SHOWN_MS);
  });
  return html`<h2>Keys of the account</h2>
    <p class="tools"><button type="button" class="quiet" onClick=${isShown ? hide : show}>${isShown ? "Hide" : "Show"}</button>
      <span class="small">Shown for a minute. They open all data; the control key is another one.</span></p>
    <${Failure} error=${error} /><dl class="facts" ref=${place} data-test="keys"></dl>`;
}

const Nothing = () => html`<div class="panel"><h2>No containers yet</h2>
  <p>Create one with <em>New container</em> at the left, import a file with <code>armillary import orders.jsonl shop/orders</code>, or load the sample: 600 orders, stored by customer and by country.</p>
  ${!session.value.readOnly && html`<${LoadSample} />`}
</div>`;

function Top() {
  const state = useData(readMeters, []);
  useEvery(state.refresh, SERVER_MS);
  const rows = state.data ?? [];
  const by = (/** @type {string} */ field) => [...rows].filter((each) => each[field] > 0).sort((a, b) => b[field] - a[field]).slice(0, 5);
  const list = (/** @type {string} */ field, /** @type {string} */ unit, /** @type {string} */ none) => {
    const found = by(field);
    return found.length === 0
      ? html`<p class="empty">${none}</p>`
      : html`<table class="wrap"><tbody>${found.map((each) => html`<tr key=${each.name}><td><a href=${BASE + viewPath(each.database, each.container, "partitions")}>${each.name}</a></td><td class="number">${count(each[field])} ${unit}</td></tr>`)}</tbody></table>`;
  };
  return html`<section><h2>Containers that spend most</h2>${list("spentRu", "RU/s", "Nothing is being asked.")}
    <h2>Containers that refuse most</h2>${list("refused", "refused", "Nothing was refused since the server started.")}
    <p class="small">${plural(containers.value.length, "container")} in ${plural(databases.value?.length ?? 0, "database")}.</p></section>`;
}

/** Figures by container from the server's metrics: nothing is read from items. */
async function readMeters() {
  const response = await fetch("/_armillary/metrics", { credentials: "same-origin", cache: "no-store" });
  if (!response.ok) return [];
  /** @type {Record<string, any>} */
  const found = {};
  for (const line of (await response.text()).split("\n")) {
    const match = /^armillary_(partition_spent_request_units|refused_total|key_full_total)\{(.*)\} (\S+)$/.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...match[2].matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, JSON.parse(`"${value}"`)]));
    const name = `${labels.database}/${labels.container}`;
    const row = (found[name] ??= { name, database: labels.database, container: labels.container, spentRu: 0, refused: 0 });
    row[match[1].startsWith("partition") ? "spentRu" : "refused"] += Number(match[3]);
  }
  return Object.values(found);
}

const Lately = () => html`<section><h2>Lately</h2>
  ${events.value.length === 0 && html`<p class="empty">Nothing has happened since the server started.</p>`}
  <ul class="events scroll" tabindex="0" aria-label="Events">${events.value.slice(0, 50).map(
    (each) => html`<li key=${each.number}><${Time} value=${each.time} /> ${each.text}
      ${each.database && each.container && html` <a href=${BASE + viewPath(each.database, each.container, "partitions")}>${each.database}/${each.container}</a>`}</li>`,
  )}</ul></section>`;

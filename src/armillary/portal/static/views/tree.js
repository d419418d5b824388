// Databases and containers at the left of every page, with a filter; creating them begins here.

import { html, useState } from "../vendor/core.js";
import { route, viewPath } from "../data/address.js";
import { BASE, session } from "../data/client.js";
import { containers, databases, resourcesFailure } from "../data/resources.js";
import { live, watchName } from "../data/watch.js";
import { bytes, count, plural } from "../text/numbers.js";
import { Name } from "../widgets/parts.js";
import { CreateContainer, CreateDatabase, DeleteResource, ScaleResource } from "./resource-forms.js";

export function Tree() {
  const [filter, setFilter] = useState("");
  const [form, setForm] = useState(/** @type {any} */ (null));
  const { readOnly } = session.value;
  const wanted = filter.trim().toLowerCase();
  const matches = (/** @type {string} */ text) => text.toLowerCase().includes(wanted);
  if (databases.value === null) return html`<p class="small">${resourcesFailure.value || "…"}</p>`;
  const shown = databases.value
    .map((database) => ({ database, inside: containers.value.filter((each) => each.database === database.name && (matches(each.name) || matches(database.name))) }))
    .filter(({ database, inside }) => inside.length > 0 || matches(database.name));
  return html`
    <label class="visually-hidden" for="tree-filter">Filter by name</label>
    <input id="tree-filter" type="search" placeholder="Filter" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.currentTarget.value)} />
    ${!readOnly && html`<p class="tools">
      <button type="button" class="quiet" onClick=${() => setForm({ kind: "database" })}>New database</button>
      <button type="button" class="quiet" onClick=${() => setForm({ kind: "container" })}>New container</button>
    </p>`}
    ${databases.value.length === 0 && html`<p class="empty">No databases yet.</p>`}
    <ul>${shown.map(
      ({ database, inside }) => html`<li key=${database.name}>
        <div class="row"><strong><${Name} text=${database.name} most=${24} /></strong>
          ${!readOnly && html`<span>
            ${database.throughput && html`<button type="button" class="head" aria-label=${`Scale database ${database.name}`} onClick=${() => setForm({ kind: "scale", database: database.name, throughput: database.throughput })}>⇕</button>`}
            <button type="button" class="head" aria-label=${`Delete database ${database.name}`} onClick=${() => setForm({ kind: "delete", database: database.name })}>✕</button>
          </span>`}
        </div>
        <ul>${inside.map((each) => html`<${Leaf} key=${each.name} container=${each} onForm=${setForm} />`)}
          ${inside.length === 0 && html`<li class="small">no containers</li>`}</ul>
      </li>`,
    )}</ul>
    ${form?.kind === "database" && html`<${CreateDatabase} onClose=${() => setForm(null)} />`}
    ${form?.kind === "container" && html`<${CreateContainer} onClose=${() => setForm(null)} />`}
    ${form?.kind === "delete" && html`<${DeleteResource} ...${form} onClose=${() => setForm(null)} />`}
    ${form?.kind === "scale" && html`<${ScaleResource} ...${form} onClose=${() => setForm(null)} />`}
  `;
}

/** @param {{container: import("../data/shapes.js").Container, onForm: (form: any) => void}} props */
function Leaf({ container, onForm }) {
  const { view, database, container: name } = route.value;
  const isHere = database === container.database && name === container.name;
  const partitions = [...(live.value[watchName(container.database, container.name)]?.partitions.values() ?? [])];
  const refused = partitions.reduce((sum, each) => sum + each.refused + (each.full ?? 0), 0);
  const facts = [plural(container.partitionCount, "partition"), container.throughput ? `${count(container.throughput.ru)} RU/s` : "", plural(container.items, "item"), bytes(container.bytes)];
  return html`<li>
    <a href=${BASE + viewPath(container.database, container.name, isHere ? view : "partitions")} aria-current=${isHere ? "page" : undefined} title=${facts.filter(Boolean).join(", ")}>
      <span><${Name} text=${container.name} most=${24} />${refused > 0 && html` <span title="requests were refused">●<span class="visually-hidden"> requests were refused</span></span>`}</span>
      <span class="small">${container.partitionCount} p</span>
    </a>
    ${isHere && html`<div class="small">
      <div>${facts.filter(Boolean).join(" · ")}</div>
      ${!session.value.readOnly && html`<p class="tools">
        ${container.throughput && !container.throughput.sharedByDatabase && html`<button type="button" class="quiet" onClick=${() => onForm({ kind: "scale", database: container.database, container: container.name, throughput: container.throughput, partitionCount: container.partitionCount })}>Scale</button>`}
        <button type="button" class="quiet" onClick=${() => onForm({ kind: "delete", database: container.database, container: container.name })}>Delete</button>
      </p>`}
    </div>`}
  </li>`;
}

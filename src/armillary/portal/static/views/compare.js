// Two to four containers beside each other on the same scales: strips, sizes and loads by partition, how even the keys
// are, refusals, and the server's verdict with its reasons; and what another key for the same items would do.

import { html } from "../vendor/core.js";
import { choose, route, viewPath } from "../data/address.js";
import { BASE, containerPath, reading } from "../data/client.js";
import { containers, server } from "../data/resources.js";
import { live, rangesOf, watchName } from "../data/watch.js";
import { bytes, charge, count, percent, plural } from "../text/numbers.js";
import { Choice, Stale, useData, useEvery } from "../widgets/parts.js";
import { Lorenz, PartitionBars } from "../widgets/bars.js";
import { Quietly } from "../widgets/quietly.js";
import { Strip } from "../widgets/strip.js";
import { inOrder } from "./container/partitions.js";
import { OtherKey } from "./other-key.js";

const PLACES = ["a", "b", "c", "d"];
const REFRESH_MS = 5000;

export default function Compare() {
  const { params } = route.value;
  const chosen = PLACES.map((place) => params.get(place)).filter((name) => name !== null);
  const all = containers.value.map((each) => `${each.database}/${each.name}`);
  const set = (/** @type {number} */ at, /** @type {string} */ name) => choose({ [PLACES[at]]: name || null }, true);
  const rows = Math.min(PLACES.length, Math.max(2, chosen.length + 1));
  return html`<h1>Compare</h1>
    <p>The same items by different partition keys, beside each other.</p>
    <p class="tools">${PLACES.slice(0, rows).map((place, at) => html`<label key=${place}>${at === 0 ? "Container" : at === 1 ? "with" : "and"} <select name=${place} value=${params.get(place) ?? ""} onChange=${(/** @type {any} */ event) => set(at, event.currentTarget.value)}>
      <option value="">–</option>${all.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`)}</p>
    ${chosen.length >= 2 ? html`<${Quietly} what="keys for the verdict" part=${() => html`<${Verdict} names=${/** @type {string[]} */ (chosen)} />`} />` : html`<p class="empty">Choose two containers with the same items.</p>`}
    ${chosen.length > 0 && html`<div class="two">${chosen.map((name) => html`<${Side} key=${name} name=${String(name)} />`)}</div>
      <${OtherKey} names=${/** @type {string[]} */ (chosen)} />`}`;
}

/** @param {string} name */
function pathOf(name) {
  const [database, container = ""] = name.split("/");
  return containerPath(database, container);
}

const WORDS = { good: "good", care: "needs care", poor: "poor", none: "no verdict" };
const LOOKS = { good: "good", care: "warn", poor: "bad", none: "" };

/** @param {{names: string[]}} props */
function Verdict({ names }) {
  const state = useData(reading(`${pathOf(names[0])}/verdict?with=${names.slice(1).map(encodeURIComponent).join(",")}`), [names.join()]);
  useEvery(state.refresh, REFRESH_MS);
  const found = state.data;
  const all = found ? (found.comparison?.length > 0 ? found.comparison : [found]) : [];
  const row = (/** @type {string} */ label, /** @type {(each: any) => any} */ value) => html`<tr><th scope="row">${label}</th>${all.map((/** @type {any} */ each) => html`<td key=${each.container}>${value(each)}</td>`)}</tr>`;
  return html`<section aria-label="Verdict"><${Stale} state=${state} />
    ${found?.recommendation && html`<p class=${found.recommendation.container ? "good" : "note"} data-test="recommendation">${found.recommendation.container ? `Better: ${found.recommendation.container}. ` : ""}${found.recommendation.why}</p>`}
    ${found && html`<div class="grid-box" tabindex="0" role="region" aria-label="Figures"><table class="wrap figures">
      <thead><tr><th scope="col"><span class="visually-hidden">Figure</span></th>${all.map((/** @type {any} */ each) => html`<th key=${each.container} scope="col">${each.container}</th>`)}</tr></thead>
      <tbody>
        ${row("Verdict", (each) => html`<strong class=${LOOKS[/** @type {keyof typeof LOOKS} */ (each.verdict)]} data-verdict=${each.container}>${WORDS[/** @type {keyof typeof WORDS} */ (each.verdict)] ?? each.verdict}</strong>`)}
        ${row("Why", (each) => each.why)}
        ${row("Items", (each) => `${count(each.items)}, ${bytes(each.bytes)}, ${plural(each.partitions, "partition")}`)}
        ${row("Requests", (each) => `${count(each.requests)}, ${charge(each.ruPerRequest)} RU each`)}
        ${row("Refused, over budget (429)", (each) => count(each.refused))}
        ${row("Would be refused (429)", (each) => count(each.wouldBeRefused))}
        ${row("Writes refused, key full", (each) => count(each.full))}
        ${row("Refused by the worst partition", (each) => percent(each.worstRefusedShare))}
        ${row("Largest key's share of bytes", (each) => percent(each.topShare))}
        ${row("Busiest key's share of load", (each) => percent(each.topLoadShare))}
        ${row("Effective number of keys", (each) => count(each.effectiveKeys, 1))}
        ${row("Busiest partition of its share (99 %)", (each) => percent(each.normalizedP99))}
        ${row("Reasons", (each) => html`<ul>${(each.reasons ?? []).map((/** @type {any} */ reason, /** @type {number} */ at) => html`<li key=${at}>${typeof reason === "string" ? reason : reason.text}</li>`)}</ul>`)}
      </tbody></table></div>`}
  </section>`;
}

/** @param {{name: string}} props */
function Side({ name }) {
  const [database, container = ""] = name.split("/");
  const measure = route.value.params.get("measure") ?? "bytes";
  const setMeasure = (/** @type {string} */ value) => choose({ measure: value === "bytes" ? null : value });
  const found = live.value[watchName(database, container)];
  if (!found) return html`<section><h2>${name}</h2><p data-test="loading">…</p></section>`;
  if (found.isGone) return html`<section><h2>${name}</h2><p>There is no such container (any more).</p></section>`;
  const partitions = inOrder(found.partitions.values());
  return html`<section><h2><a href=${BASE + viewPath(database, container, "partitions")}>${name}</a></h2>
    <${Strip} partitions=${partitions} reshapes=${found.reshapes} limitBytes=${server.value?.limits?.partitionStorageBytes} label=${name} />
    <${Choice} label=${`Measure of ${name}`} value=${measure} onChange=${setMeasure} options=${[["bytes", "Bytes"], ["spentRu", "RU/s"], ["requests", "Requests"]]} />
    <${PartitionBars} partitions=${partitions} measure=${measure} label=${name} />
    <${Quietly} what="keys" part=${() => html`<${Shares} name=${name} ranges=${rangesOf(found)} />`} />
  </section>`;
}

/** How evenly the keys share the bytes. @param {{name: string, ranges: string}} props */
function Shares({ name, ranges }) {
  const keys = useData((signal) => reading(`${pathOf(name)}/keys?top=1000`)(signal).catch(() => reading(`${pathOf(name)}/keys?top=100`)(signal)), [name, ranges]);
  return keys.data && html`<${Lorenz} sizes=${keys.data.largestKeys.map((/** @type {any} */ each) => each.bytes)} label=${name} />`;
}

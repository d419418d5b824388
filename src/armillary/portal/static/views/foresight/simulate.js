// What happens to a workload until the horizon: a job of the server's simulator with its progress, then charts over
// days, sentences, events and totals; one run, or several that differ in one field, beside each other.

import { html, useEffect, useMemo, useState } from "../../vendor/core.js";
import { choose, route } from "../../data/address.js";
import { simulation } from "../../data/jobs.js";
import { plan } from "../../data/workload.js";
import { money } from "../../text/money.js";
import { bytes, count, duration, percent, plural } from "../../text/numbers.js";
import { Chart } from "../../widgets/chart.js";
import { JobLine } from "./job-line.js";

const VARIED = /** @type {[string, string][]} */ ([["", "one run"], ["throughput", "manual RU/s"], ["autoscale", "autoscale maximum"], ["rates", "all rates, by a factor"], ["growth_per_month", "growth a month, as a factor"], ["zipf", "skew of the keys"], ["keys", "number of keys"], ["item_bytes", "bytes of an item"]]);
const EVENTS_SHOWN = 200;

export function Simulate() {
  const { params } = route.value;
  const [name, values] = [params.get("vary") ?? "", params.get("values") ?? ""];
  const place = params.get("as") ?? "armillary";
  const { state, result } = simulation.now.value;
  useEffect(() => {
    const known = params.get("run");
    if (state === "none" && known && !result) void simulation.follow(known);
  }, []);
  useEffect(() => {
    if (simulation.now.value.id) choose({ run: simulation.now.value.id });
  }, [simulation.now.value.id]);
  const begin = (/** @type {Event} */ event) => {
    event.preventDefault();
    const vary = name && values ? [`${name}=${values.replaceAll(" ", "")}`] : [];
    void simulation.begin("simulations", () => ({ workload: plan.value.workload, for: `${plan.value.months}mo`, as: place, ...(vary.length > 0 ? { vary, timelines: true } : {}) }));
  };
  return html`<form class="tools" aria-label="Simulation" onSubmit=${begin}>
      <label>Compare <select name="vary" value=${name} onChange=${(/** @type {any} */ event) => choose({ vary: event.currentTarget.value })}>${VARIED.map(([id, text]) => html`<option key=${id} value=${id}>${text}</option>`)}</select></label>
      ${name && html`<label>of <input name="values" required value=${values} placeholder="20000, 40000" onInput=${(/** @type {any} */ event) => choose({ values: event.currentTarget.value })} /></label>`}
      <label>as <select name="as" value=${place} onChange=${(/** @type {any} */ event) => choose({ as: event.currentTarget.value === "cloud" ? "cloud" : null })}><option value="armillary">Armillary</option><option value="cloud">the cloud: splits take hours</option></select></label>
      <button type="submit" disabled=${simulation.isBusy}>Simulate ${plural(plan.value.months, "month")}</button>
    </form>
    <${JobLine} runner=${simulation} what="The simulation" />
    ${result ? html`<${Outcome} key=${simulation.now.value.id} result=${result} />` : state === "none" && html`<p class="empty">Nothing was simulated yet. Each month is computed with its splits, full keys, refusals and money.</p>`}`;
}

/** @typedef {{name: string, differing: string[], result: any}} Run */

/** @param {any} result @returns {Run[]} */
const runsOf = (result) =>
  result.runs
    ? result.runs.map((/** @type {any} */ each) => ({ name: Object.entries(each.values).map(([name, value]) => `${name} ${value}`).join(", "), differing: each.differing, result: each.result }))
    : [{ name: "This workload", differing: [], result }];

/** @param {{result: any}} props */
function Outcome({ result }) {
  const runs = runsOf(result);
  return html`<section aria-label="Simulation" data-test="simulation" data-runs=${runs.length}>
    <${Totals} runs=${runs} />
    ${runs.map((run) => html`<div key=${run.name}>${runs.length > 1 && html`<h4>${run.name}</h4>`}<ul data-test="sentences">${run.result.sentences.map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}</ul></div>`)}
    <${Charts} runs=${runs} />
    ${runs.map((run) => html`<${Events} key=${run.name} run=${run} isAlone=${runs.length === 1} />`)}
    <details><summary>What was assumed, and what is not known</summary><ul>${runs[0].result.assumptions.map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}</ul>
      <p>Not known: ${runs[0].result.notKnown.join("; ")}.</p></details>
  </section>`;
}

/** @param {{runs: Run[]}} props */
function Totals({ runs }) {
  const { currency } = runs[0].result.money.whole.prices;
  const row = (/** @type {string} */ label, /** @type {string} */ field, /** @type {(result: any) => string} */ text) => html`<tr><th scope="row">${label}</th>
    ${runs.map((run) => html`<td key=${run.name} class="number">${run.differing.includes(field) ? html`<strong data-differs=${field}>${text(run.result)} ≠</strong>` : text(run.result)}</td>`)}</tr>`;
  return html`<div class="grid-box" tabindex="0" role="region" aria-label="In the end"><table data-test="totals">
    <thead><tr><th scope="col">In the end</th>${runs.map((run) => html`<th key=${run.name} scope="col" class="number">${run.name}</th>`)}</tr></thead>
    <tbody>
      ${row("Partitions", "partitions", (each) => count(each.totals.partitions))}
      ${row("Stored", "", (each) => bytes(each.totals.bytes))}
      ${row("Refused for now (429), of request units", "refusedShare", (each) => percent(each.totals.refusedShare))}
      ${row("Refused for good, key full (403), of writes", "fullShareOfWrites", (each) => percent(each.totals.fullShareOfWrites))}
      ${row("Full keys", "fullKeys", (each) => count(each.totals.fullKeys))}
      ${row("Busiest partition of its share (99 % of minutes)", "normalizedP99", (each) => percent(each.totals.normalizedP99))}
      ${row("Longest wait of a client that retries", "", (each) => duration(each.totals.longestWaitS))}
      ${row("Throughput", "", (each) => money(each.money.whole.throughput, currency))}
      ${row("Storage", "", (each) => money(each.money.whole.storage, currency))}
      ${row("Together", "money", (each) => money(each.money.whole.total, currency))}
      ${row("A month, on average", "", (each) => money(each.money.perMonth.total, currency))}
    </tbody></table></div>
    ${runs.length > 1 && html`<p class="small">≠: differs from the first run.</p>`}`;
}

/** @param {{runs: Run[]}} props */
function Charts({ runs }) {
  const { currency } = runs[0].result.money.whole.prices;
  const drawn = useMemo(() => {
    const days = runs[0].result.timeline.map((/** @type {any} */ each) => each.day);
    const of = (/** @type {string} */ field, /** @type {string} */ label = "") =>
      runs.map((run) => ({ label: [runs.length > 1 || !label ? run.name : "", label].filter(Boolean).join(": "), values: run.result.timeline.map((/** @type {any} */ each) => each[field]) }));
    return { days, partitions: of("partitions"), stored: of("bytes"), normalized: [...of("normalizedMax", "busiest"), ...(runs.length === 1 ? of("normalizedMedian", "median") : [])], refused: of("refusedShare"), full: of("fullShare"), cost: of("costSoFar") };
  }, [runs[0].result]);
  const chart = (/** @type {string} */ title, /** @type {any} */ series, /** @type {any} */ text) => html`<${Chart} key=${title} title=${title} times=${drawn.days} across="Day" series=${series} text=${text} />`;
  return html`<div class="two">
    ${chart("Partitions", drawn.partitions, count)}
    ${chart("Stored", drawn.stored, bytes)}
    ${chart("Partitions' use of their shares", drawn.normalized, percent)}
    ${chart("Refused for now (429), of request units", drawn.refused, percent)}
    ${chart("Refused for good (403), of writes", drawn.full, percent)}
    ${chart(`Money so far, in ${currency}`, drawn.cost, count)}
  </div>`;
}

/** @param {{run: Run, isAlone: boolean}} props */
function Events({ run, isAlone }) {
  const { events, eventsLeftOff, topKeys } = run.result;
  const leftOff = eventsLeftOff + Math.max(0, events.length - EVENTS_SHOWN);
  return html`<details><summary>${plural(events.length + eventsLeftOff, "event")} and the largest keys${isAlone ? "" : ` of ${run.name}`}</summary>
    <ul class="events scroll" tabindex="0" aria-label="Events">${events.slice(0, EVENTS_SHOWN).map((/** @type {any} */ each, /** @type {number} */ at) => html`<li key=${at}>Day ${count(each.day, 1)}: ${each.text}</li>`)}</ul>
    ${leftOff > 0 && html`<p class="small">${plural(leftOff, "more event")} left off.</p>`}
    <table><thead><tr><th scope="col">Key</th><th scope="col" class="number">Stored</th><th scope="col" class="number">Share of the load</th><th scope="col" class="number">Full on day</th></tr></thead>
      <tbody>${topKeys.map((/** @type {any} */ each) => html`<tr key=${each.key}><td>${each.key}</td><td class="number">${bytes(each.bytes)}</td><td class="number">${percent(each.demandShare)}</td><td class="number">${count(each.fullOnDay, 1)}</td></tr>`)}</tbody></table></details>`;
}

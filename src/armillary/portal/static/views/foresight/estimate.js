// What a workload needs, computed again while the sliders are moved: throughput, partitions and money of each kind of
// provisioning, the largest key and the day on which it is full, and what was assumed.

import { html, useEffect, useRef, useState } from "../../vendor/core.js";
import { control } from "../../data/client.js";
import { changeWorkload, plan, provisionOf, setMonths } from "../../data/workload.js";
import { money, pricesSentence } from "../../text/money.js";
import { bytes, charge, count, percent, plural, rate } from "../../text/numbers.js";
import { Failure } from "../../widgets/parts.js";

const MOST_RU = 100_000;
const KINDS = /** @type {[string, string][]} */ ([["manual", "Manual"], ["autoscale", "Autoscale"], ["serverless", "Serverless"]]);

/** One request at a time: the newest state is asked for when an answer is there. @param {string} question */
function useEstimate(question) {
  const [state, setState] = useState({ found: /** @type {any} */ (null), error: /** @type {any} */ (null) });
  const latest = useRef(question);
  const isBusy = useRef(false);
  const isGone = useRef(false);
  latest.current = question;
  useEffect(() => () => void (isGone.current = true), []);
  useEffect(() => {
    if (isBusy.current) return;
    isBusy.current = true;
    void (async () => {
      for (let sent = ""; sent !== latest.current && !isGone.current; ) {
        sent = latest.current;
        try {
          setState({ found: await control("POST", "estimate", sent), error: null });
        } catch (error) {
          setState((before) => ({ ...before, error }));
        }
      }
      isBusy.current = false;
    })();
  }, [question]);
  return state;
}

export function Estimate() {
  const { workload, months } = plan.value;
  const state = useEstimate(JSON.stringify({ workload, for: `${months}mo` }));
  return html`<${Sliders} /><${Failure} error=${state.error} />
    ${state.found ? html`<${Answer} found=${state.found} />` : !state.error && html`<p data-test="loading">…</p>`}`;
}

function Sliders() {
  const { workload, months } = plan.value;
  const kind = provisionOf(workload);
  const ru = workload.container?.[kind];
  const growth = Math.round(((workload.shape?.growth_per_month ?? 1) - 1) * 100);
  const step = kind === "autoscale" ? 1000 : 100;
  const slider = (/** @type {string} */ label, /** @type {string} */ text, /** @type {any} */ range, /** @type {(value: number) => void} */ change) =>
    html`<label class="slider"><span>${label}: <strong>${text}</strong></span><input type="range" aria-label=${label} ...${range} onInput=${(/** @type {any} */ event) => change(Number(event.currentTarget.value))} /></label>`;
  return html`<div class="columns" role="group" aria-label="Sliders">
    ${typeof ru === "number" && slider(kind === "autoscale" ? "Autoscale maximum" : "RU/s", count(ru), { min: kind === "autoscale" ? 1000 : 400, max: Math.max(MOST_RU, Math.ceil(ru / 1000) * 1000), step, value: ru }, (value) => changeWorkload((each) => (each.container[kind] = value)))}
    ${slider("Growth a month", `${growth} %`, { min: -20, max: 50, step: 1, value: growth }, (value) => changeWorkload((each) => (each.shape = { ...each.shape, growth_per_month: (100 + value) / 100 })))}
    ${slider("Horizon in months", count(months), { min: 0, max: 60, step: 1, value: months }, setMonths)}
  </div>`;
}

/** @param {{found: any}} props */
function Answer({ found }) {
  const { required, provisioned, keys, storage, peak, breakEven } = found;
  const { currency } = breakEven.prices;
  const limit = bytes(found.inputs.logicalPartitionBytes);
  return html`<section aria-label="Estimate" data-test="estimate" data-months=${Math.round(found.inputs.horizonDays / 30.42)}>
    ${found.warnings.map((/** @type {string} */ each) => html`<p key=${each} class="note">${each}</p>`)}
    <div class="grid-box" tabindex="0" role="region" aria-label="What it needs"><table>
      <thead><tr><th scope="col">Kind</th><th scope="col" class="number">RU/s</th><th scope="col" class="number">Partitions</th><th scope="col" class="number">RU/s a partition</th><th scope="col" class="number">Stored in each</th><th scope="col" class="number">Throughput</th><th scope="col" class="number">Storage</th><th scope="col" class="number">A month</th></tr></thead>
      <tbody>${KINDS.map(([kind, label]) => html`<${Requirement} key=${kind} kind=${kind} label=${label} need=${required[kind]} currency=${currency} />`)}</tbody></table></div>
    <p class="small">${pricesSentence(breakEven.prices)} Autoscale costs less than manual while its hours are billed below ${percent(breakEven.autoscaleBelowMeanOfPeaks)} of the maximum on average${breakEven.serverlessBelowUse !== undefined ? html`; serverless below ${charge(breakEven.serverlessBelowUse * 100)} % use` : ""}.</p>
    <dl class="facts">
      ${provisioned && html`<dt>Provisioned</dt><dd data-test="provisioned">${count(provisioned.throughputRu)} RU/s on ${plural(provisioned.partitions, "partition")}: the busiest uses ${percent(provisioned.normalizedRu)} of its ${rate(provisioned.ruPerPartition)} RU/s; ${percent(provisioned.refusedShare.value)} of all is refused (429)${provisioned.monthly ? html`; ${money(provisioned.monthly.total, currency)} a month` : ""}</dd>`}
      <dt>At the peak</dt><dd>${rate(peak.totalRu)} RU/s; the busiest partition has ${charge(peak.hottestOfFair)} times its fair share${peak.fanOut !== null ? html`; a query visits ${charge(peak.fanOut)} of ${plural(peak.partitions, "partition")}` : ""}</dd>
      <dt>Stored</dt><dd>${bytes(storage.bytes)}, ${bytes(storage.growthBytesPerDay)} more a day; the least throughput for it is ${count(storage.minimumRu.manual)} RU/s (autoscale ${count(storage.minimumRu.autoscale)})</dd>
      <dt>Largest key</dt><dd data-test="largest-key">${keys.largestKey} with ${percent(keys.largestShare)}: ${bytes(keys.largestBytes)} of ${limit}; ${keys.fullOnDay === null ? `${limit} are not reached` : html`<strong>full on day ${count(keys.fullOnDay, 1)}</strong>`}</dd>
      <dt>Keys</dt><dd>${count(keys.count)}, as uneven as ${count(keys.effectiveKeys, 1)} of equal weight</dd>
    </dl>
    <details><summary>Charges</summary><table><thead><tr><th scope="col">Request</th><th scope="col" class="number">A second</th><th scope="col" class="number">RU each</th><th scope="col" class="number">Partitions</th><th scope="col" class="number">RU/s</th></tr></thead>
      <tbody>${found.operations.map((/** @type {any} */ each, /** @type {number} */ at) => html`<tr key=${at}><td>${each.kind}${each.filter.length > 0 ? ` by ${each.filter.join(", ")}` : ""}</td><td class="number">${rate(each.rate)}</td><td class="number">${charge(each.chargeRu)}</td><td class="number">${count(each.partitions, 1)}</td><td class="number">${rate(each.ruPerSecond)}</td></tr>`)}</tbody></table></details>
    <details><summary>What was assumed</summary><ul>${found.assumptions.map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}</ul></details>
  </section>`;
}

/** @param {{kind: string, label: string, need: any, currency: string}} props */
function Requirement({ kind, label, need, currency }) {
  if (!need || need.isPossible === false) return html`<tr data-kind=${kind}><th scope="row">${label}</th><td colspan="7">${need ? `too small: the hottest partition needs ${rate(need.hottestRu)} of ${rate(need.budgetRu)} RU/s` : "none is enough"}</td></tr>`;
  const isServerless = kind === "serverless";
  return html`<tr data-kind=${kind}><th scope="row">${label}</th><td class="number">${isServerless ? `${count(need.millionRuPerMonth)} million RU` : count(need.throughputRu)}</td><td class="number">${count(need.partitions)}</td>
    <td class="number">${isServerless ? `up to ${count(need.budgetRu)}` : rate(need.ruPerPartition)}</td><td class="number">${bytes(need.bytesPerPartition)}</td><td class="number">${money(need.monthly.throughput, currency)}</td><td class="number">${money(need.monthly.storage, currency)}</td><td class="number">${money(need.monthly.total, currency)}</td></tr>`;
}

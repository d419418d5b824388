// Throughput: what is provisioned and used, what was refused, minute by minute; and what another throughput would do,
// before it is applied.

import { html, useMemo } from "../../vendor/core.js";
import { choose, route, viewPath } from "../../data/address.js";
import { BASE, containerPath, reading, session } from "../../data/client.js";
import { findContainer } from "../../data/resources.js";
import { lastSeconds } from "../../data/time-spans.js";
import { live, watchName } from "../../data/watch.js";
import { charge, count, percent, plural, rate, ratio } from "../../text/numbers.js";
import { Chart } from "../../widgets/chart.js";
import { Grid } from "../../widgets/grid.js";
import { Choice, Stale, useData, useEvery } from "../../widgets/parts.js";
import { inOrder } from "./partitions.js";
import { Mode, Scaling } from "./scaling.js";

const SPANS = [["3600", "1 h"], ["21600", "6 h"], ["345600", "4 d"]];
const REFRESH_MS = 10_000;

/** @param {{database: string, container: string}} props */
export default function Throughput({ database, container }) {
  const { params } = route.value;
  const span = params.get("last") ?? "3600";
  const path = containerPath(database, container);
  const about = findContainer(database, container);
  const state = useData(async (signal) => {
    const window = await lastSeconds(Number(span), signal);
    return reading(`${path}/history?${window}`)(signal);
  }, [database, container, span]);
  useEvery(state.refresh, REFRESH_MS);
  const found = live.value[watchName(database, container)];
  const offer = about?.throughput;
  return html`
    ${offer ? html`<dl class="facts" data-test="offer"><dt>Provisioned</dt><dd>${count(offer.ru)} RU/s${offer.autoscale ? " at most (autoscale)" : ""}${offer.sharedByDatabase ? ", shared by the database" : ""}</dd>
      <dt>Now</dt><dd>${count(offer.currentRu)} RU/s; billed this hour: ${count(offer.billedRu)} RU/s; minimum ${count(offer.minimumRu)} RU/s${offer.pending ? "; splits for it are under way" : ""}</dd></dl>`
      : html`<p>No throughput is provisioned for this container.</p>`}
    ${about && !session.value.readOnly && html`<div class="columns">${offer && !offer.sharedByDatabase && html`<${Scaling} path=${path} about=${about} />`}<${Mode} path=${path} about=${about} /></div>`}
    <p class="tools"><${Choice} label="Time" value=${span} onChange=${(/** @type {string} */ value) => choose({ last: value })} options=${SPANS} /></p>
    <${Stale} state=${state} />
    ${state.data && html`<${Charts} history=${state.data} />`}
    ${found && html`<${ByPartition} partitions=${inOrder(found.partitions.values())} />`}`;
}

/** @param {{history: any}} props */
function Charts({ history }) {
  const step = history.step ?? 60;
  const series = useMemo(() => ({
    load: [{ label: "Spent RU/s", values: perStep(history.ru, step) }, { label: "Provisioned", values: history.provisionedRu ?? [] }, { label: "Billed", values: history.billedRu ?? [] }, { label: "Of no key", values: perStep(history.keylessRu, step) }],
    normalized: [{ label: "Maximum over partitions", values: history.normalizedMax ?? [] }, { label: "Median", values: history.normalizedMedian ?? [] }],
    refused: [{ label: "429", values: history.refused ?? [] }, { label: "Would be 429", values: history.wouldBeRefused ?? [] }, { label: "Key full (403/1014)", values: history.full ?? [] }],
  }), [history]);
  const isQuiet = !(history.requests ?? []).some((/** @type {any} */ each) => each > 0);
  return html`${isQuiet ? html`<p class="empty">Nothing was asked in this time.</p>` : html`<${Spent} history=${history} />`}
    <${Chart} title="Request units a second" times=${history.times} series=${series.load} text=${rate} />
    <${Chart} title="Spent of the partitions' own shares" times=${history.times} series=${series.normalized} text=${percent} />
    <${Chart} title=${`Refused in each ${step} s`} times=${history.times} series=${series.refused} isCount=${true} />`;
}

/** @param {(number | null)[] | undefined} values @param {number} seconds */
const perStep = (values, seconds) => (values ?? []).map((value) => (value === null ? null : value / seconds));

/** Where the budget went: to keys, and to requests that name none. @param {{history: any}} props */
function Spent({ history }) {
  const { database = "", container = "" } = route.value;
  const sum = (/** @type {(number | null)[]} */ values) => (values ?? []).reduce((/** @type {number} */ total, value) => total + (value ?? 0), 0);
  const all = sum(history.ru);
  const keyless = sum(history.keylessRu);
  return html`<p data-test="spent-on">${charge(all)} RU in this time: ${percent(ratio(all - keyless, all))} for single keys (<a href=${BASE + viewPath(database, container, "partitions")}>the busiest</a>), ${percent(ratio(keyless, all))} for requests that name no key, such as queries over all partitions.</p>`;
}

/** @param {{partitions: import("../../data/shapes.js").Partition[]}} props */
function ByPartition({ partitions }) {
  const { params } = route.value;
  const worst = partitions.reduce((a, b) => Math.max(a, ratio(b.refused + b.wouldBeRefused, b.requests) ?? 0), 0);
  return html`<h2>By partition, since the server started</h2>
    <p>The worst partition refused, or would have refused, ${percent(worst)} of its requests (of ${plural(partitions.length, "partition")}). Up to 1 % is fine, 5 % needs care.</p>
    <${Grid} label="refusals by partition" rows=${partitions} sort=${params.get("sort") ?? ""} onSort=${(/** @type {string} */ sort) => choose({ sort })} columns=${[
      { id: "id", label: "Partition", value: (/** @type {any} */ row) => row.id, number: true },
      { id: "requests", label: "Requests", value: (/** @type {any} */ row) => row.requests, text: (/** @type {any} */ row) => count(row.requests), number: true },
      { id: "spent", label: "RU/s", value: (/** @type {any} */ row) => row.spentRu, text: (/** @type {any} */ row) => charge(row.spentRu), number: true },
      { id: "load", label: "Of its share", value: (/** @type {any} */ row) => ratio(row.spentRu, row.budgetRu), text: (/** @type {any} */ row) => percent(ratio(row.spentRu, row.budgetRu)), number: true },
      { id: "refused", label: "429", value: (/** @type {any} */ row) => row.refused, text: (/** @type {any} */ row) => count(row.refused), number: true },
      { id: "would", label: "Would be 429", value: (/** @type {any} */ row) => row.wouldBeRefused, text: (/** @type {any} */ row) => count(row.wouldBeRefused), number: true },
      { id: "full", label: "Key full", value: (/** @type {any} */ row) => row.full, text: (/** @type {any} */ row) => count(row.full), number: true },
    ]} />`;
}

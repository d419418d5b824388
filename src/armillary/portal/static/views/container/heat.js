// Load by hash range and time: which ranges were hot, when, and what was split. The measure, the times and the scale are
// in the address.

import { html, useEffect, useRef, useState } from "../../vendor/core.js";
import { choose, route } from "../../data/address.js";
import { containerPath, reading } from "../../data/client.js";
import { lastSeconds } from "../../data/time-spans.js";
import { live, watchName } from "../../data/watch.js";
import { shortBound } from "../../text/hashes.js";
import { bytes, charge, count, dated, percent, ratio } from "../../text/numbers.js";
import { Grid } from "../../widgets/grid.js";
import { HeatCanvas, HeatScale, decoded, isGap } from "../../widgets/heat-canvas.js";
import { Choice, Copy, Stale, speak, useData, useEvery } from "../../widgets/parts.js";
import { keyText } from "./top-keys.js";

const METRICS = [["ru", "RU"], ["requests", "Requests"], ["refused", "429"], ["wouldBeRefused", "Would be 429"], ["full", "Key full"], ["bytes", "Bytes"], ["normalized", "Of its share"]];
const SPANS = [["600", "10 min"], ["3600", "1 h"], ["21600", "6 h"], ["345600", "4 d"], ["2419200", "28 d"]];
const REFRESH_MS = 5000;

/** @param {string} metric @param {number} value */
const shown = (metric, value) => (metric === "bytes" ? bytes(value) : metric === "normalized" ? percent(value) : metric === "ru" ? `${charge(value)} RU` : count(value));

/** @param {{database: string, container: string}} props */
export default function Heat({ database, container }) {
  const { params } = route.value;
  const metric = params.get("metric") ?? "ru";
  const span = params.get("last") ?? "600";
  const from = params.get("from");
  const to = params.get("to");
  const isLogarithmic = params.get("scale") === "log";
  const brightness = Number(params.get("bright") ?? 1);
  const path = containerPath(database, container);
  const state = useData(async (signal) => {
    const dragged = `from=${Math.floor(Number(from))}${to ? `&to=${Math.ceil(Number(to))}` : ""}`;
    const window = from ? dragged : await lastSeconds(Number(span), signal);
    return decoded(await reading(`${path}/heat?metric=${metric}&${window}`)(signal));
  }, [database, container, metric, span, from, to]);
  useEvery(() => !from && state.refresh(), REFRESH_MS);
  const [cursor, setCursor] = useState(/** @type {any} */ (null));
  const [pinned, setPinned] = useState(/** @type {any} */ (null));
  const isTable = params.get("as") === "table";
  const hovered = useRef(/** @type {any} */ (null));
  const [hoverText, setHoverText] = useState("");
  const data = state.data;
  const zoomOut = () => choose({ from: null, to: null }, true);
  const told = (/** @type {any} */ cell) => (data && cell ? cellSentence(data, cell, metric, live.value[watchName(database, container)]) : "");
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (!data) return;
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [16, 0], PageUp: [-16, 0], Home: [0, -data.columns], End: [0, data.columns] };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (step) {
      const now = cursor ?? { row: 0, column: data.columns };
      const cell = { row: Math.max(0, Math.min(data.rows - 1, now.row + step[0])), column: Math.max(0, Math.min(data.columns - 1, now.column + step[1])) };
      setCursor(cell);
      speak(told(cell), true);
    } else if (event.key === "Enter" && cursor) setPinned(cursor);
    else if (event.key === "Backspace") zoomOut();
    else if (event.key === "Escape") (setPinned(null), setCursor(null));
    else return;
    event.preventDefault();
  };
  useEffect(() => setPinned(null), [metric, from, to, span]);
  const isEmpty = data && data.max === 0;
  return html`
    <div class="tools">
      <${Choice} label="Measure" value=${metric} onChange=${(/** @type {string} */ value) => choose({ metric: value === "ru" ? null : value })} options=${METRICS} />
      <${Choice} label="Time" value=${from ? "" : span} onChange=${(/** @type {string} */ value) => choose({ last: value, from: null, to: null }, true)} options=${SPANS} />
      ${from && html`<button type="button" class="quiet" onClick=${zoomOut}>Zoom out</button>`}
    </div>
    <div class="tools">
      <${Choice} label="Scale" value=${isLogarithmic ? "log" : "linear"} onChange=${(/** @type {string} */ value) => choose({ scale: value === "log" ? "log" : null })} options=${[["linear", "Linear"], ["log", "Logarithmic"]]} />
      <label class="check">Brightness <input type="range" min="1" max="20" step="0.5" value=${brightness} onInput=${(/** @type {any} */ event) => choose({ bright: event.currentTarget.value })} /></label>
      <label class="check"><input type="checkbox" checked=${isTable} onChange=${(/** @type {any} */ event) => choose({ as: event.currentTarget.checked ? "table" : null })} /> As a table</label>
      ${data && data.max > 0 && html`<${HeatScale} isLogarithmic=${isLogarithmic} from="0" to=${`${shown(metric, data.max / brightness)}${brightness > 1 ? " and more" : ""}`} />`}
    </div>
    <${Stale} state=${state} />
    ${data && html`<${Findings} findings=${data.findings} />
      ${isEmpty && data.gaps.length === 0 && html`<p class="empty">Nothing was asked in this time.</p>`}
      ${isTable ? html`<${Hottest} data=${data} metric=${metric} />` : html`<${HeatCanvas} data=${data} label=${mapSentence(data, metric)} isLogarithmic=${isLogarithmic} brightness=${brightness} cursor=${cursor} pinned=${pinned}
        onMove=${(/** @type {any} */ cell) => { hovered.current = cell; setHoverText(told(cell)); }} onPin=${setPinned} onZoom=${(/** @type {number} */ a, /** @type {number} */ b) => b > a && choose({ from: a, to: b }, true)} onKey=${onKey} />`}
      <p class="small" data-test="hover">${hoverText || told(cursor) || "Time to the right, hashes downwards. Hover or use the arrow keys for values; Enter or a click pins; drag zooms; Backspace zooms out. Hatched: the server did not run."}</p>
      ${pinned && html`<${Pinned} database=${database} container=${container} text=${told(pinned)} partition=${partitionOf(data, pinned, live.value[watchName(database, container)])} />`}
      <p class="small">${data.total !== null && data.total !== undefined ? `${shown(metric, data.total)} in all` : ""}${data.keyless ? `, of which ${shown(metric, data.keyless)} belong to no key (queries over all keys)` : ""}.</p>`}`;
}

/** @param {{findings: {kind: string, text: string}[]}} props */
const Findings = ({ findings }) => (findings?.length > 0 ? html`<ul data-test="findings">${findings.map((each, at) => html`<li key=${at}>${each.text}</li>`)}</ul>` : null);

/** @param {any} data @param {number} time */
const timeOf = (data, time) => dated(time, data.times[data.columns] - data.times[0]);

/** @param {any} data @param {string} metric */
function mapSentence(data, metric) {
  const label = METRICS.find(([id]) => id === metric)?.[1] ?? metric;
  const gaps = data.gaps.map((/** @type {[number, number]} */ [from, to]) => `The server did not run from ${timeOf(data, from)} to ${timeOf(data, to)}. `).join("");
  const splits = data.splits.map((/** @type {any} */ each) => `${each.parents.length > 1 ? "Merge" : "Split"} of ${each.parents.join(" and ")} at ${timeOf(data, each.time)}. `).join("");
  return `Heat map of ${label} by hash range and time, from ${timeOf(data, data.times[0])} to ${timeOf(data, data.times[data.columns])}. The highest cell has ${shown(metric, data.max)}. ${gaps}${splits}${(data.findings ?? []).map((/** @type {any} */ each) => each.text).join(" ")}`;
}

/** @param {any} data @param {{row: number}} cell @param {any} found */
function partitionOf(data, cell, found) {
  const low = data.bounds[cell.row];
  const all = [...(found?.partitions.values() ?? [])];
  return all.find((each) => (each.low || "00") <= low && low < each.high) ?? null;
}

/** @param {any} data @param {{row: number, column: number}} cell @param {string} metric @param {any} found */
function cellSentence(data, cell, metric, found) {
  const value = data.cells[cell.row * data.columns + cell.column];
  let sum = 0;
  for (let row = 0; row < data.rows; row += 1) sum += data.cells[row * data.columns + cell.column];
  const partition = partitionOf(data, cell, found);
  const range = `${shortBound(data.bounds[cell.row])}–${shortBound(data.bounds[cell.row + 1])}`;
  const share = metric === "normalized" || sum === 0 ? "" : `, ${percent(ratio(value, sum))} of its time`;
  const figure = isGap(data, cell.column) && value === 0 ? "not known, the server did not run" : `${shown(metric, value)}${share}`;
  return `${timeOf(data, data.times[cell.column])}, hashes ${range}${partition ? `, partition ${partition.id}` : ""}: ${figure}`;
}

/** @param {{database: string, container: string, text: string, partition: any}} props */
function Pinned({ database, container, text, partition }) {
  const state = useData(reading(`${containerPath(database, container)}/keys?top=100`), [database, container, partition?.id]);
  const keys = (state.data?.busiestKeys ?? []).filter((/** @type {any} */ each) => each.partition === partition?.id).slice(0, 5);
  return html`<div class="panel" data-test="pinned"><p>${text} <${Copy} text=${text} what="the cell" /></p>
    ${partition && html`<p>Busiest keys of partition ${partition.id} now: ${keys.map((/** @type {any} */ each) => `${keyText(each.key)} (${charge(each.chargedRu)} RU)`).join(", ") || "none"}</p>`}</div>`;
}

/** @param {{data: any, metric: string}} props */
function Hottest({ data, metric }) {
  const rows = [...data.cells]
    .map((value, at) => ({ id: at, value, row: Math.floor(at / data.columns), column: at % data.columns }))
    .filter((each) => each.value > 0)
    .sort((a, b) => b.value - a.value)
    .slice(0, 50);
  return html`<${Grid} label="hottest cells" rows=${rows} empty="Nothing was asked in this time." columns=${[
    { id: "time", label: "Time", value: (/** @type {any} */ row) => data.times[row.column], text: (/** @type {any} */ row) => timeOf(data, data.times[row.column]) },
    { id: "range", label: "Hashes", value: (/** @type {any} */ row) => data.bounds[row.row], text: (/** @type {any} */ row) => `${shortBound(data.bounds[row.row])}–${shortBound(data.bounds[row.row + 1])}` },
    { id: "value", label: "Value", value: (/** @type {any} */ row) => row.value, text: (/** @type {any} */ row) => shown(metric, row.value), number: true },
  ]} />`;
}

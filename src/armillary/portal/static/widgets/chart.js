// A chart of series over time, or over days of a simulation, drawn by uPlot, which is loaded when the first chart is
// shown; or the same as a table.

import { html, useEffect, useRef, useState } from "../vendor/core.js";
import { UNKNOWN, axisTime, count, dated, markTexts } from "../text/numbers.js";
import { SERIES, themed } from "./colours.js";
import { Grid } from "./grid.js";

const COUNT_STEPS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

/** @type {Promise<typeof import("../vendor/plot.js")> | null} */
let library = null;

function loadLibrary() {
  if (!library) {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = new URL("../vendor/plot.css", import.meta.url).href;
    document.head.append(sheet);
    library = import("../vendor/plot.js");
  }
  return library;
}

/** Values between two that are not known: no line leads to them. @param {(number | null)[]} values */
export function lone(values) {
  const found = [];
  values.forEach((value, at) => {
    if (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null) found.push(at);
  });
  return found.length > 0 ? found : null;
}

/** @param {HTMLElement} box */
const widthOf = (box) => Math.max(200, box.clientWidth);

/**
 * @param {{title: string, times: number[], series: {label: string, values: (number | null)[], dash?: number[]}[], unit?: string, height?: number, text?: (value: number | null) => string, across?: string, isCount?: boolean}} props
 * `across`: what `times` are if not moments, such as "Day". `isCount`: there are no values between 0 and 1.
 */
export function Chart({ title, times, series, unit = "", height = 180, text = (value) => count(value), across = "", isCount = false }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [isTable, setTable] = useState(false);
  const span = times.length > 0 ? times[times.length - 1] - times[0] : 0;
  const highest = series.map((each) => `${each.label} at most ${text(Math.max(0, ...each.values.map((value) => value ?? 0)))}${unit}`).join(", ");
  useEffect(() => {
    if (isTable) return;
    /** @type {any} */ let plot = null;
    let isGone = false;
    const redraw = async () => {
      const { uPlot } = await loadLibrary();
      if (isGone || !box.current) return;
      plot?.destroy();
      const axis = { stroke: themed("soft"), grid: { stroke: themed("line"), width: 1 }, ticks: { stroke: themed("line") } };
      plot = new uPlot(
        {
          width: widthOf(box.current), height,
          series: [{ label: across || "Time", value: (/** @type {any} */ _, /** @type {number | null} */ value) => (value === null ? UNKNOWN : across ? count(value, 1) : dated(value, span)) }, ...series.map((each, at) => ({ label: each.label, stroke: SERIES[at % SERIES.length], width: 1.5, dash: each.dash ?? (at === 0 ? undefined : [4 + 2 * at, 3]), value: (/** @type {any} */ _, /** @type {any} */ value) => text(value), points: { show: times.length < 20, filter: () => (times.length < 20 ? null : lone(each.values)) } }))],
          axes: [across ? axis : { ...axis, values: (/** @type {any} */ _, /** @type {number[]} */ marks, /** @type {any} */ __, /** @type {any} */ ___, /** @type {number} */ apart) => marks.map((each) => axisTime(each, apart)) }, { ...axis, size: 70, values: (/** @type {any} */ _, /** @type {number[]} */ values) => markTexts(values, text), incrs: isCount ? COUNT_STEPS : undefined }],
          scales: { x: { time: !across }, y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [Math.min(0, low ?? 0), Math.max(isCount ? 4 : 1e-6, (high ?? 1) * 1.05)] } },
        },
        [times, ...series.map((each) => each.values)],
        box.current,
      );
    };
    void redraw();
    const observer = new MutationObserver(redraw);
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-scheme"] });
    const size = new ResizeObserver(() => box.current && plot?.setSize({ width: widthOf(box.current), height }));
    if (box.current) size.observe(box.current);
    return () => {
      isGone = true;
      size.disconnect();
      observer.disconnect();
      plot?.destroy();
    };
  }, [times, series, isTable]);
  const rows = times.map((time, at) => ({ id: time, at }));
  const columns = [
    { id: "time", label: across || "Time", value: (/** @type {any} */ row) => row.id, text: (/** @type {any} */ row) => (across ? count(row.id, 1) : dated(row.id, span)) },
    ...series.map((each) => ({ id: each.label, label: each.label, number: true, value: (/** @type {any} */ row) => each.values[row.at], text: (/** @type {any} */ row) => text(each.values[row.at]) })),
  ];
  return html`<section><h3>${title}</h3>
    <label class="check small"><input type="checkbox" checked=${isTable} onChange=${(/** @type {any} */ event) => setTable(event.currentTarget.checked)} /> As a table</label>
    ${isTable ? html`<${Grid} label=${title} columns=${columns} rows=${rows} height=${240} />` : html`<div ref=${box} role="img" aria-label=${`${title}: ${highest}.`}></div>`}</section>`;
}

// Bars of a figure by partition, and the curve of how evenly keys share the bytes (Lorenz).

import { html, useRef } from "../vendor/core.js";
import { bytes, count, percent, rate, ratio } from "../text/numbers.js";
import { prepared, themed, useDrawing } from "./colours.js";

const SHOWN = 32;
const TEXTS = { bytes, spentRu: rate, requests: count };

/** @param {{partitions: any[], measure: string, label: string}} props */
export function PartitionBars({ partitions, measure, label }) {
  const text = TEXTS[/** @type {keyof typeof TEXTS} */ (measure)] ?? count;
  const most = Math.max(...partitions.map((each) => each[measure] ?? 0), 0);
  const sum = partitions.reduce((total, each) => total + (each[measure] ?? 0), 0);
  const largest = [...partitions].sort((a, b) => b[measure] - a[measure]).slice(0, SHOWN);
  const shown = partitions.length > SHOWN ? largest : partitions;
  return html`<table class="wrap" aria-label=${`${label}: ${measure} by partition`}><thead><tr><th scope="col">Partition</th><th scope="col">Share</th><th scope="col" class="number">Value</th></tr></thead>
    <tbody>${shown.map((each) => html`<tr key=${each.id}><td>${each.id}</td>
      <td><span class="bar"><span class="track" aria-hidden="true"><span style=${{ width: `${(ratio(each[measure], most) ?? 0) * 100}%` }}></span></span><span>${percent(ratio(each[measure], sum))}</span></span></td>
      <td class="number">${text(each[measure])}</td></tr>`)}</tbody></table>
    ${partitions.length > SHOWN && html`<p class="small">The ${SHOWN} highest of ${count(partitions.length)}.</p>`}`;
}

/** @param {{sizes: number[], label: string}} props */
export function Lorenz({ sizes, label }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const sorted = [...sizes].sort((a, b) => b - a);
  const sum = sorted.reduce((total, each) => total + each, 0);
  useDrawing(ref, () => {
    if (!ref.current || sum === 0) return;
    const { context, width, height } = prepared(ref.current);
    const x = (/** @type {number} */ share) => 4 + share * (width - 8);
    const y = (/** @type {number} */ share) => height - 4 - share * (height - 8);
    context.strokeStyle = themed("edge");
    context.setLineDash([4, 4]);
    context.beginPath();
    context.moveTo(x(0), y(0));
    context.lineTo(x(1), y(1));
    context.stroke();
    context.setLineDash([]);
    context.strokeStyle = themed("accent");
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x(0), y(0));
    let held = 0;
    sorted.forEach((each, at) => {
      held += each;
      context.lineTo(x((at + 1) / sorted.length), y(held / sum));
    });
    context.stroke();
    context.fillStyle = themed("soft");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.fillText("↑ share of the bytes", width - 6, height - 24); // below the curve, which is never under the diagonal
    context.fillText("→ keys, the largest first", width - 6, height - 8);
  });
  if (sum === 0) return html`<p class="empty">No keys: nothing is stored.</p>`;
  const tenth = sorted.slice(0, Math.ceil(sorted.length / 10)).reduce((total, each) => total + each, 0);
  const text = `The largest tenth of ${count(sorted.length)} keys holds ${percent(tenth / sum)} of their bytes; evenly it would be ${percent(Math.ceil(sorted.length / 10) / sorted.length)}.`;
  return html`<canvas ref=${ref} class="curve" role="img" aria-label=${`${label}: ${text}`}></canvas><p class="small">${text}</p>`;
}

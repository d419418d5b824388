// Splits and merges as they happen: the points that have been passed, what clients see at this one, and the controls
// that stop them at points, step them on, and take them back.

import { html } from "../../vendor/core.js";
import { containerPath, control, session } from "../../data/client.js";
import { choosePause, readTesting, testing } from "../../data/resources.js";
import { boundAt, isDivisible, shareAt } from "../../text/hashes.js";
import { count, percent } from "../../text/numbers.js";
import { useInTurn } from "../../widgets/asking.js";
import { Failure } from "../../widgets/parts.js";

/** The points in order, with what clients see at each (docs/partitioning.md). */
export const POINTS = [
  ["begun", "Clients see nothing: the children have no items."],
  ["copying", "Clients see nothing: the parent serves while its items are copied."],
  ["copied", "Clients see nothing: the parent serves."],
  ["caught up", "Clients see nothing: what was written meanwhile has followed."],
  ["held", "Writes to this partition wait; reads go on."],
  ["switched", "Requests that name the parent's range get 410 with sub-status 1002, and SDKs read the ranges again."],
];

/**
 * @param {{database: string, container: string, reshapes: import("../../data/shapes.js").Reshape[],
 *   partitions: import("../../data/shapes.js").Partition[], chosen: number | null, boundary: string, onBoundary: (boundary: string) => void}} props
 */
export function Reshapes({ database, container, reshapes, partitions, chosen, boundary, onBoundary }) {
  const { act: inTurn, error } = useInTurn();
  const { readOnly } = session.value;
  const path = containerPath(database, container);
  const act = (/** @type {() => Promise<any>} */ action) => inTurn(() => action().then(readTesting));
  return html`<section aria-label="Splits and merges">
    ${!readOnly && html`<${Begin} path=${path} partitions=${partitions} chosen=${chosen} act=${act} boundary=${boundary} onBoundary=${onBoundary} />`}
    <${Failure} error=${error} />
    ${reshapes.map((each) => html`<${Progress} key=${each.number} reshape=${each} path=${path} act=${act} readOnly=${readOnly} />`)}
  </section>`;
}

/** @param {{path: string, partitions: import("../../data/shapes.js").Partition[], chosen: number | null, act: (action: () => Promise<any>) => void, boundary: string, onBoundary: (boundary: string) => void}} props */
function Begin({ path, partitions, chosen, act, boundary, onBoundary }) {
  const { pauses } = testing.value;
  const at = partitions.findIndex((each) => each.id === chosen);
  const target = at >= 0 ? partitions[at] : null;
  const neighbour = target && (partitions[at + 1] ?? partitions[at - 1]);
  const toggle = (/** @type {string} */ point, /** @type {boolean} */ isOn) => act(choosePause(point, isOn));
  const split = () => act(() => control("POST", `${path}/split`, { ...(target ? { partition: target.id } : {}), ...(boundary ? { boundary } : {}) }));
  const merge = () => target && neighbour && act(() => control("POST", `${path}/merge`, { partitions: [target.id, neighbour.id].sort((a, b) => partitions.findIndex((p) => p.id === a) - partitions.findIndex((p) => p.id === b)) }));
  return html`<div class="panel">
    <div class="tools">
      <button type="button" onClick=${split}>${target ? (boundary ? "Split here" : `Split partition ${target.id}`) : "Split the largest"}</button>
      ${target && html`<label class="check">at <input size="14" class="code" value=${boundary} placeholder="half of the bytes" aria-label="Boundary, an effective key in hex" onInput=${(/** @type {any} */ event) => onBoundary(event.currentTarget.value.trim())} /></label>`}
      ${target && isDivisible(target) && html`<${Place} target=${target} boundary=${boundary} onBoundary=${onBoundary} />`}
      ${target && neighbour && html`<button type="button" class="quiet" onClick=${merge}>Merge with ${neighbour.id}</button>`}
      ${!target && html`<span class="small">Choose a partition in the strip or the table to split or merge that one.</span>`}
    </div>
    <fieldset class="tools"><legend class="small">Stop every split and merge at</legend>
      ${POINTS.map(([point]) => html`<label key=${point} class="check"><input type="checkbox" name=${`stop-${point}`} checked=${pauses.includes(point)}
        onChange=${(/** @type {any} */ event) => toggle(point, event.currentTarget.checked)} /> ${point}</label>`)}
    </fieldset>
  </div>`;
}

/** The boundary as a share of the partition's hashes: what dragging in the strip does, with keys. @param {{target: import("../../data/shapes.js").Partition, boundary: string, onBoundary: (boundary: string) => void}} props */
function Place({ target, boundary, onBoundary }) {
  const share = boundary ? shareAt(target, boundary) : null;
  const text = share === null ? "half of the bytes" : `${(share * 100).toFixed(1)} % of its hashes`;
  return html`<label class="check">or drag in the strip <input type="range" min="0.1" max="99.9" step="0.1" aria-label="Place of the boundary" aria-valuetext=${text} value=${(share ?? 0.5) * 100}
    onInput=${(/** @type {any} */ event) => onBoundary(boundAt(target, Number(event.currentTarget.value) / 100))} /></label>
    <span class="small" data-test="boundary">at ${text}</span>
    ${boundary && html`<button type="button" class="quiet" onClick=${() => onBoundary("")}>At half of the bytes</button>`}`;
}

/** @param {{reshape: import("../../data/shapes.js").Reshape, path: string, act: (action: () => Promise<any>) => void, readOnly: boolean}} props */
function Progress({ reshape, path, act, readOnly }) {
  const now = POINTS.findIndex(([point]) => point === reshape.point);
  const share = reshape.itemsTotal > 0 ? reshape.itemsCopied / reshape.itemsTotal : null;
  const which = reshape.kind === "split" ? `Split of partition ${reshape.partitions.join(", ")}` : `Merge of partitions ${reshape.partitions.join(" and ")}`;
  return html`<div class="panel" data-reshape=${reshape.number} data-point=${reshape.point}>
    <h3>${which}${reshape.reason ? ` (${reshape.reason})` : ""}</h3>
    <ol class="points">${POINTS.map(([point], index) => html`<li key=${point} class=${index < now ? "done" : ""} aria-current=${index === now ? "step" : undefined}>${index < now ? "✓ " : ""}${point}</li>`)}</ol>
    <p>${now >= 0 ? POINTS[now][1] : ""} ${reshape.waitsFor ? `It waits for ${reshape.waitsFor}.` : ""}</p>
    <p class="small">${count(reshape.itemsCopied)} of ${count(reshape.itemsTotal)} items copied (${percent(share)}), ${count(reshape.changesApplied)} changes followed.</p>
    ${!readOnly && html`<p class="tools">
      ${reshape.paused && html`<button type="button" onClick=${() => act(() => control("POST", `${path}/reshapes/${reshape.number}/advance`))}>Step</button>`}
      ${now < POINTS.length - 1 && html`<button type="button" class="quiet" onClick=${() => act(() => control("DELETE", `${path}/reshapes/${reshape.number}`))}>Take back</button>`}
      ${reshape.paused && html`<span class="warn">stopped here</span>`}
    </p>`}
  </div>`;
}

// The space of hashes as a strip, a segment a partition: its width is its share of the hashes, the height of its
// filling the share of its storage limit, its colour the request units that it spends of its budget. While a partition
// is split, its segment is parted at the boundary and the parts fill as items are copied. A ring shows the same.

import { html, useRef } from "../vendor/core.js";
import { place, stretches } from "../text/hashes.js";
import { bytes, percent, plural, ratio } from "../text/numbers.js";
import { hatch, heatText, inkOn, prepared, themed, useDrawing } from "./colours.js";

const FILLED = "#ffffff55";
const FILLED_OPACITY = 1 / 3;

/**
 * @typedef {import("../data/shapes.js").Partition} Partition
 * @typedef {import("../data/shapes.js").Reshape} Reshape
 * @typedef {{partition: Partition, from: number, to: number, load: number | null, filled: number | null, reshape?: Reshape}} Segment
 */

/** @param {Partition[]} partitions @param {Reshape[]} reshapes @param {number | undefined} limitBytes @returns {Segment[]} */
function segmentsOf(partitions, reshapes, limitBytes) {
  const places = stretches(partitions);
  return partitions.map((partition, index) => ({
    partition,
    ...places[index],
    load: ratio(partition.spentRu, partition.budgetRu),
    filled: ratio(partition.bytes, limitBytes),
    reshape: reshapes.find((each) => each.partitions.includes(partition.id)),
  }));
}

/** What the strip shows, as a sentence. @param {Segment[]} segments */
function sentenceOf(segments) {
  if (segments.length === 0) return "No partitions";
  const busiest = segments.reduce((a, b) => ((b.load ?? -1) > (a.load ?? -1) ? b : a));
  const largest = segments.reduce((a, b) => (b.partition.bytes > a.partition.bytes ? b : a));
  const splitting = segments.filter((each) => each.reshape).length;
  return `${plural(segments.length, "partition")}. The busiest is ${busiest.partition.id}, at ${percent(busiest.load)} of its budget; the largest is ${largest.partition.id}, with ${bytes(largest.partition.bytes)}.${splitting ? ` ${plural(splitting, "is", "are")} being split or merged.` : ""}`;
}

/**
 * @param {{partitions: Partition[], reshapes: Reshape[], limitBytes?: number, chosen?: number | null, onChoose?: (id: number) => void, form?: string, label?: string, sentence?: string, mark?: number | null, onMark?: (share: number) => void}} props
 * `partitions` are in the order of their ranges. `mark` is a place in the chosen one, from 0 to 1, which can be dragged
 * in the strip if there is `onMark`.
 */
export function Strip({ partitions, reshapes, limitBytes, chosen = null, onChoose, form = "strip", label = "Partitions", sentence, mark = null, onMark }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const segments = segmentsOf(partitions, reshapes, limitBytes);
  const draw = () => {
    if (!ref.current) return;
    if (form === "ring") drawRing(ref.current, segments, chosen);
    else drawStrip(ref.current, segments, chosen, mark);
  };
  const drag = useRef({ isDown: false, isMoved: false });
  const shareOf = (/** @type {PointerEvent} */ event) => {
    const segment = segments.find((each) => each.partition.id === chosen);
    if (!segment || !ref.current || !onMark || form !== "strip") return null;
    return (event.offsetX / ref.current.clientWidth - segment.from) / (segment.to - segment.from);
  };
  const down = (/** @type {PointerEvent} */ event) => {
    const share = shareOf(event);
    drag.current = { isDown: share !== null && share >= 0 && share <= 1, isMoved: false };
    if (drag.current.isDown) ref.current?.setPointerCapture(event.pointerId);
  };
  const move = (/** @type {PointerEvent} */ event) => {
    const share = drag.current.isDown ? shareOf(event) : null;
    if (share === null || (!drag.current.isMoved && Math.abs(event.movementX) < 1)) return;
    drag.current.isMoved = true;
    onMark?.(Math.min(0.999, Math.max(0.001, share)));
  };
  const up = () => (drag.current.isDown = false);
  useDrawing(ref, draw);
  const choose = (/** @type {MouseEvent} */ event) => {
    if (!ref.current || !onChoose || drag.current.isMoved) return;
    const at = form === "ring" ? angleAt(event, ref.current) : event.offsetX / ref.current.clientWidth;
    const found = segments.find((each) => at >= each.from && at <= each.to);
    if (found) onChoose(found.partition.id);
  };
  const shown = segments.map((each) => `${each.partition.id}:${each.partition.low}-${each.partition.high}`).join(" ");
  return html`<canvas ref=${ref} class=${form} role="img" aria-label=${`${label}: ${sentence ?? sentenceOf(segments)}`} data-test="strip"
    data-segments=${segments.length <= 64 ? shown : undefined} data-count=${segments.length} onClick=${choose} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up}></canvas>`;
}

/** @param {MouseEvent} event @param {HTMLCanvasElement} canvas */
function angleAt(event, canvas) {
  const angle = Math.atan2(event.offsetY - canvas.clientHeight / 2, event.offsetX - canvas.clientWidth / 2) + Math.PI / 2;
  return ((angle + 2 * Math.PI) % (2 * Math.PI)) / (2 * Math.PI);
}

/** Where in its parent's segment a split's boundary lies, from 0 to 1. @param {Segment} segment */
function boundaryOf(segment) {
  const children = segment.reshape?.children ?? [];
  if (segment.reshape?.kind !== "split" || children.length < 2) return null;
  const low = place(segment.partition.low);
  const high = place(segment.partition.high);
  const at = place(children[0].high);
  return high > low ? Math.min(0.95, Math.max(0.05, (at - low) / (high - low))) : 0.5;
}

/** @param {HTMLCanvasElement} canvas @param {Segment[]} segments @param {number | null} chosen @param {number | null} mark */
function drawStrip(canvas, segments, chosen, mark) {
  const { context, width, height } = prepared(canvas);
  const top = 6;
  const tall = height - 24;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const segment of segments) {
    const x = segment.from * width;
    const wide = (segment.to - segment.from) * width;
    const load = segment.load ?? 0;
    const boundary = boundaryOf(segment);
    const isChosen = segment.partition.id === chosen;
    context.fillStyle = heatText(Math.min(1, load));
    context.fillRect(x, top, Math.max(1, wide - 1), tall);
    if (segment.filled !== null && wide > 3) {
      context.fillStyle = FILLED;
      const filled = Math.min(1, segment.filled) * tall;
      context.fillRect(x, top + tall - filled, wide - 1, filled);
    }
    if (segment.partition.refused + (segment.partition.full ?? 0) > 0) hatch(context, x, top, wide - 1, 8, "#ffffff", 5);
    if (segment.reshape) drawReshape(context, segment, boundary, x, wide, top, tall);
    if (isChosen) {
      context.strokeStyle = themed("focus");
      context.lineWidth = 3;
      context.strokeRect(x + 1, top - 2, Math.max(2, wide - 3), tall + 4);
      if (mark !== null) drawMark(context, x + mark * wide, top, tall);
    }
    const text = String(segment.partition.id);
    if (wide > context.measureText(text).width + 8) {
      context.fillStyle = inkOn(load, (segment.filled ?? 0) >= 0.5 ? FILLED_OPACITY : 0);
      context.fillText(text, x + 5, top + tall / 2);
    }
  }
  context.fillStyle = themed("soft");
  context.fillText("00", 1, height - 8);
  const end = "hashes → FF";
  context.fillText(end, width - context.measureText(end).width - 1, height - 8);
}

/** Where the chosen partition would be split: a line with a handle. @param {CanvasRenderingContext2D} context @param {number} x @param {number} top @param {number} tall */
function drawMark(context, x, top, tall) {
  context.strokeStyle = context.fillStyle = themed("focus");
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x, top - 6);
  context.lineTo(x, top + tall + 6);
  context.stroke();
  context.beginPath();
  context.arc(x, top + tall / 2, 6, 0, 2 * Math.PI);
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {Segment} segment @param {number | null} boundary */
function drawReshape(context, segment, boundary, x, wide, top, tall) {
  const { reshape } = segment;
  const share = reshape && reshape.itemsTotal > 0 ? Math.min(1, reshape.itemsCopied / reshape.itemsTotal) : 0;
  context.strokeStyle = "#ffffff";
  context.lineWidth = 2;
  const parts = boundary === null ? [[0, 1]] : [[0, boundary], [boundary, 1]];
  for (const [from, to] of parts) {
    context.fillStyle = "#ffffff99";
    context.fillRect(x + from * wide + 1, top + tall - 8, Math.max(0, ((to - from) * wide - 3) * share), 7);
  }
  if (boundary === null) return;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x + boundary * wide, top - 4);
  context.lineTo(x + boundary * wide, top + tall + 4);
  context.stroke();
  context.setLineDash([]);
}

/** @param {HTMLCanvasElement} canvas @param {Segment[]} segments @param {number | null} chosen */
function drawRing(canvas, segments, chosen) {
  const { context, width, height } = prepared(canvas);
  const outer = Math.min(width, height) / 2 - 6;
  const inner = outer * 0.62;
  context.translate(width / 2, height / 2);
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const angle = (/** @type {number} */ share) => share * 2 * Math.PI - Math.PI / 2;
  for (const segment of segments) {
    const load = segment.load ?? 0;
    const filled = inner + (outer - inner) * Math.min(1, segment.filled ?? 0);
    for (const [radius, colour] of /** @type {[number, string][]} */ ([[outer, heatText(Math.min(1, load))], [filled, FILLED]])) {
      context.beginPath();
      context.arc(0, 0, radius, angle(segment.from), angle(segment.to));
      context.arc(0, 0, inner, angle(segment.to), angle(segment.from), true);
      context.closePath();
      context.fillStyle = colour;
      context.fill();
    }
    context.strokeStyle = segment.partition.id === chosen ? themed("focus") : themed("bg");
    context.lineWidth = segment.partition.id === chosen ? 3 : 1;
    context.beginPath();
    context.arc(0, 0, outer, angle(segment.from), angle(segment.to));
    context.arc(0, 0, inner, angle(segment.to), angle(segment.from), true);
    context.closePath();
    context.stroke();
    const boundary = boundaryOf(segment);
    if (boundary !== null) {
      const at = angle(segment.from + (segment.to - segment.from) * boundary);
      context.strokeStyle = "#ffffff";
      context.beginPath();
      context.moveTo(Math.cos(at) * inner, Math.sin(at) * inner);
      context.lineTo(Math.cos(at) * outer, Math.sin(at) * outer);
      context.stroke();
    }
    if ((segment.to - segment.from) * outer * 6 > 24) {
      const middle = angle((segment.from + segment.to) / 2);
      const radius = (inner + outer) / 2;
      context.fillStyle = inkOn(load, (segment.filled ?? 0) >= 0.5 ? FILLED_OPACITY : 0);
      context.fillText(String(segment.partition.id), Math.cos(middle) * radius, Math.sin(middle) * radius);
    }
  }
}

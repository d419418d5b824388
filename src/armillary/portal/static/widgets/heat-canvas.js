// The heat map: time to the right, ranges of hashes downwards. The cells are one small picture that is scaled to the
// canvas, so that 256 × 360 of them are drawn in a few milliseconds; bounds, splits, gaps and cursors lie on top.

import { html, useRef } from "../vendor/core.js";
import { axisTime } from "../text/numbers.js";
import { hatch, heat, heatText, prepared, themed, useDrawing } from "./colours.js";

const AXIS_PX = 18;

/**
 * @typedef {{times: number[], bounds: string[], cells: Float32Array, rows: number, columns: number, max: number, total: number | null, keyless: number | null, findings: {kind: string, text: string}[], gaps: [number, number][],
 *   maps: {time: number, ids: number[], bounds: string[]}[], splits: {time: number, boundary: string, parents: number[], children: number[]}[]}} HeatData
 * @typedef {{row: number, column: number}} Cell
 */

/** The answer of the server with its cells decoded. @param {any} answer @returns {HeatData} */
export function decoded(answer) {
  const text = atob(answer.values);
  const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const cells = new Float32Array(bytes.buffer);
  return { ...answer, cells, rows: answer.bounds.length - 1, columns: answer.times.length - 1 };
}

/** @param {HeatData} data @param {{isLogarithmic: boolean, brightness: number}} look */
function picture(data, { isLogarithmic, brightness }) {
  const most = Math.max(data.max / brightness, 1e-9);
  const image = new ImageData(Math.max(1, data.columns), Math.max(1, data.rows));
  const colours = Array.from({ length: 256 }, (_, at) => heat(at / 255));
  const bottom = Math.log1p(most);
  data.cells.forEach((value, at) => {
    const share = isLogarithmic ? Math.log1p(value) / bottom : value / most;
    const [red, green, blue] = colours[Math.min(255, Math.max(0, Math.round(share * 255)))];
    image.data.set([red, green, blue, 255], at * 4);
  });
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).putImageData(image, 0, 0);
  return canvas;
}

/** What the colours mean: from nothing to the value of the brightest. @param {{isLogarithmic: boolean, from: string, to: string}} props */
export function HeatScale({ isLogarithmic, from, to }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useDrawing(ref, () => {
    if (!ref.current) return;
    const { context, width, height } = prepared(ref.current);
    for (let x = 0; x < width; x += 1) {
      context.fillStyle = heatText(x / Math.max(1, width - 1));
      context.fillRect(x, 0, 1, height);
    }
  });
  return html`<span class="scale small" data-test="heat-scale">${from} <canvas ref=${ref} aria-hidden="true"></canvas> ${to}${isLogarithmic ? ", logarithmic" : ""}</span>`;
}

/** The row at which a bound lies. @param {HeatData} data @param {string} bound */
function rowOf(data, bound) {
  const at = data.bounds.findIndex((each) => each >= bound);
  return at < 0 ? data.rows : at;
}

/** @param {HeatData} data @param {number} time */
export function columnAt(data, time) {
  const first = data.times[0];
  const last = data.times[data.times.length - 1];
  return ((time - first) / Math.max(1, last - first)) * data.columns;
}

/** Whether the server ran in no part of a column. @param {HeatData} data @param {number} column */
export const isGap = (data, column) => data.gaps.some(([from, to]) => from <= data.times[column] && data.times[column + 1] <= to);

/**
 * @param {{data: HeatData, label: string, isLogarithmic: boolean, brightness: number, cursor: Cell | null, pinned: Cell | null,
 *   onMove: (cell: Cell | null) => void, onPin: (cell: Cell) => void, onZoom: (from: number, to: number) => void, onKey: (event: KeyboardEvent) => void}} props
 */
export function HeatCanvas({ data, label, isLogarithmic, brightness, cursor, pinned, onMove, onPin, onZoom, onKey }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const drag = useRef({ from: -1, to: -1 });
  const image = useRef(/** @type {{key: string, canvas: HTMLCanvasElement} | null} */ (null));
  const cellAt = (/** @type {MouseEvent} */ event) => {
    if (!ref.current) return { row: 0, column: 0 };
    const tall = ref.current.clientHeight - AXIS_PX;
    const column = Math.floor((event.offsetX / ref.current.clientWidth) * data.columns);
    const row = Math.floor((event.offsetY / tall) * data.rows);
    return { row: Math.max(0, Math.min(data.rows - 1, row)), column: Math.max(0, Math.min(data.columns - 1, column)) };
  };
  const draw = () => {
    if (!ref.current) return;
    const { context, width, height } = prepared(ref.current);
    const tall = height - AXIS_PX;
    context.imageSmoothingEnabled = false;
    const key = `${isLogarithmic} ${brightness}`;
    if (image.current?.key !== key || !("data" in image.current) || image.current.data !== data) {
      image.current = Object.assign({ key, canvas: picture(data, { isLogarithmic, brightness }) }, { data });
    }
    context.drawImage(image.current.canvas, 0, 0, width, tall);
    drawOver(context, data, width, tall);
    for (const [cell, colour] of /** @type {[Cell | null, string][]} */ ([[pinned, "#ffffff"], [cursor, themed("focus")]])) {
      if (!cell) continue;
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.strokeRect((cell.column / data.columns) * width - 1, (cell.row / data.rows) * tall - 1, Math.max(3, width / data.columns) + 2, Math.max(3, tall / data.rows) + 2);
    }
    if (drag.current.from >= 0) {
      context.fillStyle = "#ffffff55";
      context.fillRect(Math.min(drag.current.from, drag.current.to), 0, Math.abs(drag.current.to - drag.current.from), tall);
    }
  };
  useDrawing(ref, draw);
  const down = (/** @type {MouseEvent} */ event) => (drag.current = { from: event.offsetX, to: event.offsetX });
  const move = (/** @type {MouseEvent} */ event) => {
    if (drag.current.from >= 0) drag.current.to = event.offsetX;
    onMove(cellAt(event));
  };
  const up = (/** @type {MouseEvent} */ event) => {
    const { from, to } = drag.current;
    drag.current = { from: -1, to: -1 };
    if (Math.abs(to - from) < 6 || !ref.current) return onPin(cellAt(event));
    const wide = ref.current.clientWidth;
    const timeAt = (/** @type {number} */ x) => data.times[Math.max(0, Math.min(data.columns, Math.round((x / wide) * data.columns)))];
    onZoom(timeAt(Math.min(from, to)), timeAt(Math.max(from, to)));
  };
  return html`<canvas ref=${ref} class="heat" role="img" tabindex="0" aria-label=${label} data-test="heat" data-rows=${data.rows} data-columns=${data.columns}
    data-gaps=${data.gaps.map(([from, to]) => `${from}-${to}`).join(" ")} data-splits=${data.splits.map((each) => `${each.time}:${each.boundary}`).join(" ")}
    onMouseDown=${down} onMouseMove=${move} onMouseUp=${up} onMouseLeave=${() => onMove(null)} onKeyDown=${onKey}></canvas>`;
}

/** Bounds of partitions, forks of splits, gaps and times. @param {CanvasRenderingContext2D} context @param {HeatData} data @param {number} width @param {number} tall */
function drawOver(context, data, width, tall) {
  const x = (/** @type {number} */ time) => (columnAt(data, time) / data.columns) * width;
  const y = (/** @type {string} */ bound) => (rowOf(data, bound) / data.rows) * tall;
  context.lineWidth = 1;
  data.maps.forEach((map, at) => {
    const from = x(map.time);
    const to = at + 1 < data.maps.length ? x(data.maps[at + 1].time) : width;
    context.strokeStyle = "#ffffff66";
    context.beginPath();
    for (const bound of map.bounds.slice(1, -1)) {
      // The map of a column is the one at its end: the bound of a split begins with the split.
      const begun = data.splits.find((each) => each.boundary === bound && each.time > map.time);
      context.moveTo(begun ? Math.min(to, x(begun.time)) : from, y(bound));
      context.lineTo(to, y(bound));
    }
    context.stroke();
  });
  for (const [from, to] of data.gaps) {
    const left = Math.max(0, x(from));
    context.fillStyle = themed("panel");
    context.fillRect(left, 0, Math.min(width, x(to)) - left, tall);
    hatch(context, left, 0, Math.min(width, x(to)) - left, tall, themed("edge"), 8);
  }
  for (const split of data.splits) {
    const left = x(split.time);
    const at = y(split.boundary);
    const after = split.parents.length > 1 ? -1 : 1; // a merge is a fork that closes
    context.strokeStyle = "#ffffff";
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(left - after * 8, at);
    context.lineTo(left, at);
    context.lineTo(left + after * 10, at - 8);
    context.moveTo(left, at);
    context.lineTo(left + after * 10, at + 8);
    context.stroke();
  }
  context.fillStyle = themed("soft");
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  const marks = width < 500 ? 3 : 6;
  const apart = (data.times[data.columns] - data.times[0]) / marks;
  for (let mark = 0; mark <= marks; mark += 1) {
    const time = data.times[Math.round((mark / marks) * data.columns)];
    const text = apart >= 7200 && apart < 86_400 ? `${axisTime(time, 86_400)} ${axisTime(time, 7200)}` : axisTime(time, apart < 120 ? 1 : apart);
    const wide = context.measureText(text).width;
    context.fillText(text, Math.min(width - wide, Math.max(0, (mark / marks) * width - wide / 2)), tall + 4);
  }
}

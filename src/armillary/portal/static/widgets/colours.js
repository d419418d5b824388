// The colours of charts: a scale from blue to yellow that is even in lightness and the same for colour-blind readers,
// and those of the present scheme for lines and text on canvases, which are drawn again when it changes.

import { useEffect, useRef } from "../vendor/core.js";

const STOPS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"].map((hex) =>
  [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)),
);

/** Red, green and blue of a share of 1. @param {number} share */
export function heat(share) {
  const at = Math.min(1, Math.max(0, share)) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const rest = at - low;
  return STOPS[low].map((value, index) => Math.round(value + (STOPS[low + 1][index] - value) * rest));
}

/** @param {number} share */
export const heatText = (share) => `rgb(${heat(share).join(" ")})`;

/** Black or white, whichever is read on the colour of this share, with white of an opacity over it. @param {number} share @param {number} [white] */
export function inkOn(share, white = 0) {
  const [red, green, blue] = heat(share).map((each) => {
    const light = (each + (255 - each) * white) / 255;
    return light <= 0.04045 ? light / 12.92 : ((light + 0.055) / 1.055) ** 2.4;
  });
  // From this luminance on black has the higher contrast (WCAG).
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#101418" : "#ffffff";
}

/** A colour of the present scheme. @param {string} name */
export const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Series and labels: apart in hue and in lightness. */
export const SERIES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a5195", "#888888"];

/**
 * A canvas of the size of its box, in the pixels of the screen; the drawing context measures in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 */
export function prepared(canvas) {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Diagonal lines over a box: refusals and gaps are never shown by colour alone. */
export function hatch(context, x, y, width, height, colour, step = 6) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = x - height; at < x + width; at += step) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

/**
 * Draw a canvas after each rendering, and again when its size or the scheme changes. A live view is rendered every second:
 * the observers are made once for a canvas, since each new one would have it drawn a second time.
 * @param {{current: HTMLCanvasElement | null}} ref @param {() => void} draw
 */
export function useDrawing(ref, draw) {
  const latest = useRef(draw);
  const observed = useRef({ canvas: /** @type {HTMLCanvasElement | null} */ (null), end: () => {} });
  latest.current = draw;
  useEffect(() => {
    draw();
    if (observed.current.canvas === ref.current) return;
    observed.current.end();
    observed.current = { canvas: ref.current, end: observing(ref.current, () => latest.current()) };
  });
  useEffect(() => () => observed.current.end(), []);
}

/** @param {HTMLCanvasElement | null} canvas @param {() => void} draw @returns {() => void} how to end it */
function observing(canvas, draw) {
  if (!canvas) return () => {};
  const size = new ResizeObserver(draw);
  size.observe(canvas);
  const scheme = new MutationObserver(draw);
  scheme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-scheme"] });
  return () => {
    size.disconnect();
    scheme.disconnect();
  };
}

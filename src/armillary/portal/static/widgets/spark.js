// The last minute of a figure as a small line, drawn against the most that it may be.

import { html, useRef } from "../vendor/core.js";
import { prepared, themed, useDrawing } from "./colours.js";

/** @param {{values: number[], most: number | null, label: string}} props */
export function Spark({ values, most, label }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useDrawing(ref, () => {
    if (!ref.current) return;
    const { context, width, height } = prepared(ref.current);
    const top = Math.max(most ?? 0, ...values, 1);
    context.strokeStyle = themed("accent");
    context.lineWidth = 1.5;
    context.beginPath();
    values.forEach((value, index) => {
      const x = (index / 59) * (width - 2) + 1;
      const y = height - 2 - (value / top) * (height - 4);
      if (index === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.stroke();
    context.strokeStyle = themed("line");
    context.beginPath();
    context.moveTo(0, height - 1);
    context.lineTo(width, height - 1);
    context.stroke();
  });
  return html`<canvas ref=${ref} class="spark" role="img" aria-label=${label}></canvas>`;
}

// A JSON value as text, folded where it is large, so that an item of 2 MB does not stop the page.

import { html, useState } from "../vendor/core.js";
import { bytes, count } from "../text/numbers.js";

const SHOWN_AT_ONCE = 50_000;

/** @param {{text: string, label: string}} props */
export function JsonText({ text, label }) {
  const [shown, setShown] = useState(SHOWN_AT_ONCE);
  const isCut = text.length > shown;
  return html`<pre class="json scroll" tabindex="0" aria-label=${label}>${isCut ? text.slice(0, shown) : text}</pre>
    ${isCut && html`<p class="tools"><span class="small">The first ${bytes(shown)} of ${bytes(text.length)}.</span>
      <button type="button" class="quiet" onClick=${() => setShown(shown * 4)}>More</button></p>`}`;
}

/** A value in a cell: nested ones are folded. @param {any} value */
export function cellText(value) {
  if (value === undefined) return "";
  if (Array.isArray(value)) return `[${count(value.length)}]`;
  if (value !== null && typeof value === "object") return `{${Object.keys(value).slice(0, 4).join(", ")}${Object.keys(value).length > 4 ? ", …" : ""}}`;
  return typeof value === "string" ? value : String(value);
}

/** Save text as a file. @param {string} name @param {string | Blob} content @param {string} type */
export function saveFile(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** @param {any[]} rows */
export function asCsv(rows) {
  const names = columnNames(rows);
  // A leading sign is quoted as text, so that a spreadsheet does not take a stored value for a formula.
  const cell = (/** @type {any} */ value) => {
    let text = value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names.map(cell).join(","), ...rows.map((row) => names.map((name) => cell(name === "value" && !isObject(row) ? row : row?.[name])).join(","))].join("\r\n") + "\r\n";
}

/** @param {any} value */
export const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

const SYSTEM = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/** Names of the rows' members, those of the system last. @param {any[]} rows */
export function columnNames(rows) {
  const names = new Set();
  for (const row of rows.slice(0, 1000)) for (const name of isObject(row) ? Object.keys(row) : ["value"]) names.add(name);
  const own = [...names].filter((name) => !SYSTEM.includes(name));
  return own.length > 0 ? own.slice(0, 40) : [...names];
}

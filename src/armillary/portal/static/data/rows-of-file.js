// Rows of a file as lines of JSON, made in the browser: JSON lines as they are, the elements of a JSON array, or the
// rows of a CSV file by the rules of `armillary import` (docs/migration.md). Numbers are carried over as text, so that
// large ones keep their digits.

import { control } from "./client.js";

export const BYTES_MAX = 64 * 1024 * 1024;
const PART_BYTES = 4 * 1024 * 1024;
const LOOKED_AT = 1024;
const JSON_CELL = /^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null|[[{"].*)$/s;

/** @param {Blob} file @returns {Promise<Blob>} */
export async function linesOf(file) {
  const beginning = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  if (beginning[0] === 0x1f && beginning[1] === 0x8b) throw new Error("The file is compressed (gzip). Unpack it first, or use the command armillary advise.");
  const first = (await file.slice(0, LOOKED_AT).text()).trimStart()[0] ?? "";
  if (first === "{") return file;
  const text = await file.text();
  if (first === "[") return new Blob(elements(text).map((each) => `${each}\n`));
  return new Blob(csvLines(text));
}

/** The elements of a JSON array, as they are written. @param {string} text */
export function elements(text) {
  const found = [];
  let depth = 0;
  let isString = false;
  let from = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (isString) {
      if (code === 92) at += 1;
      else if (code === 34) isString = false;
    } else if (code === 34) isString = true;
    else if (code === 91 || code === 123) {
      depth += 1;
      if (depth === 1) from = at + 1;
    } else if ((code === 44 && depth === 1) || ((code === 93 || code === 125) && (depth -= 1) === 0)) {
      const element = text.slice(from, at).replaceAll(/[\r\n]/g, " ").trim();
      if (element) found.push(element);
      if (depth === 0) return found;
      from = at + 1;
    }
  }
  throw new Error("The JSON array does not end: the file was cut off.");
}

/** The records of a CSV text. @param {string} text @returns {Generator<string[]>} */
function* records(text) {
  let cells = [];
  let cell = "";
  let isQuoted = false;
  for (let at = text.startsWith("\ufeff") ? 1 : 0; at <= text.length; at += 1) {
    const char = text[at];
    if (isQuoted) {
      if (char === undefined) throw new Error("The CSV file ends inside of a quoted cell.");
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') (cell += '"'), (at += 1);
      else isQuoted = false;
    } else if (char === '"' && cell === "") isQuoted = true;
    else if (char === ",") cells.push(cell), (cell = "");
    else if (char === "\n" || char === "\r" || char === undefined) {
      if (char === "\r" && text[at + 1] === "\n") at += 1;
      if (cells.length > 0 || cell !== "") yield [...cells, cell];
      [cells, cell] = [[], ""];
    } else cell += char;
  }
}

/** @param {string} text @returns {string[]} */
export function csvLines(text) {
  const lines = [];
  /** @type {string[][] | null} */
  let names = null;
  for (const cells of records(text)) {
    if (names) lines.push(`${objectText(names, cells)}\n`);
    else if (new Set(cells).size < cells.length || cells.includes("")) throw new Error("The first line of a CSV file must name its columns, each differently.");
    else names = cells.map((name) => (name.startsWith("/") ? name.slice(1).split("/") : [name]));
  }
  return lines;
}

/** @param {string[][]} names @param {string[]} cells */
function objectText(names, cells) {
  /** @type {Map<string, any>} */
  const whole = new Map();
  names.forEach((path, at) => {
    if (!cells[at]) return;
    let place = whole;
    for (const step of path.slice(0, -1)) {
      if (!(place.get(step) instanceof Map)) place.set(step, new Map());
      place = place.get(step);
    }
    place.set(path[path.length - 1], valueText(cells[at]));
  });
  return written(whole);
}

/** @param {Map<string, any>} members @returns {string} */
const written = (members) => `{${[...members].map(([name, value]) => `${JSON.stringify(name)}:${value instanceof Map ? written(value) : value}`).join(",")}}`;

/** @param {string} cell */
function valueText(cell) {
  if (JSON_CELL.test(cell)) {
    try {
      JSON.parse(cell);
      return cell.replaceAll(/[\r\n]/g, " ");
    } catch {
      // Text that looks like JSON.
    }
  }
  return JSON.stringify(cell);
}

/**
 * Send lines to the server; the id of the upload.
 * @param {Blob} lines @param {AbortSignal} signal @param {(sent: number) => void} onSent
 */
export async function upload(lines, signal, onSent) {
  if (lines.size > BYTES_MAX) throw new Error(`As lines of JSON the file has ${Math.ceil(lines.size / 1024 / 1024)} MB, and at most 64 can be sent. Use the command armillary advise for it.`);
  const { id } = await control("POST", "uploads", {}, { signal });
  try {
    for (let number = 0; number * PART_BYTES < lines.size; number += 1) {
      const part = lines.slice(number * PART_BYTES, (number + 1) * PART_BYTES);
      await control("PUT", `uploads/${id}/parts/${number}`, part, { headers: { "content-type": "application/octet-stream" }, signal });
      onSent(Math.min(lines.size, (number + 1) * PART_BYTES));
    }
  } catch (failure) {
    await control("DELETE", `uploads/${id}`).catch(() => {});
    throw failure;
  }
  return String(id);
}

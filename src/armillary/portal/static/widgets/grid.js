// A table of any length: from 100 rows on only those in sight are in the page. Arrow keys move a cell cursor; the
// heads sort; a cell, a row or everything can be copied as text.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/core.js";
import { Copy, copyText, speak } from "./parts.js";

const ROW_PX = 30;
const VIRTUAL_FROM = 100;
const AROUND = 8;
const CELL_CHARACTERS = 300; // more than a cell shows; a value of 2 MB in one line takes seconds to lay out

/**
 * @typedef {{id: string, label: string, value: (row: any) => any, text?: (row: any) => string, show?: (row: any) => any, number?: boolean}} Column
 * @param {{label: string, columns: Column[], rows: any[], keyOf?: (row: any, index: number) => any, sort?: string,
 *   onSort?: (sort: string) => void, onOpen?: (row: any) => void, chosen?: any, height?: number, empty?: any}} props
 * `sort` is a column's id, with "-" before it for descending.
 */
export function Grid({ label, columns, rows, keyOf = (row, index) => row.id ?? index, sort = "", onSort, onOpen, chosen, height = 480, empty }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [top, setTop] = useState(0);
  const [cursor, setCursor] = useState({ row: 0, column: 0, isActive: false });
  const seen = useRef(cursor);
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, sort, columns.length]);
  const isVirtual = sorted.length > VIRTUAL_FROM;
  const from = isVirtual ? Math.max(0, Math.floor(top / ROW_PX) - AROUND) : 0;
  const to = isVirtual ? Math.min(sorted.length, Math.ceil((top + height) / ROW_PX) + AROUND) : sorted.length;
  const last = sorted.length - 1;
  const row = Math.min(cursor.row, Math.max(0, last));
  const text = (/** @type {Column} */ column, /** @type {any} */ each) => (column.text ?? ((one) => plain(column.value(one))))(each);

  useLayoutEffect(() => {
    if (!cursor.isActive || !box.current) return;
    const cell = box.current.querySelector(`[data-cell="${row}:${cursor.column}"]`);
    if (!(cell instanceof HTMLElement)) return;
    cell.focus({ preventScroll: true });
    if (seen.current !== cursor) cell.scrollIntoView({ block: "nearest", inline: "nearest" }); // not when the table was scrolled
    seen.current = cursor;
  }, [cursor, from]);
  useEffect(() => {
    if (box.current && box.current.scrollTop > 0 && sorted.length === 0) box.current.scrollTop = 0;
  }, [sorted.length]);

  const move = (/** @type {number} */ newRow, /** @type {number} */ newColumn) => {
    const bounded = Math.max(0, Math.min(last, newRow));
    if (isVirtual && box.current) {
      const at = bounded * ROW_PX;
      if (at < box.current.scrollTop) box.current.scrollTop = at;
      else if (at > box.current.scrollTop + height - 3 * ROW_PX) box.current.scrollTop = at - height + 3 * ROW_PX;
      setTop(box.current.scrollTop);
    }
    setCursor({ row: bounded, column: Math.max(0, Math.min(columns.length - 1, newColumn)), isActive: true });
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const page = Math.floor(height / ROW_PX) - 2;
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0] };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (!(event.target instanceof HTMLElement) || !event.target.dataset.cell) return;
    if (step) move(row + step[0], cursor.column + step[1]);
    else if (event.key === "Home") move(event.ctrlKey ? 0 : row, 0);
    else if (event.key === "End") move(event.ctrlKey ? last : row, columns.length - 1);
    else if (event.key === "Enter" && onOpen && sorted[row]) onOpen(sorted[row]);
    else if (event.key === "c" && (event.ctrlKey || event.metaKey) && String(getSelection()) === "") {
      const whole = event.shiftKey ? columns.map((each) => text(each, sorted[row])).join("\t") : text(columns[cursor.column], sorted[row]);
      void copyText(whole).then(() => speak(event.shiftKey ? "Row copied" : "Cell copied"));
    } else return;
    event.preventDefault();
  };
  const order = (/** @type {Column} */ column) => (sort === column.id ? "ascending" : sort === `-${column.id}` ? "descending" : "none");
  const turn = (/** @type {Column} */ column) => {
    const isFirstDown = column.number ? sort !== `-${column.id}` : sort === column.id;
    onSort?.(`${isFirstDown ? "-" : ""}${column.id}`);
  };
  if (rows.length === 0 && empty) return html`<p class="empty">${empty}</p>`;
  return html`<div class="grid-frame">
    <div class="grid-box" ref=${box} style=${isVirtual ? { height: `${height}px` } : { maxHeight: `${height}px` }}
      onScroll=${isVirtual ? (/** @type {any} */ event) => setTop(event.currentTarget.scrollTop) : undefined}>
      <table role="grid" aria-label=${label} aria-rowcount=${sorted.length + 1} onKeyDown=${onKeyDown}>
        <thead><tr aria-rowindex="1">${columns.map(
          (column) => html`<th key=${column.id} scope="col" class=${column.number ? "number" : ""} aria-sort=${onSort ? order(column) : undefined}>
            ${onSort ? html`<button type="button" class="head" onClick=${() => turn(column)}>${column.label}<span aria-hidden="true">${{ ascending: " ▲", descending: " ▼", none: "" }[order(column)]}</span></button>` : column.label}
          </th>`,
        )}</tr></thead>
        <tbody>
          ${from > 0 && html`<tr key="above" aria-hidden="true" class="gap"><td colspan=${columns.length} style=${{ height: `${from * ROW_PX}px` }}></td></tr>`}
          ${sorted.slice(from, to).map((each, index) => {
            const at = from + index;
            const key = keyOf(each, at);
            return html`<tr key=${key} aria-rowindex=${at + 2} aria-selected=${chosen !== undefined ? (chosen === key ? "true" : "false") : undefined}
              onClick=${onOpen ? () => onOpen(each) : undefined} class=${onOpen ? "opens" : ""}>
              ${columns.map(
                (column, place) => html`<td key=${column.id} class=${column.number ? "number" : ""} data-cell="${at}:${place}"
                  tabindex=${at === (row >= from && row < to ? row : from) && place === cursor.column ? 0 : -1}
                  onFocus=${() => (cursor.row !== at || cursor.column !== place) && setCursor({ row: at, column: place, isActive: false })}>
                  ${column.show ? column.show(each) : begun(text(column, each))}</td>`,
              )}
            </tr>`;
          })}
          ${to < sorted.length && html`<tr key="below" aria-hidden="true" class="gap"><td colspan=${columns.length} style=${{ height: `${(sorted.length - to) * ROW_PX}px` }}></td></tr>`}
        </tbody>
      </table>
    </div>
    ${sorted.length > 0 && html`<p class="grid-foot"><${Copy} label="Copy all" what=${label} text=${() =>
      [columns.map((each) => each.label).join("\t"), ...sorted.map((one) => columns.map((each) => text(each, one)).join("\t"))].join("\n")} /></p>`}
  </div>`;
}

/** @param {string} text */
const begun = (text) => (text.length > CELL_CHARACTERS ? `${text.slice(0, CELL_CHARACTERS)}…` : text);

/** @param {any} value */
function plain(value) {
  if (value === undefined || value === null) return value === null ? "null" : "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** @param {any[]} rows @param {Column[]} columns @param {string} sort */
function sortRows(rows, columns, sort) {
  const isDown = sort.startsWith("-");
  const column = columns.find((each) => each.id === sort.replace(/^-/, ""));
  if (!column) return rows;
  const sign = isDown ? -1 : 1;
  return [...rows].sort((a, b) => sign * compare(column.value(a), column.value(b)));
}

/** @param {any} a @param {any} b */
function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (a === undefined || a === null) return b === undefined || b === null ? 0 : -1;
  if (b === undefined || b === null) return 1;
  return plain(a).localeCompare(plain(b), undefined, { numeric: true });
}

// The largest and busiest partition keys, of one partition or of all. Reading them looks at many entries, so they are
// read when they are asked for.

import { html } from "../../vendor/core.js";
import { choose, route, viewPath } from "../../data/address.js";
import { BASE, containerPath, reading } from "../../data/client.js";
import { findContainer, server } from "../../data/resources.js";
import { bytes, charge, clock, count, percent, plural, ratio } from "../../text/numbers.js";
import { Grid } from "../../widgets/grid.js";
import { Choice, Stale, useData } from "../../widgets/parts.js";

const TOP = 100;

/** @param {{database: string, container: string, partition: number | null, ranges: string, total: number}} props */
export function TopKeys({ database, container, partition, ranges, total }) {
  const kind = route.value.params.get("keys") ?? "largest";
  const setKind = (/** @type {string} */ value) => choose({ keys: value === "largest" ? null : value });
  const state = useData(reading(`${containerPath(database, container)}/keys?top=${TOP}`), [database, container, ranges]);
  const limit = server.value?.limits?.logicalPartitionBytes;
  const all = (kind === "largest" ? state.data?.largestKeys : state.data?.busiestKeys) ?? [];
  const rows = all.filter((each) => partition === null || each.partition === partition);
  const isComplete = state.data?.isLargestComplete ?? true;
  const columns = [
    { id: "key", label: "Key", value: (/** @type {any} */ row) => JSON.stringify(row.key), show: (/** @type {any} */ row) => html`<a href=${BASE + viewPath(database, container, "items", `?key=${encodeURIComponent(JSON.stringify(row.key))}`)}>${keyText(row.key)}</a>` },
    { id: "partition", label: "Partition", value: (/** @type {any} */ row) => row.partition, number: true },
    { id: "items", label: "Items", value: (/** @type {any} */ row) => row.items, text: (/** @type {any} */ row) => count(row.items), number: true },
    { id: "bytes", label: "Size", value: (/** @type {any} */ row) => row.bytes, text: (/** @type {any} */ row) => bytes(row.bytes), number: true },
    { id: "share", label: "Of all bytes", value: (/** @type {any} */ row) => ratio(row.bytes, total), text: (/** @type {any} */ row) => percent(ratio(row.bytes, total)), number: true },
    { id: "limit", label: "Of the key's limit", value: (/** @type {any} */ row) => ratio(row.bytes, limit), text: (/** @type {any} */ row) => percent(ratio(row.bytes, limit)), number: true },
    ...(kind === "busiest" ? [{ id: "charged", label: "RU", value: (/** @type {any} */ row) => row.chargedRu, text: (/** @type {any} */ row) => charge(row.chargedRu), number: true }] : []),
    { id: "full", label: "Full", value: (/** @type {any} */ row) => row.full, text: fullText },
  ];
  const paths = findContainer(database, container)?.partitionKey;
  return html`<section data-test="top-keys"><h2>Keys${partition === null ? "" : ` of partition ${partition}`}</h2>
    <p class="tools"><${Choice} label="Keys" value=${kind} onChange=${setKind} options=${[["largest", "Largest"], ["busiest", "Busiest"]]} />
      <button type="button" class="quiet" onClick=${state.again}>Read again</button>
      <span class="small">${paths ? `by ${paths.join(", ")}` : ""}${!isComplete && kind === "largest" ? ", among the first million" : ""}</span></p>
    <${Stale} state=${state} />
    ${state.data && html`<${Grid} label=${`${kind} keys`} columns=${columns} rows=${rows} keyOf=${(/** @type {any} */ row) => `${row.partition}:${JSON.stringify(row.key)}`} height=${300}
      empty=${kind === "largest" ? "No keys: nothing is stored here." : "No keys: nothing was asked since the server started."} />`}
  </section>`;
}

/** @param {any} row */
function fullText(row) {
  if (!row.full) return "";
  return `${row.fullSince ? `full since ${clock(row.fullSince)}, ` : ""}${plural(row.full, "write")} refused`;
}

/** A partition key as it is read: one value without its brackets. @param {any} key */
export const keyText = (key) => (Array.isArray(key) && key.length === 1 ? JSON.stringify(key[0]) : JSON.stringify(key) ?? "–");

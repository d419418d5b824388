// The partitions of a container, live: the strip of hashes, a row a partition, splits and merges as they happen, and
// the keys that stand out.

import { html, useState } from "../../vendor/core.js";
import { choose, route } from "../../data/address.js";
import { containerPath, reading, session } from "../../data/client.js";
import { findContainer, server } from "../../data/resources.js";
import { live, rangesOf, watchName } from "../../data/watch.js";
import { boundAt, isDivisible, place, shareAt, shortBound } from "../../text/hashes.js";
import { bytes, clock, count, duration, percent, plural, rate, ratio } from "../../text/numbers.js";
import { initialPartitions } from "../../text/throughput.js";
import { Grid } from "../../widgets/grid.js";
import { Bar, Choice, Failure, useData } from "../../widgets/parts.js";
import { Quietly } from "../../widgets/quietly.js";
import { Spark } from "../../widgets/spark.js";
import { Strip } from "../../widgets/strip.js";
import { FamilyTree } from "./family-tree.js";
import { Reshapes } from "./reshapes.js";
import { TopKeys } from "./top-keys.js";

/** Partitions in the order of their ranges. @param {Iterable<import("../../data/shapes.js").Partition>} partitions */
export const inOrder = (partitions) => [...partitions].sort((a, b) => (a.low < b.low ? -1 : a.low > b.low ? 1 : 0));

/** @param {{database: string, container: string}} props */
export default function Partitions({ database, container }) {
  const { params } = route.value;
  const found = live.value[watchName(database, container)];
  const ranges = rangesOf(found);
  const [marked, setMarked] = useState({ partition: -1, boundary: "" });
  // The family is not part of what changes all the time: it is read again when there are other partitions.
  const details = useData(reading(`${containerPath(database, container)}/partitions?keys=none`), [database, container, ranges]);
  if (!found || (found.partitions.size === 0 && !found.isGone)) return html`<${Failure} error=${details.error} /><p data-test="loading">…</p>`;
  if (found.isGone) return html`<p data-test="gone">The container was deleted while it was shown. Choose another one in the tree.</p>`;
  const known = new Map((details.data?.partitions ?? []).map((/** @type {any} */ each) => [each.id, each]));
  const partitions = inOrder(found.partitions.values()).map((each) => ({ ...each, parents: known.get(each.id)?.parents ?? [], since: known.get(each.id)?.since ?? null }));
  const chosen = params.has("partition") ? Number(params.get("partition")) : null;
  const target = partitions.find((each) => each.id === chosen);
  const boundary = marked.partition === chosen ? marked.boundary : "";
  const setBoundary = (/** @type {string} */ text) => setMarked({ partition: chosen ?? -1, boundary: text });
  const canMark = target !== undefined && !session.value.readOnly && isDivisible(target);
  const filter = params.get("filter") ?? "";
  const shown = partitions.filter((each) => matches(each, filter));
  const limitBytes = server.value?.limits?.partitionStorageBytes;
  const pick = (/** @type {number} */ id) => choose({ partition: id === chosen ? null : id });
  return html`
    <p class="tools">
      <${Choice} label="Form" value=${params.get("form") ?? "strip"} onChange=${(/** @type {string} */ form) => choose({ form: form === "strip" ? null : form })} options=${[["strip", "Strip"], ["ring", "Ring"]]} />
      <span class="small">${plural(partitions.length, "partition")} · map ${found.map} · as of ${clock(found.asOf)}</span>
    </p>
    <${Strip} partitions=${partitions} reshapes=${found.reshapes} limitBytes=${limitBytes} chosen=${chosen} onChoose=${pick} form=${params.get("form") ?? "strip"} label=${`${database}/${container}`}
      mark=${canMark && boundary ? shareAt(target, boundary) : null} onMark=${canMark ? (/** @type {number} */ share) => setBoundary(boundAt(target, share)) : undefined} />
    <p class="small">Width: share of the hashes. Colour: request units of its budget, from dark (0) to yellow (all). Light filling: bytes of its limit. Hatched: requests were refused.</p>
    ${partitions.length === 1 && html`<${OnlyOne} database=${database} container=${container} />`}
    <${Reshapes} database=${database} container=${container} reshapes=${found.reshapes} partitions=${partitions} chosen=${chosen} boundary=${boundary} onBoundary=${setBoundary} />
    <h2>Partitions</h2>
    <p class="tools"><label>Filter <input type="search" size="28" value=${filter} placeholder="id, or refused, full, busy" onInput=${(/** @type {any} */ event) => choose({ filter: event.currentTarget.value })} /></label>
      <span class="small">${filter && `${count(shown.length)} of ${count(partitions.length)}`}</span></p>
    <${Grid} label="partitions" columns=${columnsOf(limitBytes, found.asOf)} rows=${shown} sort=${params.get("sort") ?? ""} onSort=${(/** @type {string} */ sort) => choose({ sort })}
      chosen=${chosen} onOpen=${(/** @type {any} */ row) => pick(row.id)} empty="No partition matches the filter." />
    <${Quietly} key=${`${database}/${container}`} what="keys" part=${() => html`<${TopKeys} database=${database} container=${container} partition=${chosen} ranges=${ranges} total=${partitions.reduce((sum, each) => sum + each.bytes, 0)} />`} />
    <${FamilyTree} family=${details.data} />
    ${session.value.readOnly && html`<p class="small">This log-in is read-only: partitions cannot be split or merged here.</p>`}`;
}

/** @param {{database: string, container: string}} props */
function OnlyOne({ database, container }) {
  const isAutoscale = findContainer(database, container)?.throughput?.autoscale ?? false;
  const ru = 60000;
  return html`<p class="empty">One partition: nothing can be uneven yet. At ${count(ru)} RU/s there would be ${count(initialPartitions(ru, isAutoscale))}.</p>`;
}

/** @param {import("../../data/shapes.js").Partition} partition @param {string} filter */
function matches(partition, filter) {
  const word = filter.trim().toLowerCase();
  if (word === "") return true;
  if (word === "refused") return partition.refused + partition.wouldBeRefused > 0;
  if (word === "full") return (partition.full ?? 0) > 0;
  if (word === "busy") return (ratio(partition.spentRu, partition.budgetRu) ?? 0) >= 0.8;
  return String(partition.id) === word || partition.low.toLowerCase().startsWith(word);
}

/** @param {number | undefined} limitBytes @param {any} now @returns {import("../../widgets/grid.js").Column[]} */
function columnsOf(limitBytes, now) {
  const load = (/** @type {any} */ row) => ratio(row.spentRu, row.budgetRu);
  return [
    { id: "id", label: "Partition", value: (row) => row.id, number: true },
    { id: "low", label: "Hashes", value: (row) => place(row.low), text: (row) => `${shortBound(row.low)}–${shortBound(row.high)}` },
    { id: "bytes", label: "Size", value: (row) => row.bytes, number: true, text: (row) => bytes(row.bytes) },
    { id: "filled", label: "Of limit", value: (row) => ratio(row.bytes, limitBytes), text: (row) => percent(ratio(row.bytes, limitBytes)) , number: true },
    { id: "items", label: "Items", value: (row) => row.items, number: true, text: (row) => count(row.items) },
    { id: "spent", label: "RU/s", value: (row) => row.spentRu, number: true, text: (row) => rate(row.spentRu) },
    { id: "load", label: "Of its share", value: load, text: (row) => percent(load(row)), show: (row) => html`<${Bar} share=${load(row)} text=${`${percent(load(row))} of ${count(row.budgetRu)}`} isBad=${(load(row) ?? 0) >= 1} />` },
    { id: "refused", label: "429", value: (row) => row.refused, number: true, text: (row) => count(row.refused) },
    { id: "would", label: "Would be 429", value: (row) => row.wouldBeRefused, number: true, text: (row) => count(row.wouldBeRefused) },
    { id: "full", label: "Key full", value: (row) => row.full, number: true, text: (row) => count(row.full) },
    { id: "minute", label: "Last minute", value: (row) => row.spentRu, text: (row) => rate(row.spentRu), show: (row) => html`<${Spark} values=${row.spark ?? []} most=${row.budgetRu} label=${`RU/s of partition ${row.id}, now ${rate(row.spentRu)}`} />` },
    { id: "parents", label: "Parents", value: (row) => (row.parents ?? []).join(", "), text: (row) => (row.parents ?? []).join(", ") || "–" },
    { id: "age", label: "Age", value: (row) => (row.since === null ? null : -row.since), number: true, text: (row) => (row.since === null ? (row.parents.length === 0 ? "container's" : "–") : duration(Math.max(0, new Date(now).getTime() / 1000 - row.since))) },
  ];
}

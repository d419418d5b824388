// Which partition came from which: splits have two children, merges two parents. It follows from the bounds of the
// present partitions and of their ancestors, as far as the server knows those, and from their ids, which only grow.

import { html, useMemo, useState } from "../../vendor/core.js";
import { shortBound } from "../../text/hashes.js";

/** @typedef {{id: number, low: string, high: string}} Range */
/** @typedef {Range & {isPresent: boolean, parents: number[], children: Node[]}} Node */

/** @param {{family: {partitions: Range[], ancestors: Range[]} | null}} props */
export function FamilyTree({ family }) {
  const [isOpen, setOpen] = useState(false);
  const roots = useMemo(() => (isOpen && family ? grow(family) : []), [isOpen, family]);
  if (!family || family.ancestors.length === 0) return null;
  const drawn = new Set();
  return html`<details data-test="family" onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>Family tree: which partition came from which</summary>
    <ul>${roots.map((node) => branch(node, drawn))}</ul>
  </details>`;
}

/** @param {{partitions: Range[], ancestors: Range[]}} family */
function grow({ partitions, ancestors }) {
  /** @type {Map<number, Node>} */
  const nodes = new Map();
  /** Who had each stretch of the hashes when a range was made. @type {Range[]} */
  let owners = [];
  const all = [...ancestors.map((each) => ({ ...each, isPresent: false })), ...partitions.map((each) => ({ ...each, isPresent: true }))];
  for (const { id, low, high, isPresent } of all.sort((a, b) => a.id - b.id)) {
    const replaced = owners.filter((each) => each.low < high && low < each.high);
    const parents = [...new Set(replaced.map((each) => each.id))];
    const left = replaced.flatMap((each) => [
      ...(each.low < low ? [{ ...each, high: low }] : []),
      ...(high < each.high ? [{ ...each, low: high }] : []),
    ]);
    owners = [...owners.filter((each) => !replaced.includes(each)), ...left, { id, low, high }];
    const node = { id, low, high, isPresent, parents, children: [] };
    nodes.set(id, node);
    for (const parent of parents) /** @type {Node} */ (nodes.get(parent)).children.push(node);
  }
  return [...nodes.values()].filter((each) => each.parents.length === 0);
}

/** A merged partition is drawn below both parents, what came from it below the first. @param {Node} node @param {Set<number>} drawn */
function branch(node, drawn) {
  const isFirst = !drawn.has(node.id);
  drawn.add(node.id);
  const bounds = `${shortBound(node.low)}–${shortBound(node.high)}`;
  return html`<li key=${node.id} data-family=${node.id} data-parents=${node.parents.join(" ")}>
    ${node.isPresent ? html`<strong>${node.id}</strong> ${bounds}` : html`${node.id} ${bounds} <span class="small">retired</span>`}
    ${node.parents.length > 1 && html` <span class="small">merged from ${node.parents.join(" and ")}</span>`}
    ${isFirst && node.children.length > 0 && html`<ul>${node.children.map((each) => branch(each, drawn))}</ul>`}
  </li>`;
}

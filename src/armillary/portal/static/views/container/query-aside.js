// What a query cost and why: the parts of the charge, each partition that was visited, indexes that were used and that
// would help, advice, metrics, the same request as code, and its charge with more partitions.

import { html, useState } from "../../vendor/core.js";
import { readDefinition, replaceDefinition } from "../../data/items.js";
import { session } from "../../data/client.js";
import { charge, count, percent, plural, ratio } from "../../text/numbers.js";
import { ADVICE, visitSentence } from "../../text/query-sentences.js";
import { requestCode } from "../../text/request-code.js";
import { SERIES } from "../../widgets/colours.js";
import { useInTurn } from "../../widgets/asking.js";
import { Bar, Copy, Failure } from "../../widgets/parts.js";

/**
 * @param {{database: string, container: string, result: any, text: string, keyed: string, paths: string[], total: number, onRerun: () => void}} props
 */
export function QueryAside({ database, container, result, text, keyed, paths, total, onRerun }) {
  const pages = result.pages;
  const parts = summed(pages.flatMap((/** @type {any} */ page) => page.parts), (each) => each.what);
  const visits = summed(pages.flatMap((/** @type {any} */ page) => page.partitions ?? []), (each) => String(each.id));
  const last = pages[pages.length - 1];
  return html`<section aria-label="Charge" data-test="charge-parts"><h2>Charge</h2>
      <p>${charge(result.chargeRu)} RU, of which:</p>
      <div class="stack" aria-hidden="true">${parts.map((each, at) => html`<span key=${each.what} style=${{ width: `${(ratio(each.ru, result.chargeRu) ?? 0) * 100}%`, background: SERIES[at % SERIES.length] }}></span>`)}</div>
      <table class="wrap"><tbody>${parts.map((each, at) => html`<tr key=${each.what} data-ru=${each.ru}><td><span class="swatch" style=${{ background: SERIES[at % SERIES.length] }}></span>${each.what}${each.count ? ` (${count(each.count)})` : ""}</td><td class="number">${charge(each.ru)}</td></tr>`)}</tbody></table>
    </section>
    <${Visits} visits=${visits} hasVisits=${pages.some((/** @type {any} */ page) => page.partitions)} total=${total} chargeRu=${result.chargeRu} keyed=${keyed} paths=${paths} />
    <${Indexes} database=${database} container=${container} indexes=${last.indexes} onApplied=${onRerun} />
    ${last.advice.length > 0 && html`<section><h2>Advice</h2><ul>${last.advice.map((/** @type {any} */ each) => html`<li key=${each.Id}>${ADVICE[each.Id] ?? each.Id} <span class="small">${each.Id}</span></li>`)}</ul></section>`}
    <${WhatIf} parts=${parts} visited=${visits.length} total=${total} keyed=${keyed} />
    <details><summary>Metrics</summary><dl class="facts">${last.metrics.split(";").filter(Boolean).map((/** @type {string} */ pair) => { const [name, value] = pair.split("="); return html`<dt>${name}</dt><dd>${value}</dd>`; })}</dl></details>
    ${requestCode(database, container, text, keyed).map(({ name, text: code }) => html`<details key=${name}><summary>${name}</summary><pre>${code}</pre><${Copy} text=${code} what=${`code for ${name}`} /></details>`)}`;
}

/** Entries of several pages added up by what they are about. @param {any[]} entries @param {(entry: any) => string} nameOf */
function summed(entries, nameOf) {
  /** @type {Map<string, any>} */
  const found = new Map();
  for (const each of entries) {
    const before = found.get(nameOf(each));
    if (!before) found.set(nameOf(each), { ...each });
    else for (const [name, value] of Object.entries(each)) if (typeof value === "number" && name !== "id") before[name] = (before[name] ?? 0) + value;
  }
  return [...found.values()].sort((a, b) => b.ru - a.ru);
}

/** @param {{visits: any[], hasVisits: boolean, total: number, chargeRu: number, keyed: string, paths: string[]}} props */
function Visits({ visits, hasVisits, total, chargeRu, keyed, paths }) {
  if (!hasVisits) return null;
  const most = Math.max(...visits.map((each) => each.ru), 0);
  const visited = visits.reduce((sum, each) => sum + (each.id === null ? each.count : 1), 0);
  return html`<section aria-label="Partitions visited"><h2>Partitions</h2>
    <p data-test="visited">${count(visited)} of ${count(total)}</p>
    <p>${visitSentence({ visited, total, visits, chargeRu, keyed, paths })}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Charge by partition"><table class="wrap"><thead><tr><th scope="col">Partition</th><th scope="col">RU</th><th scope="col" class="number">Loaded</th><th scope="col" class="number">Returned</th></tr></thead>
      <tbody>${visits.map((each) => html`<tr key=${String(each.id)} data-ru=${each.ru}><td>${each.id === null ? plural(each.count, "other") : each.id}</td><td><${Bar} share=${ratio(each.ru, most)} text=${charge(each.ru)} />${each.by && html`<div class="small">${each.by}</div>`}</td><td class="number">${count(each.loaded)}</td><td class="number">${count(each.returned)}</td></tr>`)}</tbody></table></div>
  </section>`;
}

/** @param {any} index */
const indexText = (index) => index.IndexSpec ?? (index.IndexSpecs ?? []).join(", ");

/** @param {{database: string, container: string, indexes: any, onApplied: () => void}} props */
function Indexes({ database, container, indexes, onApplied }) {
  const [proposal, setProposal] = useState(/** @type {any} */ (null));
  const { act, error } = useInTurn();
  if (!indexes) return null;
  const of = (/** @type {string} */ kind) => [...(indexes[kind]?.SingleIndexes ?? []), ...(indexes[kind]?.CompositeIndexes ?? [])];
  const possible = of("PotentialIndexes");
  const propose = () =>
    act(async () => {
      const definition = await readDefinition(database, container);
      setProposal({ definition, policy: withIndexes(definition.indexingPolicy, indexes.PotentialIndexes) });
    });
  const apply = () =>
    act(async () => {
      const { _rid, _self, _etag, _ts, _docs, _sprocs, _triggers, _udfs, _conflicts, ...kept } = proposal.definition;
      await replaceDefinition(database, container, { ...kept, indexingPolicy: proposal.policy });
      setProposal(null);
      onApplied();
    });
  return html`<section aria-label="Indexes"><h2>Indexes</h2>
    <dl class="facts"><dt>Used</dt><dd>${of("UtilizedIndexes").map(indexText).join("; ") || "none"}</dd><dt>Possible</dt><dd data-test="possible">${possible.map(indexText).join("; ") || "none"}</dd></dl>
    ${possible.length > 0 && !session.value.readOnly && html`<p><button type="button" class="quiet" onClick=${propose}>Show the changed policy</button></p>`}
    ${proposal && html`<pre>${JSON.stringify(proposal.policy, null, 2)}</pre><p><button type="button" onClick=${apply}>Apply the policy</button></p>`}
    <${Failure} error=${error} /></section>`;
}

/** A policy with the indexes that would help. @param {any} policy @param {any} potential */
export function withIndexes(policy, potential) {
  const singles = (potential?.SingleIndexes ?? []).map(indexText);
  const composites = (potential?.CompositeIndexes ?? []).map((/** @type {any} */ each) =>
    each.IndexSpecs.map((/** @type {string} */ spec) => {
      const [path, order = "ASC"] = spec.split(" ");
      return { path: path.replace(/\/\?$/, ""), order: order.toUpperCase().startsWith("DESC") ? "descending" : "ascending" };
    }),
  );
  const excluded = (policy.excludedPaths ?? []).filter((/** @type {any} */ each) => !singles.includes(each.path));
  const included = [...(policy.includedPaths ?? []), ...singles.filter((/** @type {string} */ path) => !(policy.includedPaths ?? []).some((/** @type {any} */ each) => each.path === path)).map((/** @type {string} */ path) => ({ path }))];
  return { ...policy, indexingMode: "consistent", automatic: true, includedPaths: included, excludedPaths: excluded, ...(composites.length > 0 ? { compositeIndexes: [...(policy.compositeIndexes ?? []), ...composites] } : {}) };
}

const VISIT_RU = 2.25;
const MANY = 40;

/** @param {{parts: any[], visited: number, total: number, keyed: string}} props */
function WhatIf({ parts, visited, total, keyed }) {
  const whole = parts.reduce((sum, each) => sum + each.ru, 0);
  if (visited === 0 || total === 0) return null;
  const isAll = visited === total && total > 1 && !keyed;
  const there = isAll ? whole + (MANY - total) * VISIT_RU : whole;
  return html`<section><h2>What if</h2><p>At ${MANY} partitions this query would cost about ${charge(Math.max(0, there))} RU${isAll ? ` (${percent(ratio(there - whole, whole))} more): each partition that is begun costs ${VISIT_RU}` : ": it visits those of its key alone"}. By the formula, not run.</p></section>`;
}

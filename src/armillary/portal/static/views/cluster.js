// The nodes of a cluster as this node sees them: who leads, how far the others are behind, and the replicated log.

import { html } from "../vendor/core.js";
import { control, reading, session } from "../data/client.js";
import { bytes, count, duration } from "../text/numbers.js";
import { useInTurn } from "../widgets/asking.js";
import { Failure, Stale, useData, useEvery } from "../widgets/parts.js";

const REFRESH_MS = 2000;

export default function Cluster() {
  const state = useData(reading("cluster"), []);
  useEvery(state.refresh, REFRESH_MS);
  const { act, error } = useInTurn();
  const ask = (/** @type {string} */ what, /** @type {string} */ node) => act(() => control("POST", `cluster/${what}`, { node }).then(state.again));
  const found = state.data;
  if (state.error?.status === 400) return html`<h1>Cluster</h1><p class="empty">${state.error.message}</p>`; // no node of one
  return html`<h1>Cluster</h1><${Stale} state=${state} /><${Failure} error=${error} />
    ${found && html`<dl class="facts"><dt>This node</dt><dd>${found.node}</dd><dt>Leader</dt><dd>${found.leader ?? "–"} (epoch ${count(found.epoch)})</dd><dt>Regions</dt><dd>${found.priorities.join(", then ")}</dd>
      <dt>Log</dt><dd>${found.log ? `rows ${count(found.log.lowestRow)} to ${count(found.log.newestRow)}, ${bytes(found.log.bytes)}${found.log.wantsSynchronousStandby && !found.log.hasSynchronousStandby ? "; the synchronous standby is missing" : ""}` : found.logError ?? "–"}</dd></dl>
      <table class="wrap"><thead><tr><th scope="col">Node</th><th scope="col">Region</th><th scope="col">Role</th><th scope="col">State</th><th scope="col" class="number">Behind, rows</th><th scope="col" class="number">Behind</th><th scope="col">Version</th><th scope="col"><span class="visually-hidden">Actions</span></th></tr></thead>
      <tbody>${found.nodes.map((/** @type {any} */ node) => html`<tr key=${node.name}><td>${node.name}</td><td>${node.region}</td><td>${node.role ?? "–"}</td><td>${node.alive ? (node.reached ? "alive" : "alive, not reached") : html`<span class="bad">silent for ${duration(node.silentSeconds)}</span>`}${node.drained ? ", drained" : ""}</td>
        <td class="number">${count(node.lagRows)}</td><td class="number">${duration(node.lagSeconds)}</td><td>${node.version ?? "–"}</td>
        <td class="tools">${!session.value.readOnly && html`<button type="button" class="quiet" onClick=${() => ask(node.drained ? "undrain" : "drain", node.name)}>${node.drained ? "Undrain" : "Drain"}</button>
          ${node.role === "follower" && html`<button type="button" class="quiet" onClick=${() => ask("failover", node.name)}>Let it lead</button>`}`}</td></tr>`)}</tbody></table>`}`;
}

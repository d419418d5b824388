// Every setting of the server with its value, where it comes from and what it means; the log-ins; and new keys of the
// account, in the order in which no client is left without one.

import { html, useState } from "../vendor/core.js";
import { choose, route } from "../data/address.js";
import { control, reading, session } from "../data/client.js";
import { quiet, setQuiet } from "../data/preferences.js";
import { duration, plural } from "../text/numbers.js";
import { Grid } from "../widgets/grid.js";
import { useInTurn } from "../widgets/asking.js";
import { Failure, Stale, useData, useEvery } from "../widgets/parts.js";

const LOG_INS_MS = 5000;

export default function Settings() {
  const { params } = route.value;
  const state = useData(reading("server"), []);
  const filter = (params.get("filter") ?? "").toLowerCase();
  const rows = (state.data?.settings ?? []).filter((/** @type {any} */ each) => `${each.name} ${each.meaning ?? ""}`.toLowerCase().includes(filter));
  return html`<h1>Settings</h1><${Stale} state=${state} />
    <p class="tools"><label>Filter <input type="search" value=${filter} onInput=${(/** @type {any} */ event) => choose({ filter: event.currentTarget.value })} /></label>
      <label class="check"><input type="checkbox" checked=${quiet.value} onChange=${(/** @type {any} */ event) => setQuiet(event.currentTarget.checked)} /> Quiet: pages that only show an overview read no items</label></p>
    <${Grid} label="settings" rows=${rows} keyOf=${(/** @type {any} */ row) => row.name} empty="No setting matches." sort=${params.get("sort") ?? ""} onSort=${(/** @type {string} */ sort) => choose({ sort })} columns=${[
      { id: "name", label: "Setting", value: (/** @type {any} */ row) => row.name },
      { id: "value", label: "Value", value: (/** @type {any} */ row) => row.value, text: (/** @type {any} */ row) => (row.isSecret ? "(secret)" : row.value === null ? "–" : String(row.value)) },
      { id: "from", label: "From", value: (/** @type {any} */ row) => row.from },
      { id: "meaning", label: "Meaning", value: (/** @type {any} */ row) => row.meaning, show: (/** @type {any} */ row) => html`<span title=${row.meaning}>${row.meaning}</span>` },
    ]} />
    <${LogIns} />
    ${!session.value.readOnly && html`<${NewKeys} />`}`;
}

function LogIns() {
  const state = useData(reading("session/log-ins"), []);
  useEvery(state.refresh, LOG_INS_MS);
  const { act, error } = useInTurn();
  const rows = state.data?.logIns ?? [];
  const leaveAll = () => act(async () => {
    await control("DELETE", "session?all=true");
    session.value = { status: "out", csrf: "", readOnly: false };
  });
  return html`<section aria-label="Log-ins"><h2>Log-ins</h2><${Stale} state=${state} /><${Failure} error=${error} />
    <${Grid} label="log-ins" rows=${rows} keyOf=${(/** @type {any} */ _, /** @type {number} */ index) => index} columns=${[
      { id: "address", label: "From", value: (/** @type {any} */ row) => row.address, text: (/** @type {any} */ row) => `${row.address}${row.isThis ? " (this browser)" : ""}` },
      { id: "begun", label: "Logged in", value: (/** @type {any} */ row) => row.begunSecondsAgo, text: (/** @type {any} */ row) => `${duration(row.begunSecondsAgo)} ago` },
      { id: "used", label: "Last used", value: (/** @type {any} */ row) => row.usedSecondsAgo, text: (/** @type {any} */ row) => `${duration(row.usedSecondsAgo)} ago` },
      { id: "may", label: "May", value: (/** @type {any} */ row) => (row.readOnly ? "read" : "change") },
    ]} />
    ${!session.value.readOnly && html`<p><button type="button" class="quiet" onClick=${leaveAll}>Log out all</button> <span class="small">Ends ${plural(rows.length, "log-in")}, this one included.</span></p>`}</section>`;
}

/** The steps of docs/security.md. */
const STEPS = [
  { key: "secondary", text: "Generate a secondary key, if clients have none yet." },
  { key: "", text: "Move all clients to the secondary key, at their own pace." },
  { key: "primary", text: "Generate a new primary key. Clients that still use the old one are refused from then on." },
  { key: "secondary", text: "Move the clients back to the primary key, and generate a new secondary key." },
];

function NewKeys() {
  const [done, setDone] = useState(/** @type {boolean[]} */ ([]));
  const [sure, setSure] = useState(-1);
  const { act, error } = useInTurn();
  const take = (/** @type {number} */ at) => {
    setSure(-1);
    void act(async () => {
      // The answer holds the new key, which is not kept here: the overview shows keys for a minute.
      if (STEPS[at].key) await control("POST", `account/keys/${STEPS[at].key}/regenerate`);
      setDone((before) => Object.assign([...before], { [at]: true }));
    });
  };
  return html`<section aria-label="New keys of the account"><h2>New keys of the account</h2>
    <p>No request fails on the way: clients use the key that is not being replaced. The overview shows the keys.</p>
    <ol data-test="key-steps">${STEPS.map(({ key, text }, at) => html`<li key=${at}>${text} ${done[at] ? html`<strong class="good">✓ done</strong>`
      : key === "" ? html`<button type="button" class="quiet" onClick=${() => take(at)}>They use the secondary key</button>`
      : sure === at ? html`<button type="button" onClick=${() => take(at)}>Replace the ${key} key now</button> <button type="button" class="quiet" onClick=${() => setSure(-1)}>Cancel</button>`
      : html`<button type="button" class="quiet" disabled=${at > 1 && !done[at - 1]} onClick=${() => setSure(at)}>Regenerate ${key}</button>`}</li>`)}</ol>
    <${Failure} error=${error} /></section>`;
}

// What tests of applications switch on: fault rules, the clock, and where splits stop.

import { html, useState } from "../vendor/core.js";
import { control, reading, session } from "../data/client.js";
import { choosePause, containers, readTesting, testing } from "../data/resources.js";
import { count, duration, localTime, utc } from "../text/numbers.js";
import { FAULT_EXAMPLES, ruleSentence } from "../text/fault-sentences.js";
import { useInTurn } from "../widgets/asking.js";
import { Failure, Field, Stale, useData, useEvery } from "../widgets/parts.js";
import { POINTS } from "./container/reshapes.js";

const REFRESH_MS = 2000;

export default function Testing() {
  const faults = useData(reading("faults"), []);
  const clock = useData(reading("clock"), []);
  const changes = useInTurn();
  useEvery(() => (faults.refresh(), clock.refresh()), REFRESH_MS);
  const act = (/** @type {() => Promise<any>} */ action) =>
    changes.act(async () => {
      try {
        await action();
      } finally {
        for (const each of [faults, clock]) each.again();
        await readTesting();
      }
    });
  return html`<h1>Testing</h1><${Failure} error=${changes.error} />
    <h2>Faults</h2><${Stale} state=${faults} />${faults.data && html`<${Rules} rules=${faults.data.faults} act=${act} />`}
    ${!session.value.readOnly && html`<${NewRule} act=${act} />`}
    <h2>Clock</h2><${Stale} state=${clock} />${clock.data && html`<${Clock} clock=${clock.data} act=${act} />`}
    <h2>Splits and merges stop at</h2>
    <${Pauses} act=${act} />`;
}

/** @param {{act: (action: () => Promise<any>) => void}} props */
function Pauses({ act }) {
  const { pauses } = testing.value;
  if (session.value.readOnly) return html`<p>${pauses.join(", ") || "no point"}</p>`;
  const set = (/** @type {string} */ point, /** @type {boolean} */ isOn) => act(choosePause(point, isOn));
  return html`<fieldset class="tools"><legend class="visually-hidden">Points</legend>
    ${POINTS.map(([point]) => html`<label key=${point} class="check"><input type="checkbox" checked=${pauses.includes(point)} onChange=${(/** @type {any} */ event) => set(point, event.currentTarget.checked)} /> ${point}</label>`)}</fieldset>`;
}

/** @param {{rules: any[], act: (action: () => Promise<any>) => void}} props */
function Rules({ rules, act }) {
  const { readOnly } = session.value;
  if (rules.length === 0) return html`<p class="empty">No rules: requests are answered as they are.</p>`;
  return html`<table class="wrap" data-test="rules"><thead><tr><th scope="col">Rule</th><th scope="col" class="number">Seen</th><th scope="col" class="number">Hit</th><th scope="col"><span class="visually-hidden">Actions</span></th></tr></thead>
    <tbody>${rules.map((rule) => html`<tr key=${rule.id}><td>${ruleSentence(rule)}${rule.spent ? " (used up)" : ""}</td><td class="number">${count(rule.seen)}</td><td class="number">${count(rule.hits)}</td>
      <td>${!readOnly && html`<button type="button" class="quiet" onClick=${() => act(() => control("DELETE", `faults/${rule.id}`))} aria-label=${`Delete rule ${rule.id}`}>Delete</button>`}</td></tr>`)}</tbody></table>
    ${!readOnly && html`<p><button type="button" class="quiet" onClick=${() => act(() => control("DELETE", "faults"))}>Delete all rules</button></p>`}`;
}

const OPERATIONS = ["", "write", "read", "create", "upsert", "replace", "patch", "delete", "batch", "query", "feed", "changes"];
const NUMBERS = [["every", "Every n-th"], ["skip", "Skip the first"], ["count", "At most"], ["retryAfterMs", "Retry after ms"], ["delayMs", "Delay ms"], ["range", "Partition"]];

/** @param {{act: (action: () => Promise<any>) => void}} props */
function NewRule({ act }) {
  const [rule, setRule] = useState(/** @type {Record<string, any>} */ ({ operations: "write", status: 429 }));
  const set = (/** @type {string} */ name, /** @type {any} */ value) => setRule(Object.fromEntries(Object.entries({ ...rule, [name]: value }).filter(([, each]) => each !== "" && each !== null && each !== false)));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    act(() => control("POST", "faults", sent(rule)));
  };
  const field = (/** @type {string} */ name, /** @type {string} */ label) => html`<${Field} key=${name} label=${label}><input name=${name} type="number" min="0" value=${rule[name] ?? ""} onInput=${(/** @type {any} */ event) => set(name, event.currentTarget.value === "" ? "" : Number(event.currentTarget.value))} /><//>`;
  return html`<details><summary>New rule</summary><form onSubmit=${submit} class="panel">
    <p class="tools">${FAULT_EXAMPLES.map(({ name, rule: example }) => html`<button type="button" class="quiet" key=${name} onClick=${() => setRule(example)}>${name}</button>`)}</p>
    <div class="columns">
      <${Field} label="Requests"><select name="operations" value=${rule.operations ?? ""} onChange=${(/** @type {any} */ event) => set("operations", event.currentTarget.value)}>${OPERATIONS.map((each) => html`<option key=${each} value=${each}>${each || "all"}</option>`)}</select><//>
      <${Field} label="Container"><select name="container" value=${rule.database ? `${rule.database}/${rule.container ?? ""}` : ""} onChange=${(/** @type {any} */ event) => { const [database, container] = event.currentTarget.value.split("/"); setRule({ ...rule, database: database || undefined, container: container || undefined }); }}>
        <option value="">all</option>${containers.value.map((each) => html`<option key=${`${each.database}/${each.name}`} value=${`${each.database}/${each.name}`}>${each.database}/${each.name}</option>`)}</select><//>
      <${Field} label="Key"><input name="key" value=${rule.key ?? ""} placeholder="JSON or text" onInput=${(/** @type {any} */ event) => set("key", event.currentTarget.value)} /><//>
      <${Field} label="Answer"><select name="status" value=${rule.status ?? ""} onChange=${(/** @type {any} */ event) => set("status", event.currentTarget.value === "" ? "" : Number(event.currentTarget.value))}><option value="">as it is</option>${[404, 408, 410, 429, 449, 500, 503].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select><//>
      ${NUMBERS.map(([name, label]) => field(name, label))}
    </div>
    <p class="tools"><label class="check"><input type="checkbox" checked=${Boolean(rule.drop)} onChange=${(/** @type {any} */ event) => set("drop", event.currentTarget.checked)} /> The connection ends without an answer</label>
      <label class="check"><input type="checkbox" checked=${Boolean(rule.after)} onChange=${(/** @type {any} */ event) => set("after", event.currentTarget.checked)} /> After the write was carried out</label></p>
    <p data-test="rule-sentence">${ruleSentence(sent(rule))}</p>
    <p><button type="submit">Make the rule</button></p>
  </form></details>`;
}

/** A rule as it is sent: its key as JSON where it is JSON. @param {Record<string, any>} rule */
function sent(rule) {
  const { key, ...rest } = rule;
  if (key === undefined || key === "") return rest;
  try {
    return { ...rest, key: JSON.parse(key) };
  } catch {
    return { ...rest, key };
  }
}

/** @param {{clock: any, act: (action: () => Promise<any>) => void}} props */
function Clock({ clock, act }) {
  const [seconds, setSeconds] = useState("60");
  const [until, setUntil] = useState("");
  const untilSeconds = new Date(until).getTime() / 1000;
  if (!clock.movable) return html`<p>The server's time is the machine's: ${utc(clock.nowSeconds)}. Start the server with <code>--clock movable</code> to stop and advance it.</p>`;
  const move = (/** @type {any} */ body) => act(() => control("POST", "clock", body));
  return html`<p data-test="clock">${utc(clock.nowSeconds)}${clock.frozen ? ", frozen" : ""}, ${duration(clock.aheadSeconds)} ahead of the machine.</p>
    <p class="small">TTL, budgets, the ends of resource tokens and change feeds from a time follow it. It never goes back.</p>
    ${!session.value.readOnly && html`<p class="tools">
      <button type="button" class="quiet" onClick=${() => move({ frozen: !clock.frozen })}>${clock.frozen ? "Let it go on" : "Freeze"}</button>
      ${[["+1 s", 1], ["+1 min", 60], ["+1 h", 3600], ["+1 d", 86400]].map(([label, step]) => html`<button type="button" class="quiet" key=${label} onClick=${() => move({ advanceSeconds: step })}>${label}</button>`)}
      <label class="check">by <input type="number" min="0" value=${seconds} onInput=${(/** @type {any} */ event) => setSeconds(event.currentTarget.value)} /> s</label>
      <button type="button" class="quiet" onClick=${() => move({ advanceSeconds: Number(seconds) })}>Advance</button>
      <label class="check">to <input type="datetime-local" step="1" min=${localTime(clock.nowSeconds)} value=${until} onInput=${(/** @type {any} */ event) => setUntil(event.currentTarget.value)} /></label>
      <button type="button" class="quiet" disabled=${!(untilSeconds > clock.nowSeconds)} onClick=${() => move({ advanceSeconds: untilSeconds - clock.nowSeconds })}>Advance to it</button></p>`}`;
}

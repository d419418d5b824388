// Stored procedures, triggers and functions: listed, edited, stored, deleted; procedures are run, by default keeping
// nothing, with their steps and charges.

import { html, useState } from "../../vendor/core.js";
import { choose, route } from "../../data/address.js";
import { containerPath, control, reading, session } from "../../data/client.js";
import { charge } from "../../text/numbers.js";
import { Editor } from "../../widgets/editor.js";
import { JsonText } from "../../widgets/json.js";
import { useInTurn } from "../../widgets/asking.js";
import { Failure, Field, Stale, speak, useData } from "../../widgets/parts.js";
import { parseKey } from "./items.js";

const KINDS = [["procedures", "Procedures"], ["triggers", "Triggers"], ["functions", "Functions"]];
const FIRST = {
  procedures: "function hello(name) {\n  const collection = getContext().getCollection();\n  collection.queryDocuments(collection.getSelfLink(), 'SELECT VALUE COUNT(1) FROM c',\n    (error, found) => getContext().getResponse().setBody({ hello: name, items: found[0] }));\n}\n",
  triggers: "function stamp() {\n  const request = getContext().getRequest();\n  const item = request.getBody();\n  item.stampedAt = new Date().toISOString();\n  request.setBody(item);\n}\n",
  functions: "function tax(amount) {\n  return amount * 0.19;\n}\n",
};

/** @param {{database: string, container: string}} props */
export default function Scripts({ database, container }) {
  const { params } = route.value;
  const path = `${containerPath(database, container)}/scripts`;
  const state = useData(reading(path), [database, container]);
  const kind = params.get("kind") ?? "procedures";
  const name = params.get("name");
  const script = state.data?.[kind]?.find((/** @type {any} */ each) => each.name === name);
  return html`<div class="split-view"><div>
      ${!name && html`<p class="empty">Choose a script, or begin with one of five lines.</p>`}
      ${name && (script || params.get("new")) && html`<${Script} key=${`${kind}/${name}`} path=${path} kind=${kind} name=${name} script=${script} onChanged=${state.again} />`}
      ${name && state.data && !script && !params.get("new") && html`<p>There is no such script (any more).</p>`}
    </div><nav aria-label="Scripts"><${Stale} state=${state} />
      ${state.data && KINDS.map(([id, label]) => html`<section key=${id}><h2>${label}</h2><ul class="events">${state.data[id].map((/** @type {any} */ each) => html`<li key=${each.name}><button type="button" class="quiet" aria-pressed=${kind === id && name === each.name ? "true" : "false"} onClick=${() => choose({ kind: id, name: each.name, new: null }, true)}>${each.name}</button></li>`)}</ul>
        ${state.data[id].length === 0 && html`<p class="small">none</p>`}
        ${!session.value.readOnly && html`<${NewScript} kind=${id} />`}</section>`)}
    </nav></div>`;
}

/** @param {{kind: string}} props */
function NewScript({ kind }) {
  const [name, setName] = useState("");
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    choose({ kind, name, new: "1" }, true);
    setName("");
  };
  return html`<form class="tools" onSubmit=${submit}><label><span class="visually-hidden">Name of a new one of ${kind}</span><input required placeholder="name" value=${name} onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /></label><button type="submit" class="quiet">New</button></form>`;
}

/** @param {{path: string, kind: string, name: string, script: any, onChanged: () => void}} props */
function Script({ path, kind, name, script, onChanged }) {
  const [body, setBody] = useState(script?.body ?? FIRST[/** @type {keyof typeof FIRST} */ (kind)]);
  const [when, setWhen] = useState(script?.triggerType ?? "Pre");
  const [operation, setOperation] = useState(script?.triggerOperation ?? "All");
  const { act, error } = useInTurn();
  const { readOnly } = session.value;
  const own = `${path}/${kind}/${encodeURIComponent(name)}`;
  const save = () => act(async () => {
    await control("PUT", own, { body, ...(kind === "triggers" ? { triggerType: when, triggerOperation: operation } : {}) });
    choose({ new: null });
    onChanged();
    speak("Stored");
  });
  const remove = () => act(async () => {
    await control("DELETE", own);
    choose({ name: null, new: null });
    onChanged();
  });
  return html`<h2>${name}</h2>
    <${Editor} value=${body} language="javascript" label="Script" readOnly=${readOnly} onEdit=${setBody} onRun=${save} />
    ${kind === "triggers" && html`<p class="tools"><label>When <select value=${when} onChange=${(/** @type {any} */ event) => setWhen(event.currentTarget.value)}><option>Pre</option><option>Post</option></select></label>
      <label>Operation <select value=${operation} onChange=${(/** @type {any} */ event) => setOperation(event.currentTarget.value)}>${["All", "Create", "Replace", "Delete", "Update"].map((each) => html`<option key=${each}>${each}</option>`)}</select></label></p>`}
    ${!readOnly && html`<p class="tools"><button type="button" onClick=${save}>Store</button>${script && html`<button type="button" class="quiet" onClick=${remove}>Delete</button>`}</p>`}
    <${Failure} error=${error} />
    ${kind === "procedures" && script && !readOnly && html`<${Run} path=${own} />`}`;
}

/** @param {{path: string}} props */
function Run({ path }) {
  const [key, setKey] = useState("");
  const [parameters, setParameters] = useState("[]");
  const [keeps, setKeeps] = useState(false);
  const [outcome, setOutcome] = useState(/** @type {any} */ (null));
  const { act, error } = useInTurn();
  const run = (/** @type {Event} */ event) => {
    event.preventDefault();
    void act(async () => {
      setOutcome(null);
      setOutcome(await control("POST", `${path}/run`, { ...(key ? { partitionKey: parseKey(key) } : {}), arguments: JSON.parse(parameters || "[]"), rehearsal: !keeps }));
    });
  };
  return html`<form class="panel" onSubmit=${run}><h3>Run</h3>
    <div class="columns"><${Field} label="Partition key"><input name="key" value=${key} onInput=${(/** @type {any} */ event) => setKey(event.currentTarget.value)} /><//>
      <${Field} label="Arguments, a JSON array"><input name="arguments" value=${parameters} onInput=${(/** @type {any} */ event) => setParameters(event.currentTarget.value)} /><//></div>
    <p class="tools"><label class="check"><input type="checkbox" checked=${keeps} onChange=${(/** @type {any} */ event) => setKeeps(event.currentTarget.checked)} /> For good: keep what it writes</label>
      <button type="submit">${keeps ? "Run for good" : "Dry run"}</button></p>
    <${Failure} error=${error} />
    ${outcome && html`<div data-test="outcome">
      <p>${outcome.failure ? html`<span class="bad">${outcome.failure}</span>` : "It has answered."} ${charge(outcome.chargeRu)} RU. ${outcome.kept ? "What it wrote is kept." : "Nothing was kept."}</p>
      ${outcome.response !== undefined && html`<${JsonText} text=${JSON.stringify(outcome.response, null, 2)} label="Answer" />`}
      ${outcome.log && html`<h3>Log</h3><pre>${outcome.log}</pre>`}
      ${outcome.steps?.length > 0 && html`<h3>Steps</h3><table class="wrap"><tbody>${outcome.steps.map((/** @type {any} */ step, /** @type {number} */ at) => html`<tr key=${at}><td>${at + 1}</td><td class="code">${JSON.stringify(step)}</td></tr>`)}</tbody></table>`}</div>`}
  </form>`;
}

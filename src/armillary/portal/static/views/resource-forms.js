// Forms that create, scale and delete databases and containers. A refusal is shown beside the field that caused it,
// and the form keeps what was typed.

import { html, useState } from "../vendor/core.js";
import { go, viewPath } from "../data/address.js";
import { containerPath, control } from "../data/client.js";
import { databases, readResources } from "../data/resources.js";
import { count, plural } from "../text/numbers.js";
import { initialPartitions, partitionRu, scaledSentence } from "../text/throughput.js";
import { Dialog, Failure, Field } from "../widgets/parts.js";

const DEFINITION = `{
  "indexingPolicy": {
    "indexingMode": "consistent",
    "automatic": true,
    "includedPaths": [{ "path": "/*" }],
    "excludedPaths": [{ "path": "/\\"_etag\\"/?" }]
  }
}`;

/** A form in a dialog. @param {{title: string, action: string, danger?: boolean, isReady?: boolean, onSubmit: () => Promise<void>, onClose: () => void, children?: any}} props */
function FormDialog({ title, action, danger, isReady = true, onSubmit, onClose, children }) {
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onSubmit();
      await readResources();
      onClose();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${submit}>
    ${children}<${Failure} error=${error} />
    <p><button type="submit" class=${danger ? "danger" : ""} disabled=${isBusy || !isReady}>${action}</button></p>
  </form><//>`;
}

/** @param {{kind: string, ru: string, onKind: (kind: string) => void, onRu: (ru: string) => void, mayBeNone: string, hint?: any}} props */
const ThroughputFields = ({ kind, ru, onKind, onRu, mayBeNone, hint }) => html`
  <${Field} label="Throughput"><select name="kind" value=${kind} onChange=${(/** @type {any} */ event) => onKind(event.currentTarget.value)}>
    ${mayBeNone && html`<option value="none">${mayBeNone}</option>`}
    <option value="throughput">manual</option><option value="autoscale">autoscale, up to</option>
  </select><//>
  ${kind !== "none" && html`<${Field} label="RU/s" hint=${hint}><input name="ru" type="number" min="1" required value=${ru} onInput=${(/** @type {any} */ event) => onRu(event.currentTarget.value)} /><//>`}
`;

/** @param {string} kind @param {string} ru */
const throughputOf = (kind, ru) => (kind === "none" ? {} : { [kind]: Number(ru) });

/** @param {{onClose: () => void}} props */
export function CreateDatabase({ onClose }) {
  const [name, setName] = useState("");
  const [kind, setKind] = useState("none");
  const [ru, setRu] = useState("400");
  return html`<${FormDialog} title="New database" action="Create" onClose=${onClose}
    onSubmit=${() => control("POST", "databases", { name, ...throughputOf(kind, ru) })}>
    <${Field} label="Name"><input name="name" required autofocus value=${name} onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /><//>
    <${ThroughputFields} kind=${kind} ru=${ru} onKind=${setKind} onRu=${setRu} mayBeNone="of each container's own" />
  <//>`;
}

/** @param {{onClose: () => void}} props */
export function CreateContainer({ onClose }) {
  const known = databases.value ?? [];
  const [database, setDatabase] = useState(known[0]?.name ?? "");
  const [name, setName] = useState("");
  const [paths, setPaths] = useState([""]);
  const [isFixed, setFixed] = useState(false);
  const [kind, setKind] = useState("throughput");
  const [ru, setRu] = useState("400");
  const [definition, setDefinition] = useState(DEFINITION);
  const [problem, setProblem] = useState("");
  const partitions = initialPartitions(Number(ru) || 0, kind === "autoscale");
  const hint = html`<span data-test="partitions-made">${kind === "none" ? "" : isFixed ? "1 partition" : plural(partitions, "partition")}</span>, ${count((Number(ru) || 0) / (isFixed ? 1 : partitions))} RU/s each`;
  const submit = async () => {
    setProblem("");
    let parsed = {};
    try {
      parsed = JSON.parse(definition || "{}");
    } catch (error) {
      setProblem(String(error.message));
      throw new Error("The definition is not JSON.");
    }
    if (!known.some((each) => each.name === database)) await control("POST", "databases", { name: database });
    const key = isFixed ? { fixed: true } : { partitionKey: paths.filter(Boolean) };
    await control("POST", `databases/${encodeURIComponent(database)}/containers`, { name, ...key, ...throughputOf(kind, ru), definition: parsed });
    await readResources();
    go(viewPath(database, name, "partitions"));
  };
  const setPath = (/** @type {number} */ at, /** @type {string} */ text) => setPaths(paths.map((each, index) => (index === at ? text : each)));
  return html`<${FormDialog} title="New container" action="Create" onSubmit=${submit} onClose=${onClose}>
    <${Field} label="Database" hint="A database that does not exist is created too."><input name="database" required list="known-databases" value=${database} onInput=${(/** @type {any} */ event) => setDatabase(event.currentTarget.value)} /><//>
    <datalist id="known-databases">${known.map((each) => html`<option key=${each.name} value=${each.name}></option>`)}</datalist>
    <${Field} label="Container"><input name="container" required value=${name} onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)} /><//>
    <label class="check"><input type="checkbox" checked=${isFixed} onChange=${(/** @type {any} */ event) => setFixed(event.currentTarget.checked)} /> Fixed: one partition without a key</label>
    ${!isFixed && paths.map((path, at) => html`<${Field} key=${at} label=${at === 0 ? "Partition key path" : `Path of level ${at + 1}`}>
      <input name=${`path${at}`} required=${at === 0} placeholder="/customerId" value=${path} onInput=${(/** @type {any} */ event) => setPath(at, event.currentTarget.value)} /><//>`)}
    ${!isFixed && paths.length < 3 && html`<p><button type="button" class="quiet" onClick=${() => setPaths([...paths, ""])}>Add a level</button></p>`}
    <${ThroughputFields} kind=${kind} ru=${ru} onKind=${setKind} onRu=${setRu} mayBeNone="none of its own (the database's)" hint=${hint} />
    <details><summary>Policies as JSON</summary>
      <${Field} label="Definition" failure=${problem} hint='Indexing policy, "defaultTtl" in seconds, unique keys, as in the SQL API.'>
        <textarea name="definition" rows="9" class="code" value=${definition} onInput=${(/** @type {any} */ event) => setDefinition(event.currentTarget.value)}></textarea><//>
    </details>
  <//>`;
}

/** @param {{database: string, container?: string, throughput: import("../data/shapes.js").Throughput, partitionCount?: number, onClose: () => void}} props */
export function ScaleResource({ database, container, throughput, partitionCount, onClose }) {
  const [ru, setRu] = useState(String(throughput.ru));
  const path = container === undefined ? `databases/${encodeURIComponent(database)}` : containerPath(database, container);
  const kind = throughput.autoscale ? "autoscale" : "throughput";
  return html`<${FormDialog} title=${`Scale ${container === undefined ? database : `${database}/${container}`}`} action="Apply" onClose=${onClose}
    onSubmit=${() => control("PUT", `${path}/throughput`, { [kind]: Number(ru) })}>
    <${Field} label=${throughput.autoscale ? "Autoscale, up to RU/s" : "RU/s"} hint=${`At least ${count(throughput.minimumRu)}. A partition carries up to ${count(partitionRu())} RU/s.`}>
      <input name="ru" type="number" required value=${ru} onInput=${(/** @type {any} */ event) => setRu(event.currentTarget.value)} /><//>
    ${partitionCount !== undefined && Number(ru) > 0 && html`<p data-test="scale-effect">${scaledSentence(Number(ru), partitionCount)}</p>`}
  <//>`;
}

/** @param {{database: string, container?: string, onClose: () => void}} props */
export function DeleteResource({ database, container, onClose }) {
  const [typed, setTyped] = useState("");
  const name = container ?? database;
  const path = container === undefined ? `databases/${encodeURIComponent(database)}` : containerPath(database, container);
  const submit = async () => {
    await control("DELETE", path);
    go("");
  };
  return html`<${FormDialog} title=${`Delete ${container === undefined ? "database" : "container"}`} action="Delete" danger=${true} isReady=${typed === name} onSubmit=${submit} onClose=${onClose}>
    <p>All items of <strong>${container === undefined ? database : `${database}/${container}`}</strong> are deleted. Type its name: <code>${name}</code></p>
    <${Field} label="Name"><input name="name" required autocomplete="off" value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} /><//>
  <//>`;
}

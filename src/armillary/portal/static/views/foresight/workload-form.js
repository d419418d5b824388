// The workload as fields of a form, and as the JSON of its file: both change the same content. What the form has no
// field for stays as the JSON has it.

import { html, useState } from "../../vendor/core.js";
import { PROVISIONS, REQUESTS, changeWorkload, plan, provisionOf, rateOf, setKey, setProvision, setRate } from "../../data/workload.js";
import { Failure, Field } from "../../widgets/parts.js";

const KINDS = /** @type {Record<string, string>} */ ({ "": "none: find it", throughput: "manual", autoscale: "autoscale", serverless: "serverless" });
const RU_AT_FIRST = { throughput: 20000, autoscale: 20000 };

export function WorkloadForm() {
  const { workload } = plan.value;
  const set = (/** @type {(workload: any, value: string) => void} */ change) => (/** @type {any} */ event) => {
    const { value } = event.currentTarget;
    changeWorkload((each) => change(each, value));
  };
  const number = (/** @type {string} */ name, /** @type {any} */ value, /** @type {(workload: any, value: number) => void} */ change, /** @type {any} */ more = {}) =>
    html`<input name=${name} type="number" min="0" step="any" ...${more} value=${value ?? ""} onInput=${set((each, text) => change(each, Number(text)))} />`;
  const keys = workload.data?.keys ?? {};
  const isNamed = "zipf" in keys || "uniform" in keys;
  const setKeys = (/** @type {any} */ each, /** @type {number} */ count, /** @type {number} */ zipf) =>
    (each.data.keys = { ...("second_level" in keys ? { second_level: keys.second_level } : {}), ...(zipf > 0 ? { zipf, count } : { uniform: count }) });
  const [count, zipf] = [keys.count ?? keys.uniform, keys.zipf ?? 0];
  const kind = provisionOf(workload);
  return html`<form class="columns" aria-label="Workload" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <fieldset class="panel"><legend>Requests a second</legend>
      ${Object.entries(REQUESTS).map(([which, label]) => html`<${Field} key=${which} label=${label}>${number(which, rateOf(workload, which), (each, rate) => setRate(each, which, rate))}<//>`)}
    </fieldset>
    <fieldset class="panel"><legend>Data</legend>
      <${Field} label="Stored at the start" hint="Such as 500GB."><input name="size" value=${workload.data?.size ?? "0GB"} onChange=${set((each, text) => (each.data.size = text))} /><//>
      <${Field} label="Bytes of an item">${number("itemBytes", workload.data?.item_bytes, (each, value) => (each.data.item_bytes = value), { min: 1, step: 1 })}<//>
      <${Field} label="Index terms of an item">${number("terms", workload.data?.terms ?? 10, (each, value) => (each.data.terms = value), { step: 1 })}<//>
    </fieldset>
    <fieldset class="panel"><legend>Partition key</legend>
      <${Field} label="Path" hint="Up to three, with commas: a hierarchical key."><input name="key" value=${(workload.container?.partition_key ?? []).join(",")} onChange=${set((each, text) => setKey(each, text.split(",").map((path) => path.trim()).filter(Boolean)))} /><//>
      ${isNamed ? html`<${Field} label="Values of the key">${number("keys", count, (each, value) => setKeys(each, value, zipf), { min: 1, step: 1 })}<//>
        <${Field} label="Skew (Zipf exponent)" hint="0: all have the same weight. 1: the second has half of the first.">${number("zipf", zipf, (each, value) => setKeys(each, count, value), { max: 5 })}<//>`
        : html`<p class="small">The shares of its values are given in the JSON.</p>`}
    </fieldset>
    <fieldset class="panel"><legend>Throughput</legend>
      <${Field} label="Kind"><select name="kind" value=${kind} onChange=${set((each, text) => setProvision(each, text, workload.container[kind] > 1 ? workload.container[kind] : RU_AT_FIRST[/** @type {"throughput"} */ (text)]))}>
        ${["", ...PROVISIONS].map((each) => html`<option key=${each} value=${each}>${KINDS[each]}</option>`)}</select><//>
      ${(kind === "throughput" || kind === "autoscale") && html`<${Field} label=${kind === "autoscale" ? "At most, RU/s" : "Provisioned RU/s"}>${number("ru", workload.container[kind], (each, value) => (each.container[kind] = value), { min: 100, step: 100 })}<//>`}
    </fieldset>
  </form>
  <details><summary>As JSON: all that a workload file can say</summary><${Json} /></details>`;
}

function Json() {
  const { workload } = plan.value;
  const shown = JSON.stringify(workload, null, 2);
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const take = (/** @type {any} */ event) => {
    const text = event.currentTarget.value;
    setTyped(text);
    try {
      const content = JSON.parse(text);
      if (typeof content !== "object" || content === null || !content.container || !content.data) throw new Error("a workload has a container and data");
      setError(null);
      plan.value = { ...plan.value, workload: content };
    } catch (failure) {
      setError({ message: `This is not used yet: ${failure.message}.` });
    }
  };
  const leave = () => error === null && setTyped(null);
  return html`<textarea class="code" aria-label="Workload as JSON" rows="16" cols="90" spellcheck=${false} value=${typed ?? shown} onInput=${take} onBlur=${leave}></textarea><${Failure} error=${error} />`;
}

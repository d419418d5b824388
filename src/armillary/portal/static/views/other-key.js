// Another key for the same items: a sample of a container's items, hashed by the paths that are typed and laid onto even
// partitions by the server. Nothing is written.

import { html, useState } from "../vendor/core.js";
import { choose, route } from "../data/address.js";
import { containerPath, reading } from "../data/client.js";
import { bytes, count, cut, percent, plural } from "../text/numbers.js";
import { PartitionBars } from "../widgets/bars.js";
import { Failure, useData } from "../widgets/parts.js";
import { Strip } from "../widgets/strip.js";

/** @param {{names: string[]}} props */
export function OtherKey({ names }) {
  const { params } = route.value;
  const name = names.includes(params.get("of") ?? "") ? String(params.get("of")) : names[0];
  const paths = params.get("key") ?? "";
  const [typed, setTyped] = useState(paths);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    choose({ key: typed.trim() });
  };
  return html`<section aria-label="Another key for the same items"><h2>Another key for the same items</h2>
    <form class="tools" onSubmit=${submit}>
      <label>Items of <select name="of" value=${name} onChange=${(/** @type {any} */ event) => choose({ of: event.currentTarget.value })}>${names.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <label>by <input name="key" value=${typed} placeholder="/customerId, or /tenant,/user" onInput=${(/** @type {any} */ event) => setTyped(event.currentTarget.value)} /></label>
      <button type="submit">Show</button>
    </form>
    ${paths && html`<${Sampled} key=${`${name} ${paths}`} name=${name} paths=${paths} />`}</section>`;
}

/** @param {{name: string, paths: string}} props */
function Sampled({ name, paths }) {
  const [database, container = ""] = name.split("/");
  const state = useData(reading(`${containerPath(database, container)}/sample/keys?paths=${encodeURIComponent(paths)}`), [name, paths]);
  const found = state.data;
  if (!found) return html`<${Failure} error=${state.error} />${state.isLoading && html`<p data-test="loading">…</p>`}`;
  if (found.sampled === 0) return html`<p class="empty">${name} has no items to take a sample of.</p>`;
  const total = found.partitions.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.bytes, 0);
  const partitions = found.partitions.map((/** @type {any} */ each) => ({ ...each, budgetRu: null, spentRu: 0, requests: 0, refused: 0, wouldBeRefused: 0 }));
  const fullest = partitions.reduce((/** @type {any} */ a, /** @type {any} */ b) => (b.bytes > a.bytes ? b : a));
  const label = `${name} by ${found.paths.join(", ")}`;
  return html`<div data-test="other-key">
    <p><strong>Sample of ${count(found.sampled)}</strong> of ${plural(found.of, "item")}, by ${found.paths.map((/** @type {string} */ each) => html`<code key=${each}>${each}</code> `)}on ${plural(partitions.length, "even partition")}. Light filling: share of the bytes.</p>
    <${Strip} partitions=${partitions} reshapes=${[]} limitBytes=${total} label=${label} sentence=${`${plural(partitions.length, "partition")}. The fullest is ${fullest.id}, with ${percent(fullest.bytes / total)} of the sample.`} />
    <dl class="facts"><dt>Distinct keys</dt><dd>${count(found.distinct)}, as uneven as ${count(found.effectiveKeys, 1)} of equal size</dd>
      <dt>Largest key</dt><dd>${cut(String(found.topKey), 60)}: ${percent(found.topShare)} of the ${bytes(total)}</dd>
      ${found.missing > 0 && html`<dt>Without a value</dt><dd>${plural(found.missing, "item")}</dd>`}</dl>
    <${PartitionBars} partitions=${partitions} measure="bytes" label=${label} /></div>`;
}

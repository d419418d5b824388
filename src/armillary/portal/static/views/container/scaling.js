// Another throughput, and what it would do before it is applied: partitions, the share of each, and what of the last
// hour's load would have been refused. Also the mode of the budget and its buckets.

import { html, useEffect, useState } from "../../vendor/core.js";
import { control } from "../../data/client.js";
import { readResources } from "../../data/resources.js";
import { shortBound } from "../../text/hashes.js";
import { money, pricesSentence } from "../../text/money.js";
import { count, percent, plural } from "../../text/numbers.js";
import { partitionRu, scaledSentence } from "../../text/throughput.js";
import { useInTurn } from "../../widgets/asking.js";
import { Choice, Failure, Field } from "../../widgets/parts.js";

const PREVIEW_AFTER_MS = 200;
const BUCKETS = ["1", "2", "3", "4", "5"];

/** Changes that are sent, after each of which the containers are read again. */
function useChanges() {
  const { act, error } = useInTurn();
  return { error, change: (/** @type {string} */ path, /** @type {any} */ body) => act(() => control("PUT", path, body).then(readResources)) };
}

/** @param {{path: string, about: import("../../data/shapes.js").Container}} props */
export function Scaling({ path, about }) {
  const offer = /** @type {import("../../data/shapes.js").Throughput} */ (about.throughput);
  const [ru, setRu] = useState(String(offer.ru));
  const { change, error } = useChanges();
  const kind = offer.autoscale ? "autoscale" : "throughput";
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void change(`${path}/throughput`, { [kind]: Number(ru) });
  };
  const most = Math.max(offer.ru * 4, about.partitionCount * partitionRu() * 2);
  const isLow = Number(ru) < offer.minimumRu;
  const set = (/** @type {any} */ event) => setRu(event.currentTarget.value);
  return html`<form class="panel" onSubmit=${submit}>
    <${Field} label=${offer.autoscale ? "Autoscale, up to RU/s" : "RU/s"} hint=${isLow ? `Below the minimum of ${count(offer.minimumRu)}.` : scaledSentence(Number(ru) || 0, about.partitionCount)}>
      <input name="ru" type="number" required value=${ru} onInput=${set} /><//>
    <input type="range" aria-label=${offer.autoscale ? "Autoscale maximum" : "RU/s"} min=${offer.minimumRu} max=${most} step=${offer.autoscale ? 1000 : 100} value=${ru} onInput=${set} />
    ${!isLow && html`<${Preview} path=${path} kind=${kind} ru=${Number(ru) || 0} />`}
    <${Failure} error=${error} /><p><button type="submit">Apply</button></p>
  </form>`;
}

/** @param {{path: string, kind: string, ru: number}} props */
function Preview({ path, kind, ru }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => {
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        setFound(await control("GET", `${path}/throughput/preview?${kind}=${ru}`, undefined, { signal: controller.signal }));
        setError(null);
      } catch (failure) {
        if (failure.name !== "AbortError") setError(failure);
      }
    }, PREVIEW_AFTER_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [path, kind, ru]);
  if (error) return html`<p class="small">${error.message}</p>`;
  if (!found) return null;
  const { partitions, partitionsNow, worst, monthly } = found;
  const cost = (/** @type {number} */ amount) => money(amount, monthly.prices.currency);
  return html`<dl class="facts" data-test="preview" data-ru=${found.ru}>
    <dt>Partitions</dt><dd>${partitions === partitionsNow ? count(partitions) : `${count(partitions)} instead of ${count(partitionsNow)}`}, each with ${count(found.shareRu)} RU/s</dd>
    <dt>Last hour</dt><dd>${found.requests === 0 ? "Nothing was asked." : html`At least ${count(found.refused)} of ${plural(found.requests, "request")} (${percent(found.refusedShare)}) would have been refused${found.refused > 0 ? html`; most in the hashes from ${shortBound(worst.low)} to ${shortBound(worst.high)}: ${percent(worst.refusedShare)}` : ""}.`}
      ${found.columnSeconds && html`<div class="small">A lower bound: load is known by ${found.columnSeconds} s, and bursts within them are not seen.</div>`}</dd>
    <dt>In Azure</dt><dd>${monthly.least === monthly.most ? cost(monthly.most) : `${cost(monthly.least)} to ${cost(monthly.most)}`} a month, without storage<div class="small">${monthly.warning ?? pricesSentence(monthly.prices)}</div></dd>
  </dl>`;
}

/** @param {{path: string, about: import("../../data/shapes.js").Container}} props */
export function Mode({ path, about }) {
  const { change, error } = useChanges();
  return html`<div class="panel"><p>Requests over budget</p>
    <${Choice} label="Mode" value=${about.mode} onChange=${(/** @type {string} */ mode) => change(`${path}/mode`, { mode })} options=${[["enforce", "get 429"], ["observe", "pass, counted"], ["off", "are not noticed"]]} />
    <${Failure} error=${error} /><${Buckets} path=${path} buckets=${about.buckets ?? {}} /></div>`;
}

/** Shares of the budget for requests that name a bucket. @param {{path: string, buckets: Record<string, number>}} props */
function Buckets({ path, buckets }) {
  const { change, error } = useChanges();
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    const shares = BUCKETS.map((name) => /** @type {[string, number]} */ ([name, Number(given.get(name))])).filter(([, share]) => share > 0);
    void change(`${path}/buckets`, Object.fromEntries(shares));
  };
  const used = Object.keys(buckets).length;
  return html`<details data-test="buckets"><summary>Throughput buckets${used > 0 ? `: ${used}` : ""}</summary>
    <form onSubmit=${submit}><p class="small">Percent of the budget that requests of a bucket may spend; empty: no bucket.</p>
      <p class="tools">${BUCKETS.map((name) => html`<label key=${name}>${name} <input name=${name} type="number" min="1" max="100" size="3" value=${buckets[name] ?? ""} /></label>`)}</p>
      <${Failure} error=${error} /><p><button type="submit" class="quiet">Set buckets</button></p></form></details>`;
}

// The sample of the documentation: 600 orders in two containers, once by customer (a good key) and once by country.

import { html, useState } from "../vendor/core.js";
import { go } from "../data/address.js";
import { control } from "../data/client.js";
import { upsertItems } from "../data/items.js";
import { databases, readResources } from "../data/resources.js";
import { SAMPLE_ORDERS, sampleOrder } from "../text/samples.js";
import { Failure } from "../widgets/parts.js";

const AT_ONCE = 6;
const BATCH = 100; // items, the most of a transaction

/** The orders of each key, in parts that are written at once. @param {"customerId" | "country"} field */
function batchesBy(field) {
  /** @type {Map<string, any[]>} */
  const byKey = new Map();
  for (let number = 0; number < SAMPLE_ORDERS; number += 1) {
    const order = sampleOrder(number);
    byKey.set(order[field], [...(byKey.get(order[field]) ?? []), order]);
  }
  const parts = (/** @type {any[]} */ orders) => Array.from({ length: Math.ceil(orders.length / BATCH) }, (_, at) => orders.slice(at * BATCH, (at + 1) * BATCH));
  return [...byKey].flatMap(([key, orders]) => parts(orders).map((part) => ({ key, orders: part })));
}

/** @param {string} container @param {"customerId" | "country"} field @param {(done: number) => void} onDone */
async function fill(container, field, onDone) {
  const left = batchesBy(field);
  let done = 0;
  const work = async () => {
    for (let batch = left.pop(); batch; batch = left.pop()) {
      await upsertItems("shop", container, batch.orders, [batch.key]);
      onDone((done += batch.orders.length));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

export function LoadSample() {
  const [done, setDone] = useState(-1);
  const [error, setError] = useState(/** @type {any} */ (null));
  const load = async () => {
    setError(null);
    setDone(0);
    try {
      if (!databases.value?.some((each) => each.name === "shop")) await control("POST", "databases", { name: "shop" });
      for (const [name, path] of [["orders", "/customerId"], ["orders-by-country", "/country"]]) {
        await control("POST", "databases/shop/containers", { name, partitionKey: path, throughput: 20000 });
      }
      await fill("orders", "customerId", setDone);
      await fill("orders-by-country", "country", (number) => setDone(SAMPLE_ORDERS + number));
      await readResources();
      go("c/shop/orders/partitions");
    } catch (failure) {
      setError(failure);
      setDone(-1);
    }
  };
  return html`<p><button type="button" disabled=${done >= 0} onClick=${load}>Load the sample</button>
    ${done >= 0 && html` <progress max=${2 * SAMPLE_ORDERS} value=${done} aria-label="Orders written"></progress>`}</p>
    <${Failure} error=${error} />`;
}

// The advice: the server's sentence, and a card for each key by its verdict. A card unfolds into the partitions that
// the rows would lie on, the reasons with their examples, and the figures with their intervals.

import { html, useEffect, useState } from "../../vendor/core.js";
import { choose, route, viewPath } from "../../data/address.js";
import { BASE } from "../../data/client.js";
import { advice } from "../../data/jobs.js";
import { linesOf, upload } from "../../data/rows-of-file.js";
import { plan } from "../../data/workload.js";
import { money, pricesSentence } from "../../text/money.js";
import { bytes, count, isKnown, percent, plural } from "../../text/numbers.js";
import { pathInQuery } from "../../text/paths.js";
import { PartitionBars } from "../../widgets/bars.js";
import { Strip } from "../../widgets/strip.js";
import { JobLine } from "./job-line.js";
import { file, isFile } from "./source.js";

const VERDICTS = /** @type {[string, string, string][]} */ ([["good", "Good", "good"], ["care", "Usable with care", "warn"], ["undecided", "Undecided", ""], ["poor", "Poor", "bad"], ["impossible", "Impossible", "bad"]]);
const HASHES = 1n << 126n;

/** @param {string | null} text @param {string} separator */
const listed = (text, separator) => (text ?? "").split(separator).map((each) => each.trim()).filter(Boolean);

/** The body of the question, without its rows. @param {URLSearchParams} params */
function options(params) {
  const kind = params.get("requests");
  return {
    ...(params.get("size") ? { size: params.get("size") } : {}),
    ...(params.get("growth") ? { growth: params.get("growth") } : {}),
    ...(params.get("horizon") ? { horizon: params.get("horizon") } : {}),
    must: listed(params.get("must"), ","),
    never: listed(params.get("never"), ","),
    candidates: listed(params.get("candidates"), " "),
    ...(kind === "rates" ? { workload: plan.value.workload } : {}),
    ...(kind === "capture" && params.get("capture") ? { capture: params.get("capture") } : {}),
  };
}

export function Candidates() {
  const { params } = route.value;
  const { state, result, id } = advice.now.value;
  useEffect(() => {
    const known = params.get("advice");
    if (state === "none" && known && !result) void advice.follow(known);
  }, []);
  useEffect(() => {
    if (id) choose({ advice: id });
  }, [id]);
  const name = params.get("of") ?? "";
  const isReady = isFile(params) ? file.value !== null : name !== "";
  const begin = () => advice.begin("advice", async (signal) => {
    if (!isFile(params)) return { container: name, ...options(params) };
    advice.say("The file is read");
    const lines = await linesOf(/** @type {File} */ (file.value));
    const sent = await upload(lines, signal, (size) => advice.say(`The file is sent: ${bytes(size)} of ${bytes(lines.size)}`));
    return { upload: sent, ...options(params) };
  });
  return html`<p class="tools"><button type="button" disabled=${!isReady || advice.isBusy} onClick=${begin}>Judge the keys</button>
      <span>${isReady ? `Rows of ${isFile(params) ? file.value?.name : name}; ${{ rates: "requests by planned rates", capture: `requests of the capture ${params.get("capture") ?? "–"}` }[params.get("requests") ?? ""] ?? "requests not known"}.` : "Choose a source first."}</span></p>
    <${JobLine} runner=${advice} what="The advice" />
    ${result ? html`<${Advice} found=${result} />` : state === "none" && html`<p class="empty">No key was judged yet. Read 1,000 rows at least.</p>`}`;
}

/** @param {{found: any}} props */
function Advice({ found }) {
  const { prices } = found.inputs;
  return html`<section aria-label="Advice" data-test="advice" data-best=${found.best ?? ""}>
    <p class=${found.best ? "good" : "note"} data-test="advice-text"><strong>${found.text}</strong></p>
    ${found.undecided.map((/** @type {string} */ each) => html`<p key=${each} class="note">${each}.</p>`)}
    ${found.conditions.map((/** @type {string} */ each) => html`<p key=${each}>${each}.</p>`)}
    ${found.wouldChange.map((/** @type {string} */ each) => html`<p key=${each}>${each}.</p>`)}
    ${found.warnings.map((/** @type {string} */ each) => html`<p key=${each} class="note">${each}</p>`)}
    <p class="small">${plural(found.rows.read, "row")} of ${found.inputs.source}, ${bytes(found.rows.itemBytes)} each${found.rows.sampled < found.rows.read ? `, ${count(found.rows.sampled)} of them in the sample` : ""}; ${bytes(found.inputs.horizonBytes)} in ${plural(Math.round(found.inputs.horizonDays), "day")}.</p>
    ${VERDICTS.map(([word, label, look]) => {
      const cards = found.candidates.filter((/** @type {any} */ each) => each.verdict === word);
      return cards.length > 0 && html`<h3 key=${word} class=${look}>${label}</h3>${cards.map((/** @type {any} */ each) => html`<${Card} key=${each.key} card=${each} found=${found} />`)}`;
    })}
    ${found.dropped > 0 && html`<p class="small">${plural(found.dropped, "more key")}, each no better than one of these in any figure.</p>`}
    <details><summary>What was assumed</summary><ul>${[...found.assumptions, ...Object.values(found.restsOn)].map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}</ul></details>
    <p class="small">${pricesSentence(prices)}</p>
  </section>`;
}

/** @param {{card: any, found: any}} props */
function Card({ card, found }) {
  const [isOpen, setOpen] = useState(false); // what is folded is not drawn: there may be 64 cards
  const { currency } = found.inputs.prices;
  const { largestBytes, daysToLimit, fanOut } = card.scores;
  const facts = [
    isKnown(card.requiredRu) ? `${count(card.requiredRu)} RU/s on ${plural(card.partitions, "partition")}` : "no throughput is enough",
    card.monthly ? `${money(card.monthly.total, currency)} a month` : "",
    `largest key ${bytes(largestBytes?.value)}`,
    isKnown(daysToLimit?.value) ? `full on day ${count(daysToLimit.value)}` : "",
    isKnown(fanOut?.value) && found.inputs.requests ? `a query visits ${count(fanOut.value, 1)} partitions` : "",
  ].filter(Boolean);
  const toggle = (/** @type {any} */ event) => setOpen(event.currentTarget.open);
  return html`<details class="panel" data-key=${card.key} open=${isOpen} onToggle=${toggle}><summary><strong><code>${card.key}</code></strong> <span class="small">${facts.join(" · ")}</span></summary>
    ${isOpen && html`<${Unfolded} card=${card} found=${found} />`}
  </details>`;
}

/** @param {{card: any, found: any}} props */
const Unfolded = ({ card, found }) => html`<${Laid} card=${card} found=${found} />
    <ul>${card.reasons.map((/** @type {any} */ each, /** @type {number} */ at) => html`<li key=${at}><span class=${each.for ? "good" : "bad"}>${each.for ? "For: " : "Against: "}</span>${each.text}${each.example && each.example !== "…" ? html` <span class="small">Example: ${each.example}</span>` : ""}</li>`)}</ul>
    <p class="tools"><${Looking} card=${card} found=${found} /><button type="button" class="quiet" onClick=${() => choose({ key: card.key, kind: card.kind, step: "try" }, true)}>Try it</button></p>
    <details><summary>Figures</summary><table><thead><tr><th scope="col">Figure</th><th scope="col" class="number">Value</th><th scope="col" class="number">From</th><th scope="col" class="number">To</th><th scope="col">Rests on</th></tr></thead>
      <tbody>${Object.entries(card.scores).filter(([, score]) => score).map(([name, score]) => html`<tr key=${name}><td>${name}</td>${["value", "low", "high"].map((each) => html`<td key=${each} class="number">${figure(score[each])}</td>`)}<td>${score.assumes ?? ""}</td></tr>`)}</tbody></table></details>`;

/** @param {number | null} value */
const figure = (value) => count(value, isKnown(value) && Math.abs(value) < 100 && !Number.isInteger(value) ? 3 : 0);

/** How the rows would lie on even partitions. @param {{card: any, found: any}} props */
function Laid({ card, found }) {
  const strip = found.strips[card.key];
  if (!strip) return html`<p class="small">There would be too many partitions to draw.</p>`;
  const many = strip.byteShares.length;
  const bound = (/** @type {number} */ at) => ((HASHES * BigInt(at)) / BigInt(many)).toString(16).padStart(32, "0").toUpperCase();
  const partitions = strip.byteShares.map((/** @type {number} */ share, /** @type {number} */ at) => ({
    id: at, low: bound(at), high: at + 1 === many ? "FF" : bound(at + 1), bytes: share * found.inputs.horizonBytes, items: 0,
    budgetRu: isKnown(card.requiredRu) ? card.requiredRu / many : null, spentRu: strip.ruPerSecond[at], requests: 0, refused: 0, wouldBeRefused: 0,
  }));
  const most = Math.max(...strip.byteShares);
  return html`<${Strip} partitions=${partitions} reshapes=${[]} limitBytes=${(2 * found.inputs.horizonBytes) / many} label=${`By ${card.key}`} sentence=${`${plural(many, "even partition")}. The fullest has ${percent(most)} of the bytes, ${count(most * many, 1)} times its share.`} />
    <p class="small">${plural(many, "even partition")}. Light filling: bytes, at full height twice the fair share. Colour: RU/s of the share that the required throughput gives.</p>
    <details><summary>By partition</summary><${PartitionBars} partitions=${partitions} measure="bytes" label=${card.key} /></details>`;
}

/** A query for the items of the largest key. @param {{card: any, found: any}} props */
function Looking({ card, found }) {
  const { params } = route.value;
  const [database, container = ""] = (params.get("of") ?? "").split("/");
  if (isFile(params) || !container || card.kind !== "single" || !card.largestKey || card.largestKey === "…") return null;
  const query = `SELECT TOP 100 * FROM c WHERE ToString(${pathInQuery(card.paths[0])}) = ${JSON.stringify(card.largestKey)}`;
  return html`<a href=${`${BASE}${viewPath(database, container, "query")}#${encodeURIComponent(query)}`}>Items of ${card.largestKey}</a>`;
}

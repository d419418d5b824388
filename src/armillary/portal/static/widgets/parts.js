// Small parts that all views use: copying, failures, dialogs, times, names, and the region that speaks.

import { html, signal, useEffect, useRef, useState } from "../vendor/core.js";
import { clock, cut, utc } from "../text/numbers.js";

const SPEAK_EVERY_MS = 5000;
const spoken = signal("");
let lastSpoken = 0;
let waiting = 0;

/** Tell users of screen readers, at most once in five seconds; the newest text wins. An empty text only clears the region. @param {string} text @param {boolean} [isUrgent] */
export function speak(text, isUrgent = false) {
  clearTimeout(waiting);
  const wait = isUrgent ? 0 : Math.max(0, lastSpoken + SPEAK_EVERY_MS - Date.now());
  waiting = setTimeout(() => {
    lastSpoken = text === "" ? 0 : Date.now();
    spoken.value = text;
  }, wait);
}

export const Speaker = () => html`<div class="visually-hidden" aria-live="polite" data-test="spoken">${spoken.value}</div>`;

/** @param {string} text */
export async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  // Pages without TLS from another machine have no clipboard of the newer kind.
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

let copies = 0; // begun, of all buttons: there is one clipboard

/** @param {{text: string | (() => string | Promise<string>), label?: string, what?: string}} props */
export function Copy({ text, label = "Copy", what = "" }) {
  const [state, setState] = useState("");
  const copy = async () => {
    const number = (copies += 1);
    try {
      const copied = typeof text === "function" ? await text() : text;
      if (number !== copies) return; // a text that is asked for may come after a later one was copied
      await copyText(copied);
      setState("Copied");
      speak(`Copied ${what}`.trim());
    } catch (error) {
      setState("Not copied");
      speak(`Not copied: ${error.message}`, true);
    }
    setTimeout(() => setState(""), 2000);
  };
  return html`<button type="button" class="quiet" onClick=${copy} aria-label=${what ? `${label} ${what}` : undefined}>${state || label}</button>`;
}

/** A refusal in the server's words. @param {{error: any}} props */
export function Failure({ error }) {
  if (!error) return null;
  const details = [
    error.status ? `status ${error.status}` : "",
    error.subStatus && error.subStatus !== "0" ? `sub-status ${error.subStatus}` : "",
    error.activityId ? `activity ${error.activityId}` : "",
  ].filter(Boolean);
  return html`<div class="failure" role="alert">
    <p>${error.message}</p>
    ${details.length > 0 && html`<p class="small">${details.join(" · ")}</p>`}
  </div>`;
}

/** A time of day, with UTC on hover. @param {{value: any}} props */
export const Time = ({ value }) => html`<time datetime=${utc(value)} title=${utc(value)}>${clock(value)}</time>`;

/** A name that a user gave, cut in the middle, whole on hover and focus. @param {{text: string, most?: number}} props */
export const Name = ({ text, most = 40 }) => (text.length > most ? html`<span title=${text}>${cut(text, most)}</span>` : text);

/** @param {{title: string, onClose: () => void, children?: any, wide?: boolean}} props */
export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.showModal();
    const first = ref.current?.querySelector("input, select, textarea"); // rather than the button that closes it
    if (first instanceof HTMLElement) first.focus();
    return () => before instanceof HTMLElement && before.isConnected && before.focus();
  }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose}>
    <header><h2>${title}</h2><button type="button" class="quiet" onClick=${() => ref.current?.close()}>Close</button></header>
    ${children}
  </dialog>`;
}

/** One of several, as buttons. @param {{label: string, options: [string, string][], value: string, onChange: (value: string) => void}} props */
export const Choice = ({ label, options, value, onChange }) => html`<div class="choice" role="group" aria-label=${label}>
  ${options.map(
    ([id, text]) => html`<button type="button" key=${id} aria-pressed=${value === id ? "true" : "false"} onClick=${() => onChange(id)}>${text}</button>`,
  )}
</div>`;

/** A form's field with its label and the refusal that it caused. @param {{label: string, children?: any, hint?: any, failure?: string}} props */
export const Field = ({ label, children, hint, failure }) => html`<div class="field">
  <label><span>${label}</span>${children}</label>
  ${hint && html`<span class="small">${hint}</span>`}
  ${failure && html`<span class="small bad" role="alert">${failure}</span>`}
</div>`;

/** A share as a bar with its words. @param {{share: number | null, text: string, isBad?: boolean}} props */
export const Bar = ({ share, text, isBad }) => html`<span class="bar ${isBad ? "bad" : ""}">
  <span class="track" aria-hidden="true"><span style=${{ width: `${Math.min(1, Math.max(0, share ?? 0)) * 100}%` }}></span></span>
  <span>${text}</span>
</span>`;

/**
 * Load something, and again when `inputs` change. The last data stays when a later request fails. `again` reads at once,
 * since something was changed; `refresh` does not if a reading is still on its way: what takes longer than the interval
 * of a timer would else never be shown.
 * @template T @param {(signal: AbortSignal) => Promise<T>} read @param {any[]} inputs
 * @returns {{data: T | null, error: any, isLoading: boolean, again: () => void, refresh: () => void, asOf: number}}
 */
export function useData(read, inputs) {
  const [state, setState] = useState({ data: /** @type {any} */ (null), error: /** @type {any} */ (null), isLoading: true, asOf: 0 });
  const [round, setRound] = useState(0);
  const isReading = useRef(false);
  useEffect(() => {
    const controller = new AbortController();
    const take = (/** @type {(before: any) => any} */ change) => {
      if (controller.signal.aborted) return;
      isReading.current = false;
      setState(change);
    };
    isReading.current = true;
    setState((before) => ({ ...before, isLoading: true }));
    read(controller.signal).then(
      (data) => take(() => ({ data, error: null, isLoading: false, asOf: Date.now() })),
      (error) => take((before) => ({ ...before, error, isLoading: false })),
    );
    return () => controller.abort();
  }, [...inputs, round]);
  const again = () => setRound((number) => number + 1);
  return { ...state, again, refresh: () => void (isReading.current || again()) };
}

/** What is shown while the newest data could not be had. @param {{state: {error: any, data: any, asOf: number}}} props */
export const Stale = ({ state }) =>
  state.error && state.data
    ? html`<p class="note" role="status">As of ${clock(state.asOf)}: ${state.error.message} Trying again.</p>`
    : html`<${Failure} error=${state.error} />`;

/** Draw again every `ms` while the tab is visible. @param {() => void} action @param {number} ms */
export function useEvery(action, ms) {
  const latest = useRef(action);
  latest.current = action;
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && latest.current(), ms);
    return () => clearInterval(timer);
  }, [ms]);
}

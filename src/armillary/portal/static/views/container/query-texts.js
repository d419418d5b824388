// Texts of queries that were run or saved, which local storage keeps, and the values of parameters.

import { html, useState } from "../../vendor/core.js";
import { remember, remembered } from "../../data/preferences.js";
import { cut } from "../../text/numbers.js";

/** @param {{text: string, paths: any[], onChoose: (text: string) => void}} props */
export function QueryTexts({ text, onChoose }) {
  const [saved, setSaved] = useState(/** @type {string[]} */ (remembered("saved-queries", [])));
  const ran = /** @type {string[]} */ (remembered("queries", []));
  const isSaved = saved.includes(text);
  const save = () => {
    const now = isSaved ? saved.filter((each) => each !== text) : [text, ...saved];
    setSaved(now);
    remember("saved-queries", now);
  };
  const pick = (/** @type {any} */ event) => {
    if (event.currentTarget.value !== "") onChoose(event.currentTarget.value);
    event.currentTarget.value = "";
  };
  return html`<button type="button" class="quiet" onClick=${save}>${isSaved ? "Forget" : "Save"}</button>
    ${(saved.length > 0 || ran.length > 0) && html`<label><span class="visually-hidden">Earlier queries</span><select onChange=${pick}>
      <option value="">Earlier…</option>
      ${saved.length > 0 && html`<optgroup label="Saved">${saved.map((each) => html`<option key=${each} value=${each}>${cut(each, 60)}</option>`)}</optgroup>`}
      <optgroup label="Ran">${ran.map((each) => html`<option key=${each} value=${each}>${cut(each, 60)}</option>`)}</optgroup>
    </select></label>`}`;
}

/** Values of parameters as they are sent: JSON, or plain text for a string. @param {{name: string, value: string}[]} parameters */
export function parametersOf(parameters) {
  return parameters.filter((each) => each.name).map(({ name, value }) => {
    try {
      return { name, value: JSON.parse(value) };
    } catch {
      return { name, value };
    }
  });
}

/** A row for each parameter that the text names. @param {{text: string, parameters: {name: string, value: string}[], onChange: (parameters: any[]) => void}} props */
export function Parameters({ text, parameters, onChange }) {
  const names = [...new Set(text.match(/@\w+/g) ?? [])];
  if (names.length === 0) return null;
  const valueOf = (/** @type {string} */ name) => parameters.find((each) => each.name === name)?.value ?? "";
  const set = (/** @type {string} */ name, /** @type {string} */ value) => onChange(names.map((each) => ({ name: each, value: each === name ? value : valueOf(each) })));
  return html`<p class="tools">${names.map((name) => html`<label key=${name}><code>${name}</code> <input value=${valueOf(name)} placeholder="JSON or text" onInput=${(/** @type {any} */ event) => set(name, event.currentTarget.value)} /></label>`)}</p>`;
}

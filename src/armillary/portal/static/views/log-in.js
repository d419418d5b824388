// Logging in with the control key, at first and again when a log-in has ended; and the one page of a server without a
// control key.

import { html, useEffect, useRef, useState } from "../vendor/core.js";
import { Dialog, Failure, Field } from "../widgets/parts.js";
import { enter } from "../data/session.js";

/** @param {{isAgain?: boolean}} props */
export function LogIn({ isAgain = false }) {
  const [round, setRound] = useState(0);
  const form = html`<${LogInForm} isAgain=${isAgain} />`;
  // A dialog that is closed comes back: without a log-in nothing behind it is up to date, or can be saved.
  if (isAgain) return html`<${Dialog} key=${round} title="Log in again" onClose=${() => setRound(round + 1)}>${form}<//>`;
  return html`<main class="login"><h1>Armillary</h1>${form}</main>`;
}

/** @param {{isAgain: boolean}} props */
function LogInForm({ isAgain }) {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [readOnly, setReadOnly] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => field.current?.focus(), []);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const key = field.current?.value ?? "";
    setBusy(true);
    setError(null);
    try {
      await enter({ key, readOnly });
    } catch (failure) {
      setError(failure);
      field.current?.select();
    }
    setBusy(false);
  };
  return html`<form onSubmit=${submit}>
    ${isAgain ? html`<p>The log-in has ended. What you have typed is kept.</p>` : html`<p>The control key is in <code>control.json</code> of the data directory. <code>armillary portal</code> opens this page logged in.</p>`}
    <${Field} label="Control key"><input ref=${field} type="password" name="key" autocomplete="off" required /><//>
    <p><label class="check"><input type="checkbox" checked=${readOnly} onChange=${(/** @type {any} */ event) => setReadOnly(event.currentTarget.checked)} /> Read-only: nothing can be changed</label></p>
    <${Failure} error=${error} />
    <p><button type="submit" disabled=${isBusy}>Log in</button></p>
  </form>`;
}

export const NoControlKey = () => html`<main class="login">
  <h1>Armillary</h1>
  <p>This server has no control key, so there is nothing to see here: the portal shows keys and changes data, and would be open to everybody on this machine.</p>
  <p>Start the server with one of these:</p>
  <pre>ARMILLARY_CONTROL_KEY=a-key-of-your-choice armillary serve --memory</pre>
  <pre>armillary serve --data ./armillary-data</pre>
  <p>A server with a data directory makes its own key; <code>armillary portal</code> then opens this page logged in.</p>
</main>`;

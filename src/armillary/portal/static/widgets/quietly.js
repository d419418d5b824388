// Parts of overview pages that read items or many keys. With the switch *quiet* of the settings they are read only when
// a button is pressed; everything else on these pages comes from meters.

import { html, useState } from "../vendor/core.js";
import { quiet } from "../data/preferences.js";

/** @param {{what: string, part: () => any}} props `part` makes what is shown; it is called once reading is allowed. */
export function Quietly({ what, part }) {
  const [isAsked, setAsked] = useState(false);
  if (!quiet.value || isAsked) return part();
  return html`<p class="small" data-test="quiet">Quiet: ${what} are not read by themselves. <button type="button" class="quiet" onClick=${() => setAsked(true)}>Read ${what}</button></p>`;
}

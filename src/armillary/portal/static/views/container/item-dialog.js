// One item: shown, changed if nobody has changed it since (If-Match), copied, deleted. After a conflict both versions
// stand side by side, and the editor keeps what was typed.

import { html, useState } from "../../vendor/core.js";
import { session } from "../../data/client.js";
import { createItem, deleteItem, insertDocument, isOfMongo, keyOf, kindOf, readItem, replaceDocument, replaceItem } from "../../data/items.js";
import { pathSteps } from "../../text/paths.js";
import { Editor } from "../../widgets/editor.js";
import { JsonText, saveFile } from "../../widgets/json.js";
import { useInTurn } from "../../widgets/asking.js";
import { Copy, Dialog, Failure, speak } from "../../widgets/parts.js";

const EDITABLE_CHARACTERS = 300_000;

/** @param {string[]} paths */
function template(paths) {
  /** @type {any} */
  const item = { id: "" };
  for (const path of paths) {
    const names = pathSteps(path);
    let level = item;
    names.forEach((name, at) => (level = level[name] ??= at === names.length - 1 ? "" : {}));
  }
  return JSON.stringify(item, null, 2);
}

/** @param {{database: string, container: string, paths: string[], item: any, onClose: () => void, onChanged: () => void}} props */
export function ItemDialog({ database, container, paths, item, onClose, onChanged }) {
  const [original, setOriginal] = useState(item);
  const [text, setText] = useState(() => (item ? JSON.stringify(item, null, 2) : template(paths)));
  const [theirs, setTheirs] = useState(/** @type {any} */ (null));
  const { act, error, isActing } = useInTurn();
  const { readOnly } = session.value;
  const isLarge = text.length > EDITABLE_CHARACTERS;
  // A second press is of the same version of the item: it would be a conflict with the first.
  const change = (/** @type {() => Promise<void>} */ action) =>
    isActing ||
    act(async () => {
      try {
        await action();
      } catch (failure) {
        if (failure.status === 412 && original) setTheirs(await readItem(database, container, original.id, keyOf(original, paths)).catch(() => null));
        throw failure;
      }
    });
  const save = () =>
    change(async () => {
      const wanted = JSON.parse(text);
      if (original) {
        const etag = theirs?._etag ?? original._etag;
        const key = keyOf(original, paths);
        const stored = isOfMongo(original)
          ? await replaceDocument(database, container, wanted, key, original, etag)
          : await replaceItem(database, container, wanted, key, original.id, etag);
        setOriginal(stored);
        setText(JSON.stringify(stored, null, 2));
        setTheirs(null);
        speak("Saved");
      } else {
        if (isOfMongo(wanted)) await insertDocument(database, container, wanted);
        else await createItem(database, container, wanted, keyOf(wanted, paths));
        onClose();
      }
      onChanged();
    });
  const remove = () =>
    change(async () => {
      await deleteItem(database, container, original.id, keyOf(original, paths), original._etag);
      onChanged();
      onClose();
    });
  const clone = () => {
    const copy = JSON.parse(text);
    for (const name of ["_rid", "_self", "_etag", "_attachments", "_ts"]) delete copy[name];
    if (isOfMongo(copy)) delete copy.id;
    else copy.id = "";
    setOriginal(null);
    setTheirs(null);
    setText(JSON.stringify(copy, null, 2));
  };
  return html`<${Dialog} wide=${true} title=${original ? `Item ${original.id}` : "New item"} onClose=${onClose}>
    ${isLarge || readOnly ? html`<${JsonText} text=${text} label="Item" />` : html`<div class=${theirs ? "two" : ""}>
      <div>${theirs && html`<h3>Yours</h3>`}<${Editor} value=${text} language="json" label="Item as JSON" onEdit=${setText} onRun=${save} /></div>
      ${theirs && html`<div data-test="theirs"><h3>Stored meanwhile</h3><${JsonText} text=${JSON.stringify(theirs, null, 2)} label="The stored version" /></div>`}
    </div>`}
    ${original && html`<p class="small" data-test="kind">${kindOf(original)}</p>`}
    <${Failure} error=${error} />
    ${theirs && html`<p>The item was changed by another client. <em>Save</em> now replaces the version at the right.</p>`}
    <p class="tools">
      ${!readOnly && !isLarge && html`<button type="button" onClick=${save}>Save</button>`}
      ${!readOnly && original && html`<button type="button" class="quiet" onClick=${clone}>Clone</button>`}
      ${!readOnly && original && html`<button type="button" class="danger" onClick=${remove}>Delete</button>`}
      <${Copy} text=${() => text} what="the item" />
      ${isLarge && html`<button type="button" class="quiet" onClick=${() => saveFile(`${original?.id ?? "item"}.json`, text, "application/json")}>Save as a file</button><span class="small">Too large to be edited here.</span>`}
    </p>
  <//>`;
}

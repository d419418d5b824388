// The text editor: CodeMirror in a custom element with a shadow root, where it uses constructed style sheets, which the
// page's policy allows. Tab leaves it; Ctrl or Cmd and Enter run what it holds.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/core.js";
import { AGGREGATES, FUNCTIONS, KEYWORDS } from "../text/sql-words.js";

/** @type {Promise<typeof import("../vendor/editor.js")> | null} */
let library = null;
const loadLibrary = () => (library ??= import("../vendor/editor.js"));

/** Colours of the page's scheme. @param {typeof import("../vendor/editor.js")} cm */
function looks(cm) {
  const { tags } = cm;
  const style = cm.HighlightStyle.define([
    { tag: [tags.keyword, tags.operatorKeyword, tags.bool, tags.null], color: "var(--keyword)" },
    { tag: [tags.string, tags.regexp], color: "var(--string)" },
    { tag: [tags.number, tags.propertyName, tags.function(tags.variableName)], color: "var(--numeral)" },
    { tag: tags.comment, color: "var(--comment)" },
  ]);
  const theme = cm.EditorView.theme({
    "&": { color: "var(--fg)", backgroundColor: "var(--bg)", fontSize: "0.9rem" },
    "&.cm-focused": { outline: "2px solid var(--focus)" },
    ".cm-content": { caretColor: "var(--fg)", fontFamily: "ui-monospace, monospace" },
    ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--soft)", borderColor: "var(--line)" },
    ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--panel)" },
    "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
    ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--fg)", borderColor: "var(--edge)" },
    ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
    ".cm-wrong": { textDecoration: "underline wavy var(--bad)", textDecorationSkipInk: "none" },
    ".cm-scroller": { overflow: "auto", maxHeight: "50vh", minHeight: "4rem" },
  });
  return [theme, cm.syntaxHighlighting(style)];
}

/** A mode for the query language. @param {typeof import("../vendor/editor.js")} cm */
function sqlLanguage(cm) {
  const keywords = new Set([...KEYWORDS].map((each) => each.toUpperCase()));
  const functions = new Set([...FUNCTIONS, ...AGGREGATES]);
  return cm.StreamLanguage.define({
    name: "armillary-sql",
    token(stream) {
      if (stream.eatSpace()) return null;
      if (stream.match(/--.*/)) return "comment";
      if (stream.match(/"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?/)) return "string";
      if (stream.match(/\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/)) return "number";
      if (stream.match(/@\w+/)) return "propertyName";
      const word = stream.match(/[A-Za-z_]\w*/);
      if (!word) {
        stream.next();
        return null;
      }
      const upper = String(Array.isArray(word) ? word[0] : stream.current()).toUpperCase();
      return keywords.has(upper) ? "keyword" : functions.has(upper) ? "propertyName" : null;
    },
    languageData: { commentTokens: { line: "--" } },
  });
}

/** @param {typeof import("../vendor/editor.js")} cm @param {() => string[]} paths */
function sqlCompletions(cm, paths) {
  const words = [
    ...KEYWORDS.map((label) => ({ label, type: "keyword" })),
    ...[...FUNCTIONS, ...AGGREGATES].map((label) => ({ label, type: "function", apply: `${label}(` })),
  ];
  return cm.autocompletion({
    override: [
      (context) => {
        const path = context.matchBefore(/\bc\.[\w.]*/);
        if (path) return { from: path.from, options: paths().map((each) => ({ label: `c${each}`, type: "property" })), validFor: /^[\w.]*$/ };
        const word = context.matchBefore(/\w+/);
        return word || context.explicit ? { from: word?.from ?? context.pos, options: words, validFor: /^\w*$/ } : null;
      },
    ],
  });
}

class CodeEditor extends HTMLElement {
  constructor() {
    super();
    this.attachShadow({ mode: "open" });
    /** @type {any} */ this.view = null;
    /** @type {any} */ this.setWrong = null;
    this.paths = /** @type {string[]} */ ([]);
    this.text = "";
    this.isReplacing = false;
  }

  /** @param {{text: string, language: string, label: string, readOnly: boolean}} options */
  async begin({ text, language, label, readOnly }) {
    const cm = await loadLibrary();
    if (!this.isConnected || this.view) return;
    this.setWrong = cm.StateEffect.define();
    const wrong = cm.StateField.define({
      create: () => cm.Decoration.none,
      update: (marks, change) => {
        let found = marks.map(change.changes);
        for (const effect of change.effects) if (effect.is(this.setWrong)) found = effect.value;
        return found;
      },
      provide: (field) => cm.EditorView.decorations.from(field),
    });
    const languages = { sql: () => [sqlLanguage(cm), sqlCompletions(cm, () => this.paths)], javascript: () => [cm.javascript(), cm.autocompletion()], json: () => [cm.json()], text: () => [] };
    this.view = new cm.EditorView({
      root: /** @type {ShadowRoot} */ (this.shadowRoot),
      parent: /** @type {any} */ (this.shadowRoot),
      state: cm.EditorState.create({
        doc: text,
        extensions: [
          cm.keymap.of([{ key: "Mod-Enter", run: () => (this.dispatchEvent(new CustomEvent("run")), true) }]),
          cm.lineNumbers(), cm.history(), cm.drawSelection(), cm.bracketMatching(), cm.closeBrackets(), cm.indentOnInput(), cm.highlightSelectionMatches(),
          cm.keymap.of([...cm.closeBracketsKeymap, ...cm.defaultKeymap, ...cm.historyKeymap, ...cm.completionKeymap, ...cm.searchKeymap]),
          languages[/** @type {keyof typeof languages} */ (language)]?.() ?? [],
          looks(cm), wrong,
          cm.EditorView.contentAttributes.of({ "aria-label": label }),
          cm.EditorState.readOnly.of(readOnly),
          cm.EditorView.lineWrapping,
          // The browser itself would keep the look of a replaced selection by inline styles, which the policy forbids.
          cm.EditorView.domEventHandlers({
            beforeinput: (event, view) => {
              const isPlain = event.inputType === "insertText" && event.data !== null && !event.isComposing;
              if (!isPlain || view.state.selection.main.empty) return false;
              event.preventDefault();
              view.dispatch(view.state.replaceSelection(String(event.data)), { userEvent: "input.type", scrollIntoView: true });
              return true;
            },
          }),
          cm.EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            this.text = update.state.doc.toString();
            // What the page has put there it knows. Were it told, two texts on their way would replace each other for ever.
            if (this.isReplacing) return;
            this.dispatchEvent(new CustomEvent("edit", { detail: this.text }));
          }),
        ],
      }),
    });
    this.text = text;
    this.dataset.ready = "true";
  }

  /** @param {string} text */
  replace(text) {
    if (!this.view || text === this.text) return;
    this.isReplacing = true;
    try {
      this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
    } finally {
      this.isReplacing = false;
    }
  }

  /** Underline a place; null: nothing. @param {{line: number, column: number} | null} place */
  async mark(place) {
    const cm = await loadLibrary();
    if (!this.view) return;
    const { doc } = this.view.state;
    let marks = cm.Decoration.none;
    if (place && doc.length > 0) {
      const line = doc.line(Math.min(doc.lines, Math.max(1, place.line)));
      const from = Math.min(Math.max(line.from + place.column - 1, 0), doc.length - 1);
      const word = /^\w+/.exec(doc.sliceString(from, line.to))?.[0].length ?? 1;
      marks = cm.Decoration.set([cm.Decoration.mark({ class: "cm-wrong" }).range(from, Math.min(doc.length, from + word))]);
    }
    this.view.dispatch({ effects: this.setWrong.of(marks) });
  }
}

customElements.define("code-editor", CodeEditor);

/**
 * @param {{value: string, label: string, language?: "sql" | "json" | "javascript" | "text", readOnly?: boolean, paths?: string[],
 *   wrong?: {line: number, column: number} | null, onEdit?: (text: string) => void, onRun?: () => void}} props
 */
export function Editor({ value, label, language = "text", readOnly = false, paths = [], wrong = null, onEdit, onRun }) {
  const ref = useRef(/** @type {CodeEditor | null} */ (null));
  const latest = useRef({ onEdit, onRun });
  latest.current = { onEdit, onRun };
  const [isReady, setReady] = useState(false);
  useEffect(() => {
    const element = ref.current;
    if (!element) return;
    const edit = (/** @type {any} */ event) => latest.current.onEdit?.(event.detail);
    const run = () => !readOnly && latest.current.onRun?.();
    element.addEventListener("edit", edit);
    element.addEventListener("run", run);
    void element.begin({ text: value, language, label, readOnly }).then(() => setReady(true));
    return () => {
      element.removeEventListener("edit", edit);
      element.removeEventListener("run", run);
      element.view?.destroy();
      element.view = null;
    };
  }, []);
  useEffect(() => {
    if (ref.current) ref.current.paths = paths;
  }, [paths]);
  // With the rendering, not after the next painting: a key that is pressed in between has given a newer text.
  useLayoutEffect(() => ref.current?.replace(value), [value, isReady]);
  useEffect(() => void ref.current?.mark(wrong), [wrong?.line, wrong?.column, isReady]);
  return html`<code-editor ref=${ref}></code-editor>`;
}

export { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
export { EditorView, Decoration, drawSelection, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers, placeholder } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, startCompletion } from "@codemirror/autocomplete";
export { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
export { HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
export { javascript } from "@codemirror/lang-javascript";
export { json } from "@codemirror/lang-json";
export { tags } from "@lezer/highlight";

export * from "@codemirror/state";
export * from "@codemirror/view";
export * from "@codemirror/commands";
export * from "@codemirror/autocomplete";
export * from "@codemirror/search";
export * from "@codemirror/language";
export { javascript } from "@codemirror/lang-javascript";
export { json } from "@codemirror/lang-json";
export { tags } from "@lezer/highlight";

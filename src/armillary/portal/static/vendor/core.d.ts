export { h, render, Fragment, createContext } from "preact";
export * from "preact/hooks";
export * from "@preact/signals";
export function html(strings: TemplateStringsArray, ...values: any[]): any;

// Bundles the libraries of the portal's pages into the folder that is given (default: the one that the server serves),
// with a manifest of their versions, licences and digests, and the licence texts. The output is the same on every
// machine: tests/browser/test_vendor.py builds it again and compares the bytes.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = resolve(process.argv[2] ?? join(here, "../../src/armillary/portal/static/vendor"));
const ENTRIES = ["core.js", "plot.js", "plot.css", "editor.js", "graph.js"];

/** The package that a bundled file belongs to. @param {string} path */
function packageOf(path) {
  const parts = path.split("node_modules/").at(-1).split("/");
  return parts[0].startsWith("@") ? parts.slice(0, 2).join("/") : parts[0];
}

/** @param {string} name */
function licenceText(name) {
  const folder = join(here, "node_modules", name);
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  return file === undefined ? undefined : readFileSync(join(folder, file), "utf8").trim();
}

mkdirSync(target, { recursive: true });
const modules = [];
const names = new Set();
for (const entry of ENTRIES) {
  const result = await build({
    absWorkingDir: here,
    entryPoints: [join("entries", entry)],
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    conditions: ["production"],
    write: false,
    metafile: true,
  });
  const bytes = result.outputFiles[0].contents;
  writeFileSync(join(target, entry), bytes);
  const inputs = Object.keys(result.metafile.inputs).filter((path) => path.includes("node_modules/"));
  const packages = [...new Set(inputs.map(packageOf))].sort();
  packages.forEach((name) => names.add(name));
  modules.push({ name: entry, bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex"), packages });
}

const packages = [...names].sort().map((name) => {
  const about = JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));
  return { name, version: about.version, licence: about.license };
});
const texts = packages.map(({ name, version, licence }) => {
  const text = licenceText(name);
  if (text === undefined) throw new Error(`${name} comes without a licence text`);
  return `${name} ${version} (${licence})\n\n${text}\n`;
});
const licences = texts.join(`\n${"-".repeat(80)}\n\n`);
writeFileSync(join(target, "LICENCES.txt"), licences);
writeFileSync(join(target, "manifest.json"), JSON.stringify({ modules, packages }, null, 2) + "\n");

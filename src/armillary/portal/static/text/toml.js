// A workload as the text of a TOML file, for the commands that read one: a line for each table, lists of tables with a
// line for each.

/** @param {any} value @returns {string} */
function inline(value) {
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    const members = Object.entries(value).map(([name, each]) => `${key(name)} = ${inline(each)}`);
    return members.length > 0 ? `{ ${members.join(", ")} }` : "{}";
  }
  return JSON.stringify(value); // strings of JSON are strings of TOML
}

/** @param {string} name */
const key = (name) => (/^[\w-]+$/.test(name) ? name : JSON.stringify(name));

/** @param {Record<string, any>} content */
export function tomlText(content) {
  const lines = Object.entries(content).map(([name, value]) => {
    const isLong = Array.isArray(value) && value.some((each) => typeof each === "object");
    return `${key(name)} = ${isLong ? `[\n${value.map((/** @type {any} */ each) => `    ${inline(each)},\n`).join("")}]` : inline(value)}`;
  });
  return `${lines.join("\n")}\n`;
}

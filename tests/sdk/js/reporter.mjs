// One line of JSON for each finished test: what tests/sdk/test_javascript.py reads.
export default async function* reporter(source) {
  for await (const event of source) {
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    if (event.data.nesting > 0) continue;
    const error = event.data.details?.error;
    const cause = error?.cause ?? error;
    const reason = cause ? (cause.stack ?? cause.message ?? JSON.stringify(cause)) : "";
    const body = cause?.body ? `\n${JSON.stringify(cause.body)}` : "";
    yield `${JSON.stringify({
      name: event.data.name,
      passed: event.type === "test:pass",
      reason: `${reason}${body}`,
    })}\n`;
  }
}

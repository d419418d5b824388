"""The results of the last run of each program, a file each in `results/`, and the table that docs/clients.md has of
them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from clients.client_program import Program, Variant
from clients.running import Run
from clients.steps import OUTCOMES, Step

FOLDER = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BEGIN = "<!-- written by `make clients` from tests/clients/results -->"
END = "<!-- end of what `make clients` writes -->"


@dataclass(frozen=True)
class Row:
    client: str
    version: str
    api: str
    variant: str
    steps: list[Step]

    def count(self, outcome: str) -> int:
        return sum(step.outcome == outcome for step in self.steps)

    def having(self, outcome: str) -> list[Step]:
        return [step for step in self.steps if step.outcome == outcome]


Results = dict[str, Row]


def row_of(program: Program, variant: Variant, run: Run) -> Row:
    return Row(program.client, program.version_of(variant), program.api, variant.name, run.steps)


def read_results() -> Results:
    found: Results = {}
    for path in sorted(FOLDER.glob("*.json")):
        row = json.loads(path.read_text("utf-8"))
        steps = [Step(step, *outcome.split(": ", 1)) for step, outcome in row["steps"].items()]
        found[path.stem] = Row(row["client"], row["version"], row["api"], row["variant"], steps)
    return found


def write_row(name: str, row: Row) -> None:
    content = {
        "client": row.client,
        "version": row.version,
        "api": row.api,
        "variant": row.variant,
        "steps": {step.name: f"{step.outcome}: {step.reason}".removesuffix(": ") for step in row.steps},
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def write_page(results: Results) -> None:
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE.name} lacks the lines that the table stands between: {BEGIN} and {END}")
    PAGE.write_text(f"{before}{table(results)}{after}", "utf-8")


def table(results: Results) -> str:
    """With the lines that it stands between."""
    lines = [BEGIN, "", "| Client | Version | Run | Steps | Works | Not in the client | Differs | Fails |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    order = {api: place for place, api in enumerate(("sql", "management", "mongo", "gremlin"))}
    rows = sorted(results.values(), key=lambda row: (order[row.api], row.client, row.version, row.variant))
    for row in rows:
        counts = " | ".join(str(row.count(outcome)) for outcome in OUTCOMES)
        lines.append(f"| `{row.client}` | {row.version} | {row.variant or '–'} | {len(row.steps)} | {counts} |")
    for outcome, title in (
        ("failed", "Steps that fail:"),
        ("differs", "Steps in which an application notices a difference from the cloud:"),
        ("missing", "Steps for which the client has no feature:"),
    ):
        found = _reasons(rows, outcome)
        if found:
            lines += ["", title, "", *found]
    return "\n".join([*lines, "", END])


def _reasons(rows: list[Row], outcome: str) -> list[str]:
    """A line for each reason, with the steps that have it; the same reasons of several variants stand once."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        for step in row.having(outcome):
            found.setdefault((f"`{row.client}` {row.version}", step.reason), {})[step.name] = None
    return [
        f"- {client}, {', '.join(steps)}: {_plain(reason).rstrip('.') or 'no reason given'}."
        for (client, reason), steps in found.items()
    ]


def _plain(text: str) -> str:
    """As Markdown shows it: what a client says may contain its marks."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|" else letter for letter in text)

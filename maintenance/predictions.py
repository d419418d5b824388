"""The table of docs/foresight.md that compares predictions of the simulator with the engine. `make soak` plays the
workloads of tests/foresight/workloads with three seeds each, fails on what does not agree, and keeps the results;
`python -m maintenance.predictions` writes the table from them. It plays those that are not kept, some minutes in all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from armillary.insight.planning.toml_tables import duration_s
from armillary.insight.planning.workload import parse_workload
from armillary.insight.scale_model.comparison import scale_model

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "foresight.md"
WORKLOADS: Final = ROOT / "tests" / "foresight" / "workloads"
BEGIN, END = "<!-- predictions: begin -->\n", "<!-- predictions: end -->"
KEPT: Final = ROOT / ".cache" / "predictions"
SEEDS: Final = (1, 2, 3)
LOOKS: Final = 4
_DURATIONS: Final = {"date-key": "12h"}  # today's key would be full on the next day; the others last 30 days
_HEADS: Final = ("429", "429, worst partition", "403 of writes", "RU/s", "largest key", "fullest partition")


def names() -> list[str]:
    return sorted(file.stem for file in WORKLOADS.glob("*.toml"))


def compared(name: str, seed: int, *, looks: int = LOOKS, **options: int) -> dict[str, Any]:
    """What `armillary scale-model --json` answers for one of the workloads."""
    workload = parse_workload((WORKLOADS / f"{name}.toml").read_text(), lambda file: "", seed)
    for_s = duration_s(_DURATIONS.get(name, "30d"))
    return asyncio.run(scale_model(workload, for_s, looks=looks, seed=seed, **options))


def compared_and_kept(name: str, seed: int) -> dict[str, Any]:
    content = compared(name, seed)
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}-{seed}.json").write_text(json.dumps(content))
    return content


def kept(name: str, seed: int) -> dict[str, Any]:
    """Of the last run of the tests, or of a run now."""
    file = KEPT / f"{name}-{seed}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else compared_and_kept(name, seed)
    return found


def differing(content: dict[str, Any]) -> list[str]:
    """Figures that do not agree, in words."""
    return [
        f"day {look['day']}, {each['name']}: {each['predicted']} predicted ({each['low']} to {each['high']}), "
        f"{each['seen']} seen"
        for look in content["looks"]
        for each in look["figures"]
        if not each["agrees"]
    ]


def table() -> Iterator[str]:
    yield "| Workload | Partitions | " + " | ".join(_HEADS) + " | Figures that agree, of three seeds |"
    yield "|---" * (len(_HEADS) + 3) + "|"
    for name in names():
        contents = [kept(name, seed) for seed in SEEDS]
        figures = [each for content in contents for look in content["looks"] for each in look["figures"]]
        judged = [each for each in figures if each["isJudged"]]
        last = contents[0]["looks"][-1]["figures"]
        agree = sum(each["agrees"] for each in judged)
        yield f"| {name} | " + " | ".join(map(_cell, last)) + f" | {agree} of {len(judged)} |"


def _cell(figure: dict[str, Any]) -> str:
    if not figure["isJudged"]:
        return "–"
    name = figure["name"]
    if "share" in name:
        return f"{figure['predicted']:.2%}, {figure['seen']:.2%}"
    if "bytes" in name:
        return f"{figure['predicted'] / 1024:,.0f}, {figure['seen'] / 1024:,.0f} KB"
    return f"{figure['predicted']:,.0f}, {figure['seen']:,.0f}"


def main() -> None:
    made = "\n".join(table()) + "\n"
    head, _, rest = PAGE.read_text().partition(BEGIN)  # it may have changed in these minutes
    PAGE.write_text(f"{head}{BEGIN}{made}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()

"""Tables of docs/performance.md that a run writes itself: each is between two comments that name it."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.operations import AIMS_US, CONNECTIONS, OperationFigures
from bench.servers import ROOT

PAGE: Final = ROOT / "docs/performance.md"


def replaced(text: str, name: str, lines: Sequence[str]) -> str:
    """A page with other lines between the comments of a block."""
    begin, end = f"<!-- {name}: written by make bench -->", f"<!-- {name}: end -->"
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the page has no block between {begin} and {end}, or several")
    block = "\n".join([begin, *lines, end])
    return pattern.sub(lambda _: block, text)


def operations(figures: OperationFigures, load: float) -> list[str]:
    """`load`: of the machine when the run began."""
    rounds = max(map(len, figures.measured.values()), default=0)
    day = time.strftime("%Y-%m-%d")
    lines = [
        f"{day}: {CONNECTIONS} connections, {rounds} rounds, load {load:.1f} on {os.cpu_count()} cores before it.",
        "",
        "| | µs of processor: median, range | Aim | a second | p50, p99 in ms |",
        "|---|---|---|---|---|",
    ]
    for kind, measured in figures.measured.items():
        cpu = [each.server_cpu_us for each in measured]
        found, aim = statistics.median(cpu), AIMS_US[kind]
        per_s, p50, p99 = (
            statistics.median(getattr(each, name) for each in measured) for name in ("per_s", "p50_ms", "p99_ms")
        )
        verdict = "reached" if found <= aim else "missed"
        lines.append(
            f"| {kind[0].upper()}{kind[1:]} | {found:.0f}, {min(cpu):.0f} to {max(cpu):.0f} | {aim}: {verdict} "
            f"| {per_s:,.0f} | {p50:.1f}, {p99:.1f} |"
        )
    return lines


def write_operations(figures: OperationFigures, load: float, page: Path = PAGE) -> None:
    page.write_text(replaced(page.read_text("utf-8"), "operations", operations(figures, load)), "utf-8")

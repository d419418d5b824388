"""Tables of docs/performance.md that a run writes itself: each is between two comments that name it."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.operations import AIMS_US, CONNECTIONS, OperationFigures
from bench.processes import ProcessFigures
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


def _run_line(rounds: int, connections: int, load: float) -> str:
    """`load`: of the machine when the run began."""
    day = time.strftime("%Y-%m-%d")
    return f"{day}: {connections} connections, {rounds} rounds, load {load:.1f} on {os.cpu_count()} cores before it."


def operations(figures: OperationFigures, load: float) -> list[str]:
    rounds = max(map(len, figures.measured.values()), default=0)
    lines = [
        _run_line(rounds, CONNECTIONS, load),
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


def of_processes(figures: ProcessFigures, load: float) -> list[str]:
    rounds = max((len(each[1]) for each in figures.turns.values()), default=0)
    lines = [
        _run_line(rounds, processes.CONNECTIONS, load),
        "",
        "| | Processes | a second | µs of the servers' processors | Requests for a processor-second, of one process's "
        "| The generator's share |",
        "|---|---|---|---|---|---|",
    ]
    for kind, by_count in figures.turns.items():
        for count in by_count:
            ratio, verdict = figures.efficiency(kind, count) or 0.0, ""
            if count > 1:
                verdict = f" (aim {processes.EFFICIENCY}: {'reached' if ratio >= processes.EFFICIENCY else 'missed'})"
            lines.append(
                f"| {kind[0].upper()}{kind[1:]} | {count} | {figures.median(kind, count, 'per_s'):,.0f} "
                f"| {figures.median(kind, count, 'cpu_us'):.0f} | {ratio:.2f}{verdict} "
                f"| {figures.median(kind, count, 'generator_share'):.0%} |"
            )
    here, elsewhere = (statistics.median(each) for each in zip(*figures.forwarding_ms, strict=True))
    added = figures.added_ms or 0.0
    lines += ["", "| | Before, or here | During, or elsewhere | | Aim |", "|---|---|---|---|---|"]
    lines.append(
        f"| p50 of a point read, one at a time, ms | {here:.2f} | {elsewhere:.2f} | {added:.2f} added "
        f"| {processes.ADDED_MS}: {'reached' if added <= processes.ADDED_MS else 'missed'} |"
    )
    for stall in figures.calm_ms:
        before, during = (statistics.median(each[stall]) for each in (figures.calm_ms, figures.stalled_ms))
        ratio = figures.stretch(stall) or 0.0
        lines.append(
            f"| p99 of other partitions, {stall}, {figures.paced_per_s:,.0f} a second, ms | {before:.1f} "
            f"| {during:.1f} | times {ratio:.2f} "
            f"| {processes.STRETCH}: {'reached' if ratio <= processes.STRETCH else 'missed'} |"
        )
    return lines


def write_processes(figures: ProcessFigures, load: float, page: Path = PAGE) -> None:
    page.write_text(replaced(page.read_text("utf-8"), "processes", of_processes(figures, load)), "utf-8")

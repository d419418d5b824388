"""The tables that the benchmark writes into the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.documented import PAGE, replaced, write_operations, write_processes
from bench.lanes import Turn
from bench.load import Measured
from bench.operations import CREATE, READ, OperationFigures
from bench.processes import STOPPED, ProcessFigures


def _measured(cpu_us: float) -> Measured:
    return Measured(10_000.0, 40_000, 0, 2.0, 6.0, 9.0, cpu_us, 1_000.0)


def test_the_table_of_operations_is_written_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE.read_text("utf-8"), "utf-8")
    figures = OperationFigures({READ: [_measured(each) for each in (44, 40, 48)], CREATE: [_measured(120)]})
    write_operations(figures, 0.5, page)
    text = page.read_text("utf-8")
    assert "| Point read | 44, 40 to 48 | 45: reached | 10,000 | 2.0, 6.0 |" in text
    assert "| Create, durability relaxed | 120, 120 to 120 | 95: missed | 10,000 | 2.0, 6.0 |" in text
    assert replaced(text, "operations", ["x"]) == replaced(PAGE.read_text("utf-8"), "operations", ["x"])


def test_the_tables_of_processes_are_written_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE.read_text("utf-8"), "utf-8")
    figures = ProcessFigures(forwarding_ms=[(0.1, 0.3), (0.2, 0.3)], paced_per_s=1000)
    figures.turns[READ] = {1: [Turn(10_000, 1.0, 0.5, 0.1)], 2: [Turn(10_000, 1.0, 1.0, 0.25)]}
    figures.calm_ms[STOPPED], figures.stalled_ms[STOPPED] = [2.0, 4.0], [3.0, 6.0]
    write_processes(figures, 0.5, page)
    text = page.read_text("utf-8")
    assert "| Point read | 1 | 10,000 | 50 | 1.00 | 17% |" in text
    assert "| Point read | 2 | 10,000 | 100 | 0.50 (aim 0.85: missed) | 20% |" in text
    assert "| 0.15 | 0.30 | 0.15 added | 0.3: reached |" in text
    assert f"| p99 of other partitions, {STOPPED}, 1,000 a second, ms | 3.0 | 4.5 | times 1.50 | 2: reached |" in text
    assert replaced(text, "processes", ["x"]) == replaced(PAGE.read_text("utf-8"), "processes", ["x"])


def test_a_page_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no block"):
        replaced("text", "operations", [])

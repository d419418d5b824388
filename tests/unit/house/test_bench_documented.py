"""The tables that the benchmark writes into the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.documented import PAGE, replaced, write_operations
from bench.load import Measured
from bench.operations import CREATE, READ, OperationFigures


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


def test_a_page_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no block"):
        replaced("text", "operations", [])

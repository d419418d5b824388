"""The figures that `make coverage` prints, from a small report."""

from __future__ import annotations

from typing import Any

from maintenance.coverage import by_package, gaps


def file(statements: int, covered: int, branches: int, taken: int, missing: list[int]) -> dict[str, Any]:
    summary = {
        "num_statements": statements,
        "covered_lines": covered,
        "num_branches": branches,
        "covered_branches": taken,
    }
    return {"summary": summary, "missing_lines": missing}


FILES = {
    "src/armillary/errors.py": file(10, 10, 0, 0, []),
    "src/armillary/storage/rocks.py": file(80, 60, 20, 10, [7, 9]),
    "src/armillary/storage/memory.py": file(20, 20, 4, 4, []),
    "src/armillary/storage_like.py": file(1, 0, 0, 0, [1]),
}


def test_modules_are_summed_by_package_in_the_order_of_imports() -> None:
    found = by_package(FILES)
    assert list(found) == ["storage", "errors", "storage_like", "all"]
    assert (found["storage"].lines, found["storage"].lines_run) == (100, 80)
    assert found["storage"].row("storage").split() == ["storage", "100", "80.0%", "58.3%"]
    assert found["errors"].row("errors").split() == ["errors", "10", "100.0%"]
    assert found["all"].lines == 111


def test_gaps_are_the_lines_of_one_package() -> None:
    assert gaps(FILES, "storage") == ["src/armillary/storage/rocks.py: 7, 9"]
    assert gaps(FILES, "errors") == []

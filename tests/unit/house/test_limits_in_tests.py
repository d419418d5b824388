"""Tests change limits by the fixture `with_limits` alone, and only limits that the source reads at each use."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.limits import WithLimits

from armillary import limits
from armillary.storage import rocks_database

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "armillary"
TESTS = ROOT / "tests"
THE_WAY = TESTS / "support" / "limits.py"
KEPT_BY_DESIGN = {
    "layout": {"TRANSACTION_CHANGES_MAX"},  # of the stored format: what fits into a key, whatever the limit is
    # Defaults of arguments: tests of queries hand in `max_bytes`.
    "execution": {"PAGE_BYTES_MAX"},
    "gather": {"PAGE_BYTES_MAX"},
    "sorted_reading": {"PAGE_BYTES_MAX"},
}
CONSTANT = re.compile(r"(?:.*\.)?_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\Z")  # NAME, or the path of a NAME


def files_with(*words: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder, folders, files in os.walk(TESTS):
        folders[:] = [each for each in folders if each != "node_modules"]
        for path in (Path(folder, each) for each in files if each.endswith(".py")):
            text = path.read_text("utf-8")
            if path not in (THE_WAY, Path(__file__)) and any(word in text for word in words):
                yield path, ast.parse(text)


def names_given(tree: ast.Module) -> Iterator[str]:
    """What `with_limits` is called with, and texts, which may be names that a test is parametrised with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "with_limits":
            yield from (each.arg for each in node.keywords if each.arg is not None)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def changed_constants(tree: ast.AST) -> Iterator[int]:
    """The lines that change `armillary.limits`, or a constant of any module, without the fixture."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "setattr":
            values = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
            is_named = any(isinstance(value, str) and CONSTANT.match(value) for value in values)
            if is_named or (node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == "limits"):
                yield node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and CONSTANT.match(node.attr):
            yield node.lineno


def read_at_import(tree: ast.Module) -> set[str]:
    """Limits whose value a module keeps: imported by name, or read outside the bodies of functions."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module == "armillary.limits":
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "limits":
            found.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += [each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None]
            waiting += getattr(node, "decorator_list", [])
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def test_no_test_changes_limits_otherwise() -> None:
    suspects = files_with("setattr(", "limits.")
    found = {str(path.relative_to(ROOT)): [*changed_constants(tree)] for path, tree in suspects}
    assert not {path: lines for path, lines in found.items() if lines}, "use the fixture with_limits: support/limits.py"


def test_limits_that_tests_change_are_read_when_they_are_used() -> None:
    changed = {name for _, tree in files_with("with_limits") for name in names_given(tree)} & set(vars(limits))
    assert len(changed) > 40
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        if path.name != "limits.py" and any(name in text for name in changed):
            kept = (read_at_import(ast.parse(text)) & changed) - KEPT_BY_DESIGN.get(path.stem, set())
            assert not kept, f"{path.relative_to(ROOT)} keeps {sorted(kept)} from its import on: tests cannot change it"


def test_both_are_noticed() -> None:
    text = """
monkeypatch.setattr(limits, name, 1)
monkeypatch.setattr("armillary.storage.rocks_loader.LOAD_TABLE_BYTES", 1)
monkeypatch.setattr(ranked_access, "_SPARE_ITEMS", 3)
limits.KEY_BYTES_MAX = 3
monkeypatch.setattr(os, "statvfs", broken)
"""
    assert [*changed_constants(ast.parse(text))] == [2, 3, 4, 5]
    text = """
from armillary.limits import KB
PORTION_BYTES = limits.ITEM_BYTES_MAX // 2
class Kept:
    most: int = limits.KEY_LEVELS_MAX
    def take(self, count: int = limits.PAGE_ITEMS_MAX) -> int:
        return limits.PAGE_BYTES_MAX
"""
    assert read_at_import(ast.parse(text)) == {"KB", "ITEM_BYTES_MAX", "KEY_LEVELS_MAX", "PAGE_ITEMS_MAX"}


def test_a_change_without_effect_is_refused(with_limits: WithLimits) -> None:
    assert "BLOCK_CACHE_BYTES" in vars(rocks_database)
    refused: list[tuple[dict[str, float], str]] = [
        ({"NO_SUCH_LIMIT": 1}, "has no NO_SUCH_LIMIT"),
        ({"PAGE_ITEMS_MAX": 2.0}, "of another type"),
        ({"BLOCK_CACHE_BYTES": 1}, "rocks_database"),
    ]
    for values, reason in refused:
        with pytest.raises(AssertionError, match=reason):
            with_limits(**values)


def test_limits_are_restored(with_limits: WithLimits) -> None:
    before = limits.PAGE_ITEMS_MAX
    with_limits(PAGE_ITEMS_MAX=2, PAGE_SECONDS_MAX=0.5)
    with_limits(PAGE_ITEMS_MAX=3)
    assert limits.PAGE_ITEMS_MAX == 3
    with_limits.restore()
    assert before == limits.PAGE_ITEMS_MAX and limits.PAGE_SECONDS_MAX == 5.0

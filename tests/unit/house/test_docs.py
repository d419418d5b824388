"""The documentation is whole: pages are reached, generated ones are fresh, and the files that it names exist. Links and
anchors between pages are checked by `make site`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from maintenance import modules

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
WRITTEN = [*sorted(ROOT.glob("*.md")), ROOT / "examples" / "README.md", *(DOCS / page for page in PAGES)]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|js|jsonl|md|toml|yml))`")


def entries(nav: list[dict[str, object]]) -> Iterator[str]:
    for entry in nav:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from entries(target)  # type: ignore[arg-type]


def test_every_page_is_in_the_index_and_in_the_navigation() -> None:
    linked = LINK.findall((DOCS / "index.md").read_text("utf-8"))
    assert sorted(set(linked) | {"index.md"}) == PAGES
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert sorted(entries(nav)) == PAGES


def test_the_page_of_modules_is_that_of_the_source() -> None:
    assert modules.PAGE.read_text("utf-8") == modules.page(), "run `make docs`"


def test_the_page_of_modules_has_them_all_with_a_docstring() -> None:
    tops = {path.stem if path.is_file() else path.name for path in modules.SOURCE.iterdir()}
    assert tops - {"__init__", "__main__", "__pycache__", "py"} <= set(modules.layers())
    silent = [path for path in modules.SOURCE.rglob("*.py") if not modules.first_paragraph(path)]
    assert [path for path in silent if path.name != "__init__.py" or path.stat().st_size] == []


def test_the_tour_has_fifteen_files() -> None:
    stops = re.findall(
        r"^\d+\. `([^`]+)`", (DOCS / "internals" / "read-the-source.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(stops) == len(set(stops)) == 15
    for stop in stops:
        assert (modules.SOURCE / stop).is_file(), stop


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(text):
        if target and "://" not in target:
            assert (page.parent / target).exists(), target
    if page.name == "CHANGELOG.md" or page == modules.PAGE:
        return  # of former names, and of names inside of a package
    for name in FILE.findall(text):
        if "/" in name and not name.startswith(("tests/sdk/js/node_modules", "dist/")):
            assert any((place / name).exists() for place in (ROOT, modules.SOURCE, page.parent)), name


def test_versions_of_python_are_the_same_everywhere() -> None:
    [line] = re.findall(r"^PYTHON_VERSIONS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    [matrix] = re.findall(r"^ +python: \[(.*)\]$", workflow, re.MULTILINE)
    assert re.findall(r"[\d.]+", matrix) == line.split()
    for version in line.split():
        assert version in (ROOT / "CONTRIBUTING.md").read_text("utf-8"), version


def test_newcomers_find_files_by_the_word_of_their_question() -> None:
    rows = re.findall(r"^\| (.*\?) \| (\w+) \| `(.*)` \|$", (ROOT / "docs/internals/where.md").read_text("utf-8"), re.M)
    assert len(rows) >= 20
    for question, word, name in rows:
        assert word.replace("_", " ") in question.lower(), f"{word}: not the question's word"
        assert word in Path(name).name, question
        assert (modules.SOURCE / name).exists(), question

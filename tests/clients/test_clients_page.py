"""The table of docs/clients.md is that of the results, and the results are those of the programs. docs/connect.md
connects as the programs do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from clients.client_program import Program, read_programs
from clients.recording.exchanges import FOLDER, SUFFIX
from clients.results import PAGE, read_results, table

from armillary.account.security.connection_strings import TITLES, strings_without_key
from armillary.tools.settings import GREMLIN_PORT, MONGO_PORT, TABLE_PORT, Settings

STEPS_MIN = 40
PROGRAMS = read_programs()
PROGRAMS_FOLDER = Path(__file__).parent / "programs"


def test_the_page_has_the_results() -> None:
    assert table(read_results()) in PAGE.read_text("utf-8"), "run: make clients ARGS=--table"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.folder)
def test_each_program_was_run_and_recorded(program: Program) -> None:
    results = read_results()
    for variant in program.variants:
        name = program.run_name(variant)
        assert name in results, f"run: make clients ARGS={program.folder}"
        row = results[name]
        assert (row.client, row.version) == (program.client, program.version_of(variant))
        assert len(row.steps) >= STEPS_MIN, name
        assert not row.having("failed"), f"{name}: {row.having('failed')}"
        assert (FOLDER / f"{name}{SUFFIX}").exists() == variant.is_recorded, name


def test_results_and_recordings_belong_to_programs() -> None:
    known = {program.run_name(variant) for program in PROGRAMS for variant in program.variants}
    assert set(read_results()) <= known
    assert {path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}")} <= known


@pytest.mark.parametrize(
    ("language", "sources"),
    [
        ("java", "java-azure-cosmos/*.java"),
        ("go", "go-azcosmos/*.go"),
        ("rust", "rust-azure-data-cosmos/src/*.rs"),
    ],
)
def test_the_page_on_connecting_makes_calls_that_were_run(language: str, sources: str) -> None:
    """The programs are run by `make clients`, those of the page are not."""
    page = (PAGE.parent / "connect.md").read_text("utf-8")
    block = page.partition(f"```{language}\n")[2].partition("```")[0]
    program = "".join(path.read_text("utf-8") for path in PROGRAMS_FOLDER.glob(sources))
    calls = set(re.findall(r"(\w+)\(", block))
    assert len(calls) >= 3
    assert all(f"{call}(" in program for call in calls), calls


def test_the_page_on_connecting_has_the_strings_of_the_defaults() -> None:
    page = (PAGE.parent / "connect.md").read_text("utf-8")
    defaults = Settings()
    ports = {"sql": defaults.sql_port, "table": TABLE_PORT, "mongo": MONGO_PORT, "gremlin": GREMLIN_PORT}
    endpoints = {door: [defaults.client_url(door, port)] for door, port in ports.items()}
    for door, string in strings_without_key(endpoints, defaults.account).items():
        assert f"| {TITLES[door]} | `{string}`" in page

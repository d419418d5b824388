"""Who may have a data directory: one server at a time, and only one that knows its format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.process import ServerProcess, run_armillary


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_second_process_is_refused(tmp_path: Path, start_server: Callable[..., ServerProcess], command: str) -> None:
    first = start_server(directory=tmp_path / "data")
    where = ["--sql-port", "0", "--data"] if command == "serve" else []
    second = run_armillary(command, *where, str(tmp_path / "data"))
    assert second.returncode == 2
    assert second.stdout == ""
    assert f"in use by process {first.process.pid}" in second.stderr
    assert first.process.poll() is None


@pytest.mark.parametrize("command", ["serve", "check"])
def test_an_unknown_format_is_refused(tmp_path: Path, start_server: Callable[..., ServerProcess], command: str) -> None:
    directory = tmp_path / "data"
    start_server(directory=directory).stop()
    written = (directory / "FORMAT").read_text()
    product, _, version = written.strip().partition(" ")
    (directory / "FORMAT").write_text(f"{product} {int(version) + 1}\n")
    before = sorted(path.name for path in directory.rglob("*"))
    where = ["--sql-port", "0", "--data"] if command == "serve" else []
    refused = run_armillary(command, *where, str(directory))
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert f"format {int(version) + 1}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert sorted(path.name for path in directory.rglob("*")) == before
    (directory / "FORMAT").write_text(written)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    refused = run_armillary("serve", "--sql-port", "0", "--data", str(tmp_path))
    assert refused.returncode == 2
    assert "not made by Armillary" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]

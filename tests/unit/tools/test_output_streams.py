"""Commands whose output is closed, goes to a pipe that nothing reads, or to a disk that is full: each as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.process import clean_environment

WORKLOAD = Path(__file__).parents[2] / "foresight" / "workloads" / "even.toml"
# One prints by itself, one by Rich.
COMMANDS = ("help", f"estimate --workload {WORKLOAD}")


def run(command: str, redirection: str, tmp_path: Path) -> tuple[int, str]:
    """The exit code of the command, and what it says on standard error."""
    line = f"{sys.executable} -m armillary {command} {redirection}"
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        cwd=tmp_path,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written(command: str, tmp_path: Path) -> None:
    assert run(command, "<&- >&-", tmp_path) == (0, "")
    assert run(command, "| true", tmp_path) == (141, "")
    code, said = run(command, "> /dev/full", tmp_path)
    assert code == 2
    assert said == (
        "armillary: The output cannot be written: No space left on device. Make room, or name another place.\n"
    )


def test_a_refusal_without_standard_error(tmp_path: Path) -> None:
    assert run("xyzzy", "2>&-", tmp_path) == (2, "")

"""The programs in examples/ against a real server: each runs as a user would run it, and shows what it is there for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.process import ServerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "good_and_bad_key": ["/customer, a good key:", "the fullest partition holds 94% of the items"],
    "synthetic_keys": ["from one partition: [0, 1, 2, 3]", "abc-7 in all years: 12 readings"],
    "time_series": [
        "2018-05, 400 RU/s:",
        "2018-07, 12000 RU/s:",
        "2018-06-05T12:00:00Z', '2018-07-01",
        "dropped: 2018-05",
    ],
    "multi_tenancy": ["tenant-7 after a transfer: [70, 130, 100]", "moved: 100 items of tenant-large"],
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = ServerProcess.start(None)
    yield started
    started.stop()


def test_every_example_is_run() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - {"connection"}
    assert programs == set(SHOWN)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_example(server: ServerProcess, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env=os.environ | {"ARMILLARY_URL": server.url, "ARMILLARY_KEY": server.key},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in SHOWN[name]:
        assert line in done.stdout

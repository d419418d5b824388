"""The programs in examples/ against a real server: each runs as a user would run it, and shows what it is there for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.process import ServerProcess, clean_environment

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "device_telemetry": [
        "read, replaced and read again: XMS-0001 104.0",
        "readings of one device: ['XMS-001-FE24C', 'XMS-001-FE26C', 'XMS-001-FE27C', 'XMS-001-FE28C']",
        "above 100 degrees on all devices: 17",
        "hottest: ['XMS-0011 119', 'XMS-0011 118', 'XMS-0011 117']",
        "5 readings in one transaction, the latest: ['XMS-001-FE24C']",
        "import brought: 100.0",
        "12 items are the same in both",
        "the single-partition container now has the key /deviceId",
        "and answers by it: 80.0",
    ],
    "employees": [
        "0001 of Sales: Walter Harp",
        "refused, it exists",
        "departments, from all partitions: ['Marketing', 'Sales']",
        "Sales now: ['Walter Harp', 'Ann Jones']",
        '/"department name": Research and Development',
    ],
    "good_and_bad_key": ["/customer, a good key:", "the fullest partition holds 94% of the items"],
    "synthetic_keys": [
        "from one partition: [0, 1, 2, 3]",
        "abc-7 in all years: 12 readings",
        "xyz-2018-0', 'xyz-2018-1",
    ],
    "time_series": [
        "2018-05, 400 RU/s:",
        "2018-07, 12000 RU/s:",
        "2018-06-05T12:00:00Z', '2018-07-01",
        "dropped: 2018-05",
    ],
    "multi_tenancy": ["tenant-7 after a transfer: [70, 130, 100]", "moved: 100 items of tenant-large"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = ServerProcess.start(tmp_path_factory.mktemp("examples") / "data", "--durability", "relaxed")
    yield started
    started.stop()


def test_every_example_is_run() -> None:
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - {"connection"}
    assert programs == set(SHOWN)


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_example(server: ServerProcess, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        env=clean_environment()
        | {"ARMILLARY_URL": server.url, "ARMILLARY_KEY": server.key, "ARMILLARY_DATA": str(server.directory)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in SHOWN[name]:
        assert line in done.stdout

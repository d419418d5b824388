"""The wheel: the same commit makes the same bytes, and what is in it. `make dist` also builds the source distribution,
installs the wheel into an empty environment and uses it there."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from maintenance import dist


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    [built] = dist.build(tmp_path_factory.mktemp("wheel"), "wheel")
    return built


def test_two_builds_have_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Whatever the umask, the time zone and the order of hashes are."""
    former = os.umask(0o077)
    try:
        again = dist.build(tmp_path, "wheel", variables={"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"})
    finally:
        os.umask(former)
    assert dist.differing([wheel], again) == []


def test_the_wheel_can_be_published(wheel: Path) -> None:
    assert dist.wheel_faults(wheel) == []


def test_what_must_not_be_in_a_wheel_is_named(tmp_path: Path) -> None:
    path = tmp_path / "armillary-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("armillary/unit/tests/test_keys.py", "")
        archive.writestr("tests/conftest.py", "")
        archive.writestr("armillary/keys.so", b"0" * dist.WHEEL_BYTES_MAX)
    found = " ".join(dist.wheel_faults(path))
    for words in (
        "more than 3,000,000",
        "LICENCES.txt",
        "tests/conftest.py",
        "stay in the source",
        "keys.so",
        "some mach",
    ):
        assert words in found


def test_examples_of_all_apis_name_the_default_ports() -> None:
    """So that the trial in an empty environment finds them, and puts the server's own in their place."""
    addresses = {door: f"x://127.0.0.1:{number}" for number, door in enumerate(dist.DEFAULT_PORTS, 1)}
    for page, door in zip(dist.EXAMPLES, dist.DEFAULT_PORTS, strict=True):
        text = dist.example(page, addresses)
        assert f":{addresses[door].rpartition(':')[2]}" in text
        assert f":{dist.DEFAULT_PORTS[door]}" not in text


def test_the_workflow_runs_what_there_is() -> None:
    jobs = yaml.safe_load((dist.ROOT / ".github" / "workflows" / "dist.yml").read_text("utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands == ["make dist BASE_PYTHON=python3.11", "python -m maintenance.dist --try dist"]
    assert "\ndist: " in (dist.ROOT / "Makefile").read_text("utf-8")

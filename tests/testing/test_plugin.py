"""The pytest plugin in projects of its users: what it refuses, how it costs nothing unused, its servers under
pytest-xdist, and their end when pytest is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from support.process import clean_environment
from support.waiting import until

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 240
# Only this plugin: those of our environment are not the user's.
COMMAND = [sys.executable, "-m", "pytest", "-p", "armillary.testing.plugin", "-p", "no:cacheprovider", "-q"]


def environment() -> dict[str, str]:
    return clean_environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def write(place: Path, **files: str) -> None:
    (place / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    for name, text in files.items():
        (place / f"{name}.py").write_text(textwrap.dedent(text))


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments]
    return subprocess.run(
        command, cwd=place, env=environment(), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def test_the_wheel_names_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"armillary": "armillary.testing.plugin"}


def test_unused_it_imports_neither_server_nor_clients(tmp_path: Path) -> None:
    write(
        tmp_path,
        test_it="""
            import sys

            def test_modules():
                tops = ("armillary", "azure", "pymongo", "bson", "gremlin_python", "uvloop", "rocksdict", "quickjs")
                found = sorted(name for name in sys.modules if name.partition(".")[0] in tops)
                assert found == ["armillary", "armillary.testing", "armillary.testing.plugin"]
        """,
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout


def test_a_project_of_its_own(tmp_path: Path) -> None:
    """Seeded once, restored for each test; markers that are wrong and packages that are missing are errors of one
    sentence. In two workers of pytest-xdist, each of which runs all tests and has a server of its own."""
    write(
        tmp_path,
        conftest="""
            import pytest

            @pytest.fixture(scope="session")
            def armillary_settings():
                return {"account": "mine"}

            @pytest.fixture(scope="session")
            def armillary_seed():
                def seed(server):
                    server.control.post("databases", body={"name": "seeded"})
                return seed
        """,
        test_it="""
            import pathlib
            import sys
            import pytest

            @pytest.mark.parametrize("time", [1, 2])
            def test_seeded(armillary, cosmos_client, worker_id, time):
                pathlib.Path(f"{worker_id}-{armillary.pid}").touch()
                assert [each["id"] for each in cosmos_client.list_databases()] == ["seeded"]
                assert armillary.control.get("server")["account"] == "mine"
                cosmos_client.delete_database("seeded")

            @pytest.mark.armillary(partition_storge="1MB")
            def test_wrong_setting(armillary): ...

            @pytest.mark.armillary(sql_port=8081)
            def test_own_setting(armillary): ...

            @pytest.mark.armillary(partition_storage="much")
            def test_wrong_value(armillary): ...

            @pytest.mark.armillary("enforce")
            def test_unnamed(armillary): ...

            @pytest.fixture
            def without_client(monkeypatch):
                monkeypatch.setitem(sys.modules, "azure.cosmos", None)

            def test_missing(without_client, cosmos_client): ...
        """,
    )
    done = run(tmp_path, "-p", "xdist.plugin", "-n", "2", "--dist", "each")
    assert "4 passed, 10 errors" in done.stdout, done.stdout + done.stderr
    for words in (
        "The setting partition_storge is not known. Did you mean partition_storage?",
        "The setting sql_port is not one that a test gives its server: it listens on free ports.",
        "--partition-storage is 'much'; expected a size of at least 1KB",
        "takes settings by name",
        "cosmos_client needs azure-cosmos",
        "pip install azure-cosmos",
    ):
        assert words in done.stdout, done.stdout
    found = [path.name.split("-") for path in tmp_path.glob("gw*")]
    assert sorted(worker for worker, _ in found) == ["gw0", "gw1"]
    assert not any(is_alive(int(process)) for _, process in found)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
async def test_no_server_outlives_a_pytest_that_is_killed(tmp_path: Path) -> None:
    write(
        tmp_path,
        test_it="""
            import pathlib
            import signal

            def test_it(armillary):
                pathlib.Path("new").write_text(str(armillary.pid))
                pathlib.Path("new").rename("pid")
                signal.pause()
        """,
    )
    process = subprocess.Popen(COMMAND, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    try:
        await until(lambda: (tmp_path / "pid").exists() or process.poll() is not None, "the test runs")
        server = int((tmp_path / "pid").read_text())
        assert is_alive(server)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    await until(lambda: not is_alive(server), "the server has ended")


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False

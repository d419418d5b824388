"""What a server has imported when it is ready, and what comes with the first request of a kind. Each as a process:
this one has imported everything."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import clean_environment

from armillary.late import Late

# Packages and modules that a start does not need. Times are measured elsewhere (docs/performance.md).
NOT_AT_START = (
    *("armillary.doors.mongo", "armillary.doors.gremlin", "armillary.doors.table", "armillary.doors.management"),
    *("armillary.languages.mongo", "armillary.languages.gremlin", "armillary.languages.odata"),
    *("armillary.account.graphs", "armillary.cluster", "armillary.query.text.patterns"),
    *("armillary.doors.control.routes", "armillary.doors.control.figures", "armillary.doors.control.metrics"),
    *("armillary.insight.planning", "armillary.insight.advice", "armillary.portal.language_bridges"),
    *("armillary.tools.serving.serve_node", "armillary.tools.demo", "armillary.tools.shell"),
    *("asyncpg", "cramjam", "cryptography", "difflib", "gzip", "numpy", "prompt_toolkit", "rich", "tomllib"),
    *("websockets", "xml", "zoneinfo"),
)
IMPORTED = re.compile(r"^import time:.*\| +(\S+)$", re.MULTILINE)


def test_a_start_imports_no_door_but_sql_and_control(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "armillary", "serve", "--data", str(tmp_path / "data")]
    log = tmp_path / "imports"
    with (
        log.open("w") as told,
        subprocess.Popen(
            [*command, "--sql-port", "0", "--management-port", "0", "--stop-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            env=clean_environment(),
        ) as server,
    ):
        assert server.stdout is not None
        ready = server.stdout.readline()
        imported = set(IMPORTED.findall(log.read_text()))
    assert {"sql", "table", "mongo", "gremlin", "management"} <= {each.partition("=")[0] for each in ready.split()}
    assert "armillary.doors.sql.door" in imported
    early = {each for each in imported for late in NOT_AT_START if each == late or each.startswith(f"{late}.")}
    assert not early, "imported before the server was ready: import them where they are used, or see late.py"


def test_an_object_is_made_with_its_first_use() -> None:
    made: list[str] = []
    told: list[str] = []

    def make() -> str:
        made.append("door")
        return "door"

    async def use() -> None:
        late = Late(make, "json")
        late.when_made(told.append)
        assert (late.made, made, told) == (None, [], [])
        assert list(await asyncio.gather(late.load(), late.load())) == ["door", "door"]
        late.when_made(told.append)
        assert (late.get(), made, told) == ("door", ["door"], ["door", "door"])

    asyncio.run(use())


def test_an_import_that_failed_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    late = Late(lambda: "made", "armillary_late_part")

    async def use() -> None:
        with pytest.raises(ModuleNotFoundError):
            await late.load()
        assert late.made is None
        (tmp_path / "armillary_late_part.py").write_text("")
        sys.path_importer_cache.clear()
        assert await late.load() == "made"

    asyncio.run(use())

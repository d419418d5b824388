"""The released JavaScript clients: the tests of tests/sdk/js/test, run by Node and reported here one by one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.process import ServerProcess

HERE = Path(__file__).parent / "js"
FILES = sorted(HERE.glob("test/*.test.mjs"))
NAMES = [(path.name, name) for path in FILES for name in re.findall(r'^test\("(.+?)"', path.read_text(), re.MULTILINE)]
RUN_S = 580  # of all files together, on a machine that has other work too

pytestmark = pytest.mark.timeout(RUN_S + 20)


@pytest.fixture(scope="module")
def outcomes(server: ServerProcess) -> dict[str, dict[str, str]]:
    node = shutil.which("node")
    assert node is not None, "Node.js 20 or newer is not on the PATH; `make test` brings it"
    assert (HERE / "node_modules/@azure/cosmos").is_dir(), "run `npm ci` in tests/sdk/js; `make test` does"
    run = subprocess.run(
        [node, "--test", f"--test-reporter={HERE / 'reporter.mjs'}", *map(str, FILES)],
        cwd=HERE,
        env={
            **os.environ,
            "TEST_ENDPOINT": server.url,
            "TEST_KEY": server.key,
            "TEST_TABLE_ENDPOINT": server.doors["table"],
            "TEST_MONGO_ENDPOINT": server.doors["mongo"],
            # The development certificate is the server's own; and Node says on stderr that it was told to trust it.
            "NODE_TLS_REJECT_UNAUTHORIZED": "0",
            "NODE_NO_WARNINGS": "1",
        },
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert lines, run.stdout + run.stderr
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_javascript(outcomes: dict[str, dict[str, str]], file: str, name: str) -> None:
    assert name in outcomes, f"{file} did not run it; its outcomes: {outcomes}"
    assert outcomes[name]["passed"], outcomes[name]["reason"]


def test_all_are_known() -> None:
    """A test that the pattern above misses would run and fail unseen."""
    written = sum(path.read_text().count("\ntest(") for path in FILES)
    assert len(NAMES) == len({name for _, name in NAMES}) == written

"""The recipes of docs/testing.md run as they are written. Each block begins with the name of its file; they are put
into one project, which pytest, unittest and Node.js run. In place of vitest and jest, a few lines call the global setup
and the test file."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from support.process import clean_environment

from armillary.tools import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
BLOCK = re.compile(r"^```(python|js|yaml)\n(?:#|//) (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {name: text for _, name, text in BLOCK.findall(PAGE)}
MODULES = ROOT / "tests" / "sdk" / "js" / "node_modules"
SECONDS_MAX = 240
# What a runner does with the module of a global setup and with a test file.
RUNNER = """
import assert from "node:assert/strict";
import jest from "./jest.config.mjs";
import vitest from "./vitest.config.mjs";

assert.deepEqual(vitest.test.globalSetup, [jest.globalSetup]);
const { default: setup } = await import(jest.globalSetup);
const { default: teardown } = await import(jest.globalTeardown);
const stop = await setup();
assert.equal(globalThis.stopArmillary, stop);
const before = [], tests = [];
globalThis.beforeEach = (each) => before.push(each);
globalThis.test = (name, body) => tests.push([name, body]);
globalThis.expect = (value) => ({ toBe: (other) => assert.equal(value, other) });
await import("./orders.test.mjs");
for (let time = 0; time < 2; time += 1) {
  for (const [name, body] of tests) {
    for (const each of before) await each();
    await body();
    console.log(`passed: ${name}`);
  }
}
const { control } = await import("./armillary-control.mjs");
assert.equal((await control("GET", "faults")).faults.length, 2);
await assert.rejects(control("GET", "nothing"), /nothing/);
await teardown();
await assert.rejects(fetch(process.env.COSMOS_ENDPOINT));
process.exit(0); // the client keeps connections
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        if "/" not in name:
            (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(place: Path, *command: str) -> str:
    environment = clean_environment() | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_all_blocks_are_named() -> None:
    assert len(BLOCK.findall(PAGE)) == PAGE.count("\n```") // 2
    assert len(FILES) == PAGE.count("\n```") // 2


def test_pytest_and_unittest(project: Path) -> None:
    (project / "test_in_a_container.py").rename(project / "container.py")
    (project / "test_with_unittest.py").rename(project / "with_unittest.py")
    command = [sys.executable, "-m", "pytest", "-p", "armillary.testing.plugin", "-p", "no:cacheprovider", "-q"]
    assert "6 passed" in run(project, *command)
    assert "OK" in run(project, sys.executable, "-m", "unittest", "-q", "with_unittest")
    compile((project / "container.py").read_text(), "container.py", "exec")


def test_node(project: Path) -> None:
    if not MODULES.exists():
        pytest.skip("the JavaScript clients are not installed: make tests installs them")
    (project / "node_modules").symlink_to(MODULES)
    (project / "runner.mjs").write_text(RUNNER)
    assert run(project, "node", "runner.mjs").count("passed: an order is kept") == 2


def test_the_workflow_is_one() -> None:
    jobs = yaml.safe_load(FILES[".github/workflows/tests.yml"])["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    [serving] = [line for step in steps for line in step.splitlines() if line.startswith("armillary serve")]
    arguments = shlex.split(serving.partition(">")[0])[1:]
    assert cli._parser().parse_args(arguments).command == "serve"


def test_methods_that_it_names_exist() -> None:
    from armillary.testing import Controls

    [table] = re.findall(r"^\| Method .*?(?=^\n)", PAGE, re.MULTILINE | re.DOTALL)
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)[(`]", row.split(" | ")[0])}
    assert len(named) > 20
    assert {name for name in named if not hasattr(Controls, name)} == set()

"""What a plain installation does without the packages of the extras: each command that needs one says how it is
installed. The packages are hidden from a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.process import clean_environment

WORKLOAD = Path(__file__).parents[2] / "foresight" / "workloads" / "even.toml"
PROGRAM = """
import contextlib, io, json, sys

for name in ("numpy", "datasketches", "pyarrow", "asyncpg", "opentelemetry", "testcontainers"):
    sys.modules[name] = None
from armillary.tools.cli import main

said = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        said.append([main(arguments), errors.getvalue()])
print(json.dumps(said))
"""


def test_commands_without_their_packages_name_the_extra(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "1"}\n')
    serve = ["serve", "--sql-port", "0"]
    commands = {
        "foresight": [
            ["advise", "rows.jsonl"],
            ["advise", "shop/orders"],
            ["simulate", "--workload", str(WORKLOAD)],
            ["scale-model", "--workload", str(WORKLOAD)],
        ],
        "parquet": [["import", "rows.parquet", "shop/orders"]],
        "tracing": [[*serve, "--memory", "--tracing", "http://127.0.0.1:1/v1/traces"]],
        "cluster": [[*serve, "--cluster", "postgresql://127.0.0.1:1/none"]],
    }
    (tmp_path / "rows.parquet").touch()
    listed = [arguments for each in commands.values() for arguments in each]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(listed)],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said = iter(json.loads(done.stdout))
    for extra, each in commands.items():
        for arguments in each:
            code, errors = next(said)
            assert code == 2 and f"pip install 'armillary[{extra}]'" in errors, (arguments, errors)
            assert errors.startswith("armillary: ") and errors.count("\n") == 1

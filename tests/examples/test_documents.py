"""The examples of README.md and of the first pages run as they are written: shell lines in a shell, programs in Python
and JavaScript, in a directory of their own with a server that the text itself starts.

The texts name the default ports, so each page runs in a network namespace of its own, where they are free. Where the
kernel allows none (some containers), the default ports have to be free, or the test is skipped.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import clean_environment

ROOT = Path(__file__).parents[2]
PORTS = (8081, 8901, 8902, 10255)
BLOCK = re.compile(r"^```(sh|python|javascript)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVES = re.compile(r"^(?:make serve|armillary serve)\b")
NODE_MODULES = ROOT / "tests" / "sdk" / "js" / "node_modules"
IN_NODE = ("docs/connect.md",)  # pages whose JavaScript is a program, not part of one
SECONDS_MAX = 240
_OF_MAKE = ("MAKE", "MFLAGS", "ARGS")  # what `make tests ARGS=…` would hand on to `make serve`
# Runs in the namespace: brings its loopback device up, then the script.
_INSIDE = """
import fcntl, os, socket, struct, sys
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running
os.execvp("bash", ["bash", "-euo", "pipefail", sys.argv[1]])
"""


def has_namespaces() -> bool:
    command = ["unshare", "--user", "--map-root-user", "--net", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def are_free(ports: tuple[int, ...]) -> bool:
    for port in ports:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def checkout(place: Path) -> Path:
    """A directory like a checkout in which `make install` has been run, without data of the developer's."""
    place.mkdir()
    locks = ("requirements.lock", "requirements-build.lock", "requirements-foresight.lock")
    for name in ("Makefile", "pyproject.toml", *locks, "src"):
        (place / name).symlink_to(ROOT / name)
    (place / "pytest.ini").write_text("[pytest]\n")  # a reader's tests do not have our settings
    environment = place / ".venv"
    environment.mkdir()
    (environment / "bin").symlink_to(Path(sys.executable).parent)
    (environment / ".installed").touch()
    (environment / ".installed-dev").touch()
    return place


def script_of(pages: list[str], place: Path) -> str:
    """The examples of some pages, one after the other. A line that serves goes to the background until it is ready.
    What a page has in Python is one program, which stands where it begins."""
    parts = ["trap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT"]
    for number, page in enumerate(pages):
        blocks = BLOCK.findall((ROOT / page).read_text("utf-8"))
        program = "\n".join(block for language, block in blocks if language == "python")
        (place / f"example_{number}.py").write_text(program)
        for index, (language, block) in enumerate(blocks):
            if language == "javascript":
                if page in IN_NODE:
                    (place / f"example_{number}_{index}.cjs").write_text(block)
                    parts.append(f"NODE_PATH={NODE_MODULES} node example_{number}_{index}.cjs")
                continue
            if language == "python":
                if "python" not in [earlier for earlier, _ in blocks[:index]]:
                    runs_tests = "import pytest" in program
                    parts.append(f"python {'-m pytest -q ' if runs_tests else ''}example_{number}.py")
                continue
            for line in block.replace("\\\n", " ").splitlines():
                if SERVES.match(line):
                    log = f"server_{number}_{index}.log"
                    parts.append(f"{line.removesuffix('&')} > {log} &")
                    parts.append(f"timeout 100 bash -c 'until grep -q ^ready {log}; do sleep 0.05; done'")
                elif line.strip():
                    parts.append(line)
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize(
    ("pages", "shown"),
    [
        (
            ["README.md", "docs/sql.md", "docs/table.md", "docs/mongo.md", "docs/gremlin.md"],
            ["'customer': 'ada'", "by /customer: 1 item of 1 key", "[12.5]", "'RowKey': 'Ben'", "'name': 'Ben'"],
        ),
        (
            ["docs/connect.md"],
            [
                "  AccountEndpoint=http://127.0.0.1:8081/;",
                "SQL []",
                "MongoDB {'ok': 1.0",
                "Table []",
                "Gremlin [0]",
                "JavaScript SQL [ 'travel' ]",
                "JavaScript Table people",
            ],
        ),
    ],
    ids=["connect", "strings"],
)
def test_examples_run_as_they_are_written(pages: list[str], shown: list[str], tmp_path: Path) -> None:
    if not has_namespaces() and not are_free(PORTS):
        pytest.skip("the default ports are taken, and there are no network namespaces")
    place = checkout(tmp_path / "checkout")
    script = place / "script.sh"
    script.write_text(script_of(pages, place))
    isolated = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", _INSIDE]
    done = subprocess.run(
        [*(isolated if has_namespaces() else ["bash", "-euo", "pipefail"]), str(script)],
        cwd=place,
        env={name: value for name, value in clean_environment().items() if not name.startswith(_OF_MAKE)}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in shown:
        assert words in done.stdout, done.stdout

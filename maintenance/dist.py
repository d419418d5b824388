"""`make dist`: builds the wheel and the source distribution into dist/, twice, and compares the bytes; then installs
the wheel into an empty virtual environment, in an empty directory, and uses it there: a server, the examples of the
four APIs, a project of pytest. Times are printed, not judged.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "dist"
WHEEL_BYTES_MAX = 3_000_000
# Tests of users need these besides: the clients, and pytest.
CLIENTS = ("azure-cosmos", "azure-data-tables", "gremlinpython", "pytest")
# The page of each API, with what its example prints.
EXAMPLES = {
    "README.md": "'customer': 'ada'",
    "docs/mongo.md": "'name': 'Ben'",
    "docs/table.md": "'RowKey': 'Ben'",
    "docs/gremlin.md": "[]",
}
DEFAULT_PORTS = {"sql": 8081, "mongo": 10255, "table": 8902, "gremlin": 8901}
REQUIRED = (
    "armillary/py.typed",
    "armillary/portal/static/vendor/LICENCES.txt",
    "armillary/scripts/prelude.js",
    "dist-info/licenses/LICENSE",
    "dist-info/entry_points.txt",
)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What docs/testing.md says a figure about.
_PROJECT = """
import pytest

@pytest.mark.parametrize("number", range(56))
def test_an_order_is_kept(cosmos_container, number):
    orders = cosmos_container("orders", "/customer", throughput=400)
    assert list(orders.read_all_items()) == []
    orders.create_item({"id": "1", "customer": "ada"})
    assert orders.read_item("1", partition_key="ada")["customer"] == "ada"
"""


def epoch(root: Path) -> str:
    """The time of the last commit, which files in the archives have."""
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        if "SOURCE_DATE_EPOCH" in os.environ:
            return os.environ["SOURCE_DATE_EPOCH"]
        raise SystemExit("dist: this is no checkout of git: set SOURCE_DATE_EPOCH to the time of the release")
    return done.stdout.strip()


def build(target: Path, *kinds: str, variables: Mapping[str, str] | None = None) -> list[Path]:
    """The wheel and the source distribution, or what of both `kinds` names, from the files of the checkout."""
    asked = [argument for kind in kinds for argument in ("--target", kind)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch(ROOT), **(variables or {})}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target), *asked]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return sorted(target.iterdir())


def differing(some: list[Path], others: list[Path]) -> list[str]:
    """The names of files that are not in both, or not with the same bytes."""
    first, second = ({path.name: path.read_bytes() for path in each} for each in (some, others))
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def wheel_faults(wheel: Path) -> list[str]:
    """What must not be so in a wheel, as sentences; none: it can be published."""
    found = []
    if (size := wheel.stat().st_size) > WHEEL_BYTES_MAX:
        found.append(f"It has {size:,} bytes, more than {WHEEL_BYTES_MAX:,}.")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entries = next((archive.read(name).decode() for name in names if name.endswith("entry_points.txt")), "")
    found += [f"It has no {name}." for name in REQUIRED if not any(each.endswith(name) for each in names)]
    strange = [name for name in names if not name.startswith("armillary/") and ".dist-info/" not in name]
    found += [f"It has {name}, which belongs to no package of ours." for name in strange]
    found += [f"It has {name}: tests stay in the source." for name in names if "/tests/" in name or "/test_" in name]
    found += [f"It has {name}, which is made at run time." for name in names if name.endswith((".pyc", ".so"))]
    if not wheel.name.endswith("-py3-none-any.whl"):
        found.append("It is for some machines only.")
    for entry in ("armillary = armillary.tools.cli:main", "armillary = armillary.testing.plugin"):
        if entry not in entries:
            found.append(f"Its entry points do not have {entry!r}.")
    return found


def try_out(wheel: Path, place: Path) -> None:
    """Install the wheel into an empty environment, and use it in an empty directory. Raises if anything fails."""
    with _timed("an empty environment"):
        venv.create(place / "environment", with_pip=True)
    programs = place / "environment" / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    with _timed("pip install of the wheel and of what it needs, wheels only"):
        _run([*pip, str(wheel)], place)
    with _timed(f"pip install {' '.join(CLIENTS)}"):
        _run([*pip, *CLIENTS], place)
    work = place / "work"
    work.mkdir()
    program = str(programs / "armillary")
    with _timed("armillary version"):
        print(_run([program, "version"], work).strip())
    with _served(program, work) as addresses:
        _run(
            [program, "containers", "create", "travel/roads", "--partition-key=/region", f"--url={addresses['sql']}"],
            work,
        )
        for page, shown in EXAMPLES.items():
            (work / "example.py").write_text(example(page, addresses))
            with _timed(f"the example of {page}"):
                said = _run([python, "example.py"], work)
            if shown not in said:
                raise SystemExit(f"dist: the example of {page} printed {said!r}, without {shown!r}")
    (work / "test_orders.py").write_text(_PROJECT)
    with _timed("pytest: 56 tests with a database of their own, the first time"):
        _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"], work)
    with _timed("the same again"):
        print(_run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"], work).strip())


def example(page: str, addresses: Mapping[str, str]) -> str:
    """The Python of a page, with the server's ports in the place of the default ones."""
    text = "\n".join(_BLOCK.findall((ROOT / page).read_text("utf-8")))
    for door, port in DEFAULT_PORTS.items():
        text = text.replace(f":{port}", f":{addresses[door].rpartition(':')[2]}")
    return text


@contextmanager
def _served(program: str, work: Path) -> Iterator[dict[str, str]]:
    command = [program, "serve", "--memory", "--sql-port", "0", "--stop-with-stdin"]
    with (
        (work / "server.log").open("wb") as log,
        subprocess.Popen(
            command,
            cwd=work,
            env=_environment(work),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as server,
    ):
        assert server.stdin is not None and server.stdout is not None
        with _timed("armillary serve, until it is ready for the first time"):
            words = server.stdout.readline().split()
        if not words:
            raise SystemExit("dist: the server did not start:\n" + (work / "server.log").read_text("utf-8"))
        try:
            yield dict(word.split("=", 1) for word in words[1:])
        finally:
            server.stdin.close()
            server.wait(60)


@contextmanager
def _timed(what: str) -> Iterator[None]:
    begun_s = time.perf_counter()
    yield
    print(f"{time.perf_counter() - begun_s:7.2f} s  {what}", flush=True)


def _run(command: list[str], place: Path) -> str:
    done = subprocess.run(command, cwd=place, env=_environment(place), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dist: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _environment(place: Path) -> dict[str, str]:
    """Without what this environment says about Python and Armillary."""
    unwanted = ("PYTHON", "ARMILLARY_", "PYTEST_", "VIRTUAL_ENV", "XDG_")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)} | {"HOME": str(place)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make dist", description="Build what is published, and try it.")
    parser.add_argument("--no-try", action="store_true", help="build and compare only")
    parser.add_argument("--try", dest="built", type=Path, metavar="DIR", help="build nothing: try the wheel of DIR")
    given = parser.parse_args(arguments)
    if given.built is not None:
        [wheel] = given.built.resolve().glob("*.whl")
        with tempfile.TemporaryDirectory(prefix="armillary-dist-", ignore_cleanup_errors=True) as scratch:
            try_out(wheel, Path(scratch))
        return 0
    shutil.rmtree(TARGET, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="armillary-dist-") as scratch:
        with _timed("wheel and source distribution, twice"):
            built = build(TARGET)
            again = build(Path(scratch) / "again", variables={"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"})
        if names := differing(built, again):
            raise SystemExit(f"dist: two builds differ: {', '.join(names)}")
        [wheel] = [path for path in built if path.suffix == ".whl"]
        if faults := wheel_faults(wheel):
            raise SystemExit("\n".join([f"dist: {wheel.name} cannot be published.", *faults]))
        for path in built:
            print(f"{path.stat().st_size:>11,} bytes  dist/{path.name}")
        if not given.no_try:
            try_out(wheel, Path(scratch))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

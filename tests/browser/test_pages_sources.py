"""The files of the portal's pages: none writes markup, all are small; and the libraries that were bundled."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from armillary.languages.sql.compiling.function_table import FUNCTIONS
from armillary.model.keys import parse_path

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "armillary" / "portal" / "static"
VENDOR = STATIC / "vendor"
BUNDLER = ROOT / "maintenance" / "vendor"
OWN = [path for path in sorted(STATIC.rglob("*.js")) if VENDOR not in path.parents]
KB = 1024


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_modules_write_no_markup_and_have_one_subject(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text), "nothing is fetched from elsewhere"
    assert text.startswith("//"), "a module says first what it is for"
    assert len(text.splitlines()) <= 300


# Paths of partition keys, and what a page writes into a query for them.
PATHS = {
    "/a": 'c["a"]',
    "/a/b": 'c["a"]["b"]',
    '/"a b"/c': 'c["a b"]["c"]',
    "/'le/vel'/x": 'c["le/vel"]["x"]',
    '/"it\'s"': 'c["it\'s"]',
    r'/"a\"b"/ c ': r'c["a\\\"b"]["c"]',
}


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js to run the module")
def test_paths_are_read_as_the_server_reads_them() -> None:
    module = (STATIC / "text" / "paths.js").as_uri()
    program = f"""
        import {{ pathInQuery, pathSteps }} from {json.dumps(module)};
        const paths = {json.dumps(list(PATHS))};
        console.log(JSON.stringify([paths.map(pathSteps), paths.map(pathInQuery)]));
    """
    run = subprocess.run(["node", "--input-type=module", "-e", program], capture_output=True, text=True, check=True)
    steps, texts = json.loads(run.stdout)
    assert steps == [list(parse_path(path)) for path in PATHS]
    assert texts == list(PATHS.values())


# Views whose buttons cannot be pressed again while a request is on its way, and one that asks again after the answer.
ONE_AT_A_TIME = {"views/resource-forms.js", "views/sample-data.js", "views/foresight/estimate.js"}


def test_views_ask_by_what_keeps_answers_in_order() -> None:
    """Those that send requests by themselves, rather than by useData, do so by the hooks of widgets/asking.js."""
    asks = re.compile(r"import \{[^}]*\b(?:control|bridge|sql)\b[^}]*\} from \"[./]*data/client\.js\"|data/items\.js\"")
    views = {path.relative_to(STATIC).as_posix(): path.read_text() for path in (STATIC / "views").rglob("*.js")}
    unordered = {name for name, text in views.items() if asks.search(text) and "widgets/asking.js" not in text}
    assert unordered == ONE_AT_A_TIME


def test_pages_have_no_inline_script_or_style() -> None:
    text = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|<script(?![^>]* src=)|\son\w+=", text)
    preloaded = re.findall(r"\{digest\}/([^\"]+)", text)
    assert preloaded and all((STATIC / name).is_file() for name in preloaded)


def test_editor_knows_the_functions_of_the_language() -> None:
    text = (STATIC / "text" / "sql-words.js").read_text()
    listed = text.partition("FUNCTIONS = `")[2].partition("`")[0].split()
    assert listed == sorted(FUNCTIONS)


def test_all_files_together_are_small() -> None:
    sizes = {path: len(gzip.compress(path.read_bytes(), 9)) for path in STATIC.rglob("*") if _is_served(path)}
    assert sum(sizes.values()) <= 400 * KB, sorted(sizes.items(), key=lambda each: -each[1])[:5]


def _is_served(path: Path) -> bool:
    """To a browser: neither types for the checker nor texts of licences are."""
    return path.is_file() and path.suffix in (".js", ".css", ".html", ".svg")


def test_pictures_of_the_documentation_are_there_and_small() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "portal.md"):
        named = re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", page.read_text())
        assert named
        assert all((page.parent / each).stat().st_size <= 200 * KB for each in named)


def test_manifest_names_what_is_bundled() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    licences = (VENDOR / "LICENCES.txt").read_text()
    for module in manifest["modules"]:
        content = (VENDOR / module["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == module["sha256"], module["name"]
    for package in manifest["packages"]:
        assert package["licence"] in ("MIT", "ISC", "Apache-2.0", "BSD-3-Clause"), package
        assert f"{package['name']} {package['version']} ({package['licence']})" in licences


def test_lock_names_no_download_address() -> None:
    assert '"resolved"' not in (BUNDLER / "package-lock.json").read_text()


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js to bundle the libraries with")
def test_bundles_are_built_again_byte_for_byte(tmp_path: Path) -> None:
    if not (BUNDLER / "node_modules").is_dir():
        pytest.skip("maintenance/vendor has no packages: make maintenance/vendor/node_modules/.installed")
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=BUNDLER, check=True)
    built = sorted(path.name for path in tmp_path.iterdir())
    assert built == sorted(path.name for path in VENDOR.iterdir() if path.suffix != ".ts" and ".d." not in path.name)
    for name in built:
        assert (tmp_path / name).read_bytes() == (VENDOR / name).read_bytes(), f"{name} differs: run make vendor"


def test_wheel_is_small_and_has_the_licences(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= 3 * KB * KB
    with zipfile.ZipFile(wheel) as opened:
        assert "armillary/portal/static/vendor/LICENCES.txt" in opened.namelist()
        assert "armillary/portal/static/index.html" in opened.namelist()

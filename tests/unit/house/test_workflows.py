"""The workflows of .github and the one that docs/testing.md shows: they run commands that there are, and read files and
artifacts that there are."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOB_KEYS = {"needs", "runs-on", "timeout-minutes", "continue-on-error", "strategy", "permissions", "steps"}
STEP_KEYS = {"uses", "with", "run", "env", "if"}
IN_STEPS = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
CONTEXTS = re.compile(r"github\.(ref|ref_name|repository|actor|sha)|matrix\.\w+|secrets\.GITHUB_TOKEN")
FUNCTIONS = ("startsWith",)


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    found["on"] = found.pop(True)  # YAML 1.1 reads the word as a truth
    return found


def steps_of(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_what_it_needs(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}, "a job asks for more, where it needs more"
    for name, job in workflow["jobs"].items():
        assert set(job) <= JOB_KEYS, name
        assert job["timeout-minutes"] <= 60
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(workflow["jobs"]), name
        matrix = job.get("strategy", {}).get("matrix", {})
        assert set(re.findall(r"matrix\.(\w+)", str(job))) == set(matrix), name
        for step in job["steps"]:
            assert set(step) <= STEP_KEYS and ("uses" in step) != ("run" in step), step
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1")), "an action has a version"
    for expression in IN_STEPS.findall(path.read_text("utf-8")):
        words = re.findall(r"[A-Za-z_][\w.]*", re.sub(r"'[^']*'", "", expression))
        assert all(CONTEXTS.fullmatch(word) or word in FUNCTIONS for word in words), expression


def test_versions_of_actions_are_the_same_everywhere() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in steps_of(read(path)) if "uses" in step}
    assert len({name.partition("@")[0] for name in used}) == len(used), sorted(used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_names_what_there_is(path: Path) -> None:
    workflow = read(path)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for step in steps_of(workflow):
        for line in step.get("run", "").replace("\\\n", " ").splitlines():
            words = shlex.split(IN_STEPS.sub("3.11", line), comments=True)
            if words[:1] == ["make"]:
                assert words[1] in targets, line
            for word in words:
                if word.endswith(".lock"):
                    assert (ROOT / word).exists(), line
    written = [step["with"]["name"] for step in steps_of(workflow) if "upload-artifact" in step.get("uses", "")]
    wanted = [step["with"]["name"] for step in steps_of(workflow) if "download-artifact" in step.get("uses", "")]
    assert set(wanted) <= set(written)
    for event in workflow["on"].values():
        for pattern in (event or {}).get("paths", []):
            assert any(fnmatch(str(file.relative_to(ROOT)), pattern) for file in ROOT.glob(pattern)), pattern


def test_the_image_is_built_when_what_goes_into_it_changes() -> None:
    paths = read(ROOT / ".github" / "workflows" / "image.yml")["on"]["pull_request"]["paths"]
    ignore = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sources = [line[1:] for line in ignore if line.startswith("!")]
    for source in sources:
        name = f"{source}/any" if (ROOT / source).is_dir() else source
        assert any(fnmatch(name, pattern) for pattern in paths), source


def test_tags_of_the_image_are_valid_for_pull_requests_too() -> None:
    """`github.ref_name` is there a name with a slash, which no tag may have."""
    steps = steps_of(read(ROOT / ".github" / "workflows" / "image.yml"))
    tags = [line for step in steps for line in str(step.get("with", {}).get("tags", "")).splitlines()]
    assert len(tags) == 3
    for tag in tags:
        assert "github.ref_name" not in tag or "startsWith(github.ref, 'refs/tags/v') && github.ref_name ||" in tag

"""What `make release` refuses, and the tag that it makes, in small repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from maintenance import release

PROJECT = '[project]\nname = "armillary"\n[project.urls]\nSource = "https://code.test/armillary"\n'
CHANGELOG = (
    "# Changelog\n\nWhat users notice.\n\n## 1.2.3 (2026-01-31)\n\n- One.\n- Two.\n\n## 1.2.2 (2026-01-01)\n\n- Old.\n"
)


def git(root: Path, *arguments: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@code.test"]
    return subprocess.run(["git", *names, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@code.test")
    (tmp_path / "src" / "armillary").mkdir(parents=True)
    (tmp_path / "src" / "armillary" / "__init__.py").write_text('"""A."""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def test_a_commit_that_is_ready_is_tagged_with_its_section(root: Path) -> None:
    assert release.obstacles(root) == []
    said = release.tag(root)
    assert "git push origin HEAD v1.2.3" in said
    assert git(root, "for-each-ref", "--format=%(contents)", "refs/tags/v1.2.3").strip() == (
        "Armillary 1.2.3\n\n- One.\n- Two."
    )
    assert [text for text in release.obstacles(root) if "The tag v1.2.3 exists" in text]


@pytest.mark.parametrize(
    ("file", "old", "new", "refusal"),
    [
        ("CHANGELOG.md", "## 1.2.3 (2026-01-31)", "## Unreleased", 'the section "Unreleased"'),
        ("CHANGELOG.md", "(2026-01-31)", "", "YYYY-MM-DD"),
        ("CHANGELOG.md", "- One.\n- Two.\n", "", "is empty"),
        ("src/armillary/__init__.py", "1.2.3", "1.3.0", '"## 1.3.0 (YYYY-MM-DD)"'),
        ("pyproject.toml", "code.test", "armillary.example", "URL Source is a placeholder"),
    ],
)
def test_a_commit_that_is_not_ready_is_refused(root: Path, file: str, old: str, new: str, refusal: str) -> None:
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new))
    assert "Not everything is committed" in release.obstacles(root)[0]
    git(root, "commit", "--quiet", "--all", "--message", "changed")
    assert [said for said in release.obstacles(root) if refusal in said], release.obstacles(root)

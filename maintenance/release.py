"""The two halves of `make release`: `check` names everything that stands against releasing the checked-out commit, and
`tag` tags it with the text of its changelog section and prints the commands that publish it. Nothing is pushed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_VERSION = re.compile(r'^__version__ = "(\d+\.\d+\.\d+)"$', re.MULTILINE)
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def version_of(root: Path) -> str:
    found = _VERSION.search((root / "src" / "armillary" / "__init__.py").read_text("utf-8"))
    if found is None:
        raise SystemExit("src/armillary/__init__.py: __version__ is not three numbers such as 1.2.3")
    return found[1]


def newest_section(root: Path) -> tuple[str, str]:
    """The heading and the text of the changelog's first section."""
    found = _SECTION.search((root / "CHANGELOG.md").read_text("utf-8"))
    return (found[1].strip(), found[2].strip()) if found else ("", "")


def obstacles(root: Path) -> list[str]:
    """Why the commit cannot be released, as sentences; none: it can."""
    version = version_of(root)
    heading, text = newest_section(root)
    found = []
    if changed := _git(root, "status", "--porcelain"):
        found.append(f"Not everything is committed:\n{changed}")
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        found.append(f'CHANGELOG.md begins with the section "{heading}"; it has to be "## {version} (YYYY-MM-DD)".')
    if not text:
        found.append("CHANGELOG.md: the newest section is empty.")
    if _git(root, "tag", "--list", f"v{version}"):
        found.append(f"The tag v{version} exists. Raise __version__ in src/armillary/__init__.py.")
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    for name, address in project.get("urls", {}).items():
        if ".example/" in f"{address}/":
            found.append(f"pyproject.toml: the project URL {name} is a placeholder ({address}).")
    return found


def tag(root: Path) -> str:
    """Make the annotated tag, and say what to do with it."""
    version = version_of(root)
    _git(
        root,
        "tag",
        "--annotate",
        f"v{version}",
        "--cleanup=verbatim",
        "--message",
        f"Armillary {version}\n\n{newest_section(root)[1]}\n",
    )
    return (
        f"Tagged v{version}; dist/ has the source distribution and the wheel. To publish:\n"
        f"  git push origin HEAD v{version}\n"
        f"  twine upload dist/armillary-{version}*"
    )


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout.rstrip()


def main(arguments: list[str]) -> int:
    if arguments == ["tag"]:
        print(tag(ROOT))
        return 0
    for obstacle in (found := obstacles(ROOT)):
        print(f"release: {obstacle}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

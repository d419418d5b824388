"""Coverage of each package, from what `make coverage` measured: the share of its lines and branches that ran, and with
names of packages as arguments, the lines of their modules that did not.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maintenance.modules import layers

_PACKAGE = "src/armillary/"


@dataclass
class Figures:
    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def add(self, summary: dict[str, int]) -> None:
        self.lines += summary["num_statements"]
        self.lines_run += summary["covered_lines"]
        self.branches += summary["num_branches"]
        self.branches_run += summary["covered_branches"]

    def row(self, name: str) -> str:
        return (
            f"{name:<24}{self.lines:>8}{_share(self.lines_run, self.lines)}{_share(self.branches_run, self.branches)}"
        )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:>10.1%}" if whole else f"{'':>10}"


def by_package(files: dict[str, dict[str, Any]]) -> dict[str, Figures]:
    """`files` as `coverage json` writes them. Packages in the order of imports, then the whole."""
    found: dict[str, Figures] = defaultdict(Figures)
    for path, file in files.items():
        name = path.partition(_PACKAGE)[2].partition("/")[0].removesuffix(".py")
        found[name].add(file["summary"])
        found["all"].add(file["summary"])
    order = [*layers(), *sorted(set(found) - {*layers(), "all"}), "all"]
    return {name: found[name] for name in order if name in found}


def gaps(files: dict[str, dict[str, Any]], package: str) -> list[str]:
    """Modules of a package, given as in src/armillary, with the numbers of their lines that did not run."""
    return [
        f"{path}: {', '.join(map(str, file['missing_lines']))}"
        for path, file in sorted(files.items())
        if path.partition(_PACKAGE)[2].startswith((f"{package}/", f"{package}.py")) and file["missing_lines"]
    ]


def main(report: str, *packages: str) -> None:
    files = json.loads(Path(report).read_text("utf-8"))["files"]
    for package in packages:
        print("\n".join(gaps(files, package)))
    print(f"{'package':<24}{'lines':>8}{'run':>10}{'branches':>10}")
    for name, figures in by_package(files).items():
        print(figures.row(name))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""docs/internals/modules.md: every module of the package with the first paragraph of its docstring, in the order of the
import layers from the program down to the errors. `make docs` writes it; a test fails if it is stale.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "armillary"
PAGE = ROOT / "docs" / "internals" / "modules.md"

_DOCSTRING = re.compile(r'r?""".*?"""', re.DOTALL)
_INTRODUCTION = """# Modules

<!-- Written by `make docs` from the docstrings (maintenance/modules.py). -->

Packages stand in the order of imports: each imports from those below it only, which `make imports` checks. Docstrings
in the source say more; [How Armillary is built](../architecture.md) shows how the modules work together.
"""


def layers() -> list[str]:
    """The packages and modules directly in `armillary`, from the top layer down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [order] = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [name for layer in order for name in re.findall(r"\w+", layer)]


def first_paragraph(module: Path) -> str:
    """Of the docstring, on one line; empty if there is none."""
    found = _DOCSTRING.match(module.read_text("utf-8"))  # parsing whole modules would take seconds
    text = ast.literal_eval(found[0]).strip() if found else ""
    return " ".join(text.split("\n\n")[0].split())


def page() -> str:
    parts = [_INTRODUCTION]
    for name in layers():
        if (SOURCE / name).is_dir():
            for package in sorted({path.parent for path in (SOURCE / name).rglob("*.py")}):
                parts += _package(package)
        elif (SOURCE / f"{name}.py").exists():
            parts += [f"## `{name}.py`", "", _shown(first_paragraph(SOURCE / f"{name}.py")), ""]
    return "\n".join(parts)


def _package(package: Path) -> list[str]:
    name = package.relative_to(SOURCE).as_posix()
    depth = name.count("/")
    lines = [f"{'#' * (depth + 2)} `{name}/`", ""]
    if (package / "__init__.py").exists() and (about := first_paragraph(package / "__init__.py")):
        lines += [_shown(about), ""]
    modules = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
    lines += [f"- `{module.name}`: {_shown(first_paragraph(module))}" for module in modules]
    return [*lines, ""] if modules else lines


def _shown(text: str) -> str:
    """As Markdown: outside of code nothing is markup."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([\\*_<\[])", r"\\\1", piece) for piece in pieces)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")

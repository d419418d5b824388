"""A program that exercises one released client: the folder `programs/NAME` with its `client.toml`."""

from __future__ import annotations

import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PARTS = Path(__file__).parent / "program_parts"
APIS = ("sql", "mongo", "gremlin", "management")
_FIELDS = {"name", "version", "api", "needs", "parts", "install", "run", "variants"}
_VARIANT_FIELDS = {"name", "version", "env", "recorded"}


@dataclass(frozen=True)
class Variant:
    """One way to run a program: its endpoint is https if its name contains the word."""

    name: str
    version: str | None = None  # if it differs from the program's
    env: dict[str, str] = field(default_factory=dict)
    is_recorded: bool = True  # False: its requests are those of another variant

    @property
    def uses_tls(self) -> bool:
        return "https" in self.name.split("-")


@dataclass(frozen=True)
class Program:
    folder: str
    client: str
    version: str
    api: str
    needs: tuple[str, ...]
    parts: tuple[str, ...]  # files that programs of one language share
    install: tuple[tuple[str, ...], ...]
    run: tuple[str, ...]
    variants: tuple[Variant, ...]

    @property
    def source(self) -> Path:
        return PROGRAMS / self.folder

    def files(self) -> list[tuple[Path, Path]]:
        """All of them, each with its place in the folder that the program is run in."""
        own = [path for path in sorted(self.source.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
        return [(path, path.relative_to(self.source)) for path in own] + [
            (PARTS / part, Path(part)) for part in self.parts
        ]

    def missing_commands(self) -> list[str]:
        """Those that the program needs and this machine does not have."""
        return [command for command in self.needs if shutil.which(command) is None]

    def version_of(self, variant: Variant) -> str:
        return variant.version or self.version

    def run_name(self, variant: Variant) -> str:
        """Of the run's row in the results and of its recording."""
        return f"{self.folder}-{variant.name}" if variant.name else self.folder


def read_programs(names: list[str] | None = None) -> list[Program]:
    """All of them, or those that are named."""
    known = sorted(path.parent.name for path in PROGRAMS.glob("*/client.toml"))
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise SystemExit(f"There is no program for {', '.join(unknown)}. There are: {', '.join(known)}.")
    return [read_program(PROGRAMS / name) for name in names or known]


def read_program(folder: Path) -> Program:
    text = (folder / "client.toml").read_text("utf-8")
    content = tomllib.loads(text)
    _refuse_others(folder, content, _FIELDS)
    if content["api"] not in APIS:
        raise ValueError(f"{folder.name}/client.toml: 'api' is one of {', '.join(APIS)}, not {content['api']!r}.")
    variants = content.get("variants", [{"name": ""}])
    for variant in variants:
        _refuse_others(folder, variant, _VARIANT_FIELDS)
    return Program(
        folder=folder.name,
        client=content["name"],
        version=content["version"],
        api=content["api"],
        needs=tuple(content.get("needs", ())),
        parts=tuple(content.get("parts", ())),
        install=tuple(tuple(command) for command in content.get("install", ())),
        run=tuple(content["run"]),
        variants=tuple(
            Variant(each["name"], each.get("version"), each.get("env", {}), each.get("recorded", True))
            for each in variants
        ),
    )


def _refuse_others(folder: Path, content: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(content.keys() - known)
    if unknown:
        raise ValueError(f"{folder.name}/client.toml: unknown fields {', '.join(unknown)}.")

"""Installs what a program needs, in a copy of its folder outside the tree; again only after the folder changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from clients.client_program import Program

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "clients"
_STAMP = ".installed"


class InstallFailed(Exception):
    """With the end of what the failing command printed."""


def install(program: Program) -> Path:
    """The folder to run the program in."""
    target = CACHE / program.folder
    digest = _digest(program)
    stamp = target / _STAMP
    if stamp.exists() and stamp.read_text() == digest:
        return target
    stamp.unlink(missing_ok=True)
    for path, place in program.files():  # what builds left there is kept: it spares time
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target / place)
    for command in program.install:
        done = subprocess.run(command, cwd=target, env=tools_environment(), capture_output=True, text=True)
        if done.returncode:
            printed = (done.stdout + done.stderr).strip()
            raise InstallFailed(f"{' '.join(command)} ended with {done.returncode}:\n{printed[-3000:]}")
    stamp.write_text(digest)
    return target


def tools_environment() -> dict[str, str]:
    """Of compilers, package managers and programs: without the settings of a server that this machine may have."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARMILLARY_", "PYTHON"))}
    return kept | {"CARGO_BUILD_JOBS": os.environ.get("CARGO_BUILD_JOBS", "1")}


def _digest(program: Program) -> str:
    digest = hashlib.sha256()
    for path, place in program.files():
        digest.update(f"{place}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()

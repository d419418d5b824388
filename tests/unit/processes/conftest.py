"""A data directory of a server with several processes, made once for each module of tests."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from support.process_directories import divided_directory


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    directory = tmp_path_factory.mktemp("divided") / "data"
    return directory, asyncio.run(divided_directory(directory))


@pytest.fixture
def directory(stored: tuple[Path, list[bytes]], tmp_path: Path) -> Path:
    shutil.copytree(stored[0], tmp_path / "data")
    return tmp_path / "data"

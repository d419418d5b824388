"""Every engine, opened fresh, for the tests that all of them must pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine

Opener = Callable[[Path], Coroutine[Any, Any, Engine]]


async def _memory(path: Path) -> Engine:
    return MemoryEngine()


async def _rocks_full(path: Path) -> Engine:
    return await RocksEngine.open(path, "full")


async def _rocks_relaxed(path: Path) -> Engine:
    return await RocksEngine.open(path, "relaxed")


ENGINES: dict[str, Opener] = {"memory": _memory, "rocks-full": _rocks_full, "rocks-relaxed": _rocks_relaxed}


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    opened = await ENGINES[request.param](tmp_path / "store")
    yield opened
    await opened.close()

"""Every engine, opened fresh, for the tests that all of them must pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.replicas import leading_engine

from armillary.storage.engine import Engine
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine

Opener = Callable[[Path], Coroutine[Any, Any, Engine]]


async def _memory(path: Path) -> Engine:
    return MemoryEngine()


async def _rocks_full(path: Path) -> Engine:
    return await RocksEngine.open(path, "full")


async def _rocks_relaxed(path: Path) -> Engine:
    return await RocksEngine.open(path, "relaxed")


async def _leader(path: Path) -> Engine:
    return await leading_engine(path, MemoryLogServer(b"generation of it"))


ENGINES: dict[str, Opener] = {
    "memory": _memory,
    "rocks-full": _rocks_full,
    "rocks-relaxed": _rocks_relaxed,
    "leader": _leader,
}


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    opened = await ENGINES[request.param](tmp_path / "store")
    yield opened
    await opened.close()

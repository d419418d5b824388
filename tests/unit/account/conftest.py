"""What several tests of the account need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.replicas import Pair


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """An account that leads and one that follows it."""
    pair = await Pair.open(tmp_path)
    try:
        yield pair
    finally:
        await pair.close()

"""Waiting for something to become so, where there is no event.

How long a machine takes is not what a test is about: the limit only ends a wait that would never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_S = 90.0  # less than a test may take, so that the complaint names what was waited for
_LOOK_EVERY_S = 0.005


async def until(holds: Callable[[], bool], what: str) -> None:
    """Returns when `holds()`; `what` is said when it never does."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError:
        raise AssertionError(f"not in {PATIENCE_S:.0f} s: {what}") from None

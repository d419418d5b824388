"""Time, ids and dice. Handed in wherever they are needed, so that everything from `account` down runs from a seed.

Nothing else in the product reads the wall clock or draws a random number.
"""

from __future__ import annotations

import random
import secrets
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds that never go back, for deadlines and rates."""

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes, fit for keys and tokens."""

    def guid(self) -> str:
        """A new GUID in its usual text form."""


class SystemClock:
    """The machine's own time and entropy."""

    now_s = staticmethod(time.time)
    monotonic_s = staticmethod(time.monotonic)
    random_bytes = staticmethod(secrets.token_bytes)

    @staticmethod
    def guid() -> str:
        return str(uuid.uuid4())


class VirtualClock:
    """Time that moves only when told to, and dice from a seed: for tests and simulation."""

    def __init__(self, start_s: float = 1_700_000_000.0, seed: int = 0) -> None:
        self._now_s = start_s
        self._random = random.Random(seed)

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def guid(self) -> str:
        return str(uuid.UUID(bytes=self._random.randbytes(16), version=4))

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "time does not go back"
        self._now_s += seconds

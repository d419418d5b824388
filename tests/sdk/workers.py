"""The threads of a program that uses a client: each repeats a step. What the client raises is recorded, and counts as
an error that reached the program."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from faults.cluster_processes.processes import waits_for

PAUSE_S = 0.02  # of each thread between two steps: the machine has other work too

Step = Callable[[], None]


class Workers:
    """A context: the threads run inside of it."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self.done: Counter[str] = Counter()  # steps, by worker
        self.longest_s: dict[str, float] = dict.fromkeys(steps, 0.0)  # the longest step of each
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(name, step), name=name, daemon=True)
            for name, step in steps.items()
        ]

    def _repeat(self, name: str, step: Step) -> None:
        while not self._stopping.wait(PAUSE_S):
            begun_s = time.monotonic()
            try:
                step()
            except Exception:
                self.errors.append(f"{name}, after {self.done[name]} steps: {traceback.format_exc()}")
                return
            self.longest_s[name] = max(self.longest_s[name], time.monotonic() - begun_s)
            self.done[name] += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    async def progress(self, count: int, what: str, *, besides: str | None = None) -> None:
        """Until every worker has done so many more steps, but for those whose names begin so. Raises if an error has
        reached one of them."""
        before = self.done.copy()
        names = [each.name for each in self._threads if besides is None or not each.name.startswith(besides)]

        async def look() -> bool:
            self.check()
            return all(self.done[name] >= before[name] + count for name in names)

        await waits_for(look, f"every thread goes on after {what}; longest steps: {self.longest_s}")

    def check(self) -> None:
        assert not self.errors, "\n".join(self.errors)

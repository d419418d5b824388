"""`armillary serve` as it is, with a beat on its event loop that records for how long the loop was held: the processor
time of the loop's thread between two beats. Started by the soak in place of the server; the first argument is a file of
eight bytes that the test reads and sets back. Processor time is not disturbed by what else runs on the machine."""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

BEAT_SECONDS = 0.001
FORMAT = struct.Struct("d")


class _Beat:
    def __init__(self, loop: asyncio.AbstractEventLoop, shown: mmap.mmap) -> None:
        self._loop, self._shown = loop, shown
        self._last_s = time.thread_time()

    def __call__(self) -> None:
        now_s = time.thread_time()
        held_ms = (now_s - self._last_s) * 1000
        self._last_s = now_s
        if held_ms > FORMAT.unpack_from(self._shown)[0]:
            FORMAT.pack_into(self._shown, 0, held_ms)
        self._loop.call_later(BEAT_SECONDS, self)


def _beat_in_every_loop(path: Path) -> None:
    with path.open("r+b") as file:
        shown = mmap.mmap(file.fileno(), FORMAT.size)
    run = asyncio.Runner.run

    def run_with_beat(self: asyncio.Runner, coroutine: Any, **options: Any) -> Any:
        loop = self.get_loop()
        loop.call_soon(_Beat(loop, shown))
        return run(self, coroutine, **options)

    asyncio.Runner.run = run_with_beat  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _beat_in_every_loop(Path(sys.argv.pop(1)))
    from armillary.tools.cli import main

    sys.exit(main())

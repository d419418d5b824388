"""Moves the partitions of a data directory to another number of processes, and is killed at a point of that:
`python -m support.placement_trial DIR COUNT POINT TIMES`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from armillary.clock import SystemClock
from armillary.processes.stopped.store_moves import place_partitions


def main(directory: str, count: str, point: str, times: str) -> None:
    left = int(times)

    def reach(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(place_partitions(Path(directory), int(count), SystemClock(), reach=reach))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The processes of a server that was started with several, as the system shows them."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PROGRAM = b"armillary.tools.serving.processes.start"


def processes_of(supervisor: int) -> dict[int, int]:
    """Their process ids by their numbers, of the server whose supervisor has this process id."""
    found = {}
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    for pid in map(int, children):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\x00")
        except OSError:
            continue  # it has ended
        if _PROGRAM in words:
            found[int(words[-2])] = pid
    return found


def kill_process(supervisor: int, number: int, signal: int) -> int:
    """Returns its process id."""
    pid = processes_of(supervisor)[number]
    os.kill(pid, signal)
    return pid


def wait_for_new(supervisor: int, number: int, former: int, limit_s: float = 60.0) -> None:
    """Until a process was started anew. It may not serve yet."""
    ends_s = time.monotonic() + limit_s
    while processes_of(supervisor).get(number, former) == former:
        assert time.monotonic() < ends_s, f"process {number} was not started anew"
        time.sleep(0.01)

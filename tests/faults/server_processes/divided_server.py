"""A server with several processes, each of which can be killed, stopped and let go on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from faults.server import Server
from support.process_ids import kill_process, processes_of, wait_for_new
from support.waiting import until

FIRST = 0  # the process that has the catalog


class DividedServer(Server):
    def __init__(self, directory: Path, processes: int, *arguments: str, port: int) -> None:
        super().__init__(directory, "full", "--processes", str(processes), *arguments, port=port)
        self.processes = processes

    @property
    def whole_log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def served_again(self, number: int) -> int:
        """How often a process was started again and has begun to serve."""
        return self.whole_log.count(f"process {number} serves again")

    async def kill_processes(self, *numbers: int) -> None:
        """At the same moment. Returns when new ones serve."""
        before = {number: self.served_again(number) for number in numbers}
        former = {number: kill_process(self.pid, number, signal.SIGKILL) for number in numbers}
        for number in numbers:
            await asyncio.to_thread(wait_for_new, self.pid, number, former[number])
        for number, count in before.items():
            await until(lambda n=number, c=count: self.served_again(n) > c, f"process {number} serves again")  # type: ignore[misc]

    @contextmanager
    def stopped(self, *numbers: int) -> Iterator[None]:
        """By a signal, for as long as the block takes."""
        pids = [kill_process(self.pid, number, signal.SIGSTOP) for number in numbers]
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):  # it was killed meanwhile
                    os.kill(pid, signal.SIGCONT)

    @contextmanager
    def unsupervised(self) -> Iterator[None]:
        """The supervisor is stopped by a signal for as long as the block takes."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def process_id(self, number: int) -> int:
        return processes_of(self.pid)[number]

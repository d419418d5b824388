"""A server that is started, killed and started again on the same directory, from a coroutine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from support.forked import Forked
from support.process import SETTINGS, clean_environment

ARMILLARY = ("armillary",)
READY_S = 90.0


class Server:
    def __init__(
        self,
        directory: Path,
        durability: str | None,
        *arguments: str,
        command: Sequence[str] = ARMILLARY,
        port: int = 0,
    ) -> None:
        """`durability` None: of a cluster's node, which has none. `port` 0: a free one, another at each start.
        `command`: a module and its first arguments."""
        self.directory = directory
        self.port = port
        self._given_port = port
        is_node = durability is None
        # Defects are planted in the program that is started, and not in those that it starts.
        is_alone = is_node or command is not ARMILLARY or {*SETTINGS[:1]} & {*arguments}
        given = arguments if is_alone else (*SETTINGS, *arguments)
        self._arguments = given if is_node else ("--durability", str(durability), *given)
        self._command = command
        self._server: Forked | None = None
        self._log = directory.with_name(f"{directory.name}.log")

    @property
    def serve_arguments(self) -> tuple[str, ...]:
        place = ("serve", "--sql-port", str(self._given_port), "--data", str(self.directory))
        return (*place, *self._arguments, "--log-level", "warning")

    async def start(self, *, is_waiting: bool = True, environment: dict[str, str] | None = None) -> None:
        assert self._server is None
        with self._log.open("ab") as log:
            self._server = Forked.start(
                *(*self._command, *self.serve_arguments),
                environment=clean_environment() | (environment or {}),
                stderr=log.fileno(),
            )
        if is_waiting:
            await self._wait_until_ready()

    async def _wait_until_ready(self) -> None:
        assert self._server is not None
        line = await asyncio.wait_for(asyncio.to_thread(self._server.stdout.readline), READY_S)
        if not line.startswith("ready "):
            raise AssertionError(f"the server did not start: {line!r}\n{self.log_text}")
        self.port = int(line.split("sql=")[1].split()[0].rpartition(":")[2])

    async def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            await self._gone()

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._server is not None
        self._server.send_signal(signal.SIGTERM)
        return await self._gone()

    async def _gone(self) -> int:
        server, self._server = self._server, None
        assert server is not None
        with server.stdout as output:
            await asyncio.to_thread(output.read)
        return await asyncio.to_thread(server.wait, READY_S)

    async def wait_until_dead(self) -> int:
        """Until it ends by itself; the exit code."""
        return await self._gone()

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    @property
    def log_text(self) -> str:
        return self._log.read_text("utf-8", "replace")[-4000:]


async def check_directory(directory: Path) -> str:
    """What `armillary check` complains about; nothing: the empty text."""
    process = Forked.start("armillary", "check", str(directory), environment=clean_environment())
    with process.stdout as stream:
        output = await asyncio.to_thread(stream.read)
    code = await asyncio.to_thread(process.wait, READY_S)
    return f"exit code {code}: {output[:2000]}" if code else ""

"""A server for tests in a process of its own: `armillary serve --memory` on free ports of this machine.

Its standard input is a pipe that only this process can write to, and it stops when that ends (`--stop-with-stdin`): so
it ends with this process, also if that is killed.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any, Final, Self

from armillary.errors import Failure, Kind
from armillary.testing.controls import Controls
from armillary.testing.server_settings import new_control_key, secret_settings, server_arguments
from armillary.tools.options import ENVIRONMENT_PREFIX
from armillary.tools.settings import OPTIONS

_READY_S: Final = 60.0
_STOP_S: Final = 15.0
_SHOWN_LINES: Final = 20  # of the log of a server that did not start


class ServerProcess(Controls):
    """`with ServerProcess(throughput="enforce") as server:`, or `start` and `stop`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._arguments = server_arguments(settings)
        self._secrets = secret_settings(settings)
        self._process: subprocess.Popen[str] | None = None
        self._logged: list[str] = []
        self._reader: threading.Thread | None = None
        self.key = settings.get("key") or self.key
        self.account = settings.get("account") or self.account

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Begin to start the server; `wait_until_ready` ends it."""
        if self._process is not None:
            raise RuntimeError("the server has been started already")
        self.control_key = new_control_key()
        # Settings of the environment are those of the developer's own server.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
        environment |= self._secrets | {OPTIONS["control-key"].variable: self.control_key}
        own = ["--memory", "--sql-port=0", "--stop-with-stdin"]
        self._process = subprocess.Popen(  # noqa: S603 (settings are checked, and no shell reads them)
            [sys.executable, "-P", "-m", "armillary", "serve", *own, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read_log, args=[self._process], name="server log", daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> Self:
        words = self._first_line().split()
        if words[:1] != ["ready"]:
            self.stop()
            last = "".join(self._logged[-_SHOWN_LINES:])
            raise Failure(Kind.UNAVAILABLE, f"The server did not start. It said:\n{last}")
        found = dict(word.split("=", 1) for word in words[1:])
        self.addresses = {name: address for name, address in found.items() if name != "portal"}
        return self

    def stop(self) -> None:
        """End the server, and wait until it has ended."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        self._close_connections()
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if self._reader is not None:
            self._reader.join(_STOP_S)
        self._forget_server()

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return "".join(self._logged)

    def log_since(self, line: int) -> tuple[str, int]:
        """What was logged since a number of lines, and the number of lines now."""
        new = self._logged[line:]
        return "".join(new), line + len(new)

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        if process.stderr is not None:
            with process.stderr as stream:
                self._logged.extend(stream)

    def _first_line(self) -> str:
        """In a thread: a server that hangs must not hang the tests."""
        process, lines = self._process, queue.Queue[str]()
        if process is None or process.stdout is None:
            return ""
        threading.Thread(target=lambda stream: lines.put(stream.readline()), args=[process.stdout], daemon=True).start()
        try:
            return lines.get(timeout=_READY_S)
        except queue.Empty:
            return ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

"""The server of `armillary demo`: a process of its own, in memory, on free ports, with small partitions so that a tour
of a minute shows what takes a production system weeks. It ends with the tour.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Final

from armillary.errors import Failure, Kind
from armillary.tools.remote import Server, Where, find_server
from armillary.tools.resolve import resolve

PARTITION_RU: Final = 200  # what one partition may be given; 10,000 in the service
_OPTIONS: Final = (
    *("--memory", "--sql-port", "0", "--throughput", "enforce"),
    *("--partition-throughput", str(PARTITION_RU), "--partition-headroom", "off"),
)
_STOP_S: Final = 20.0


class DemoServer:
    """Started by entering, stopped by leaving."""

    def __init__(self) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _stop
        self._process: subprocess.Popen[str] | None = None
        self.doors: dict[str, str] = {}
        self.key = resolve({"memory": True}, {}).key

    def __enter__(self) -> DemoServer:
        kept = {variable: value for variable, value in os.environ.items() if not variable.startswith("ARMILLARY_")}
        self._process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "armillary", "serve", *_OPTIONS],
            env=kept,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tour, which stops the server
        )
        try:
            line = self._process.stdout.readline() if self._process.stdout is not None else ""
            if not line.startswith("ready "):
                self._log.seek(0)
                said = self._log.read().decode("utf-8", "replace").strip().splitlines()
                raise Failure(Kind.UNAVAILABLE, f"The server has not started: {' '.join(said[-3:])}")
        except BaseException:
            self._stop()
            raise
        self.doors = dict(word.split("=", 1) for word in line.split()[1:])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def url(self) -> str:
        return self.doors["sql"]

    def control(self) -> Server:
        return find_server(resolve({"memory": True}, {}), Where(self.url))

    def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._log.close()

"""Processes that run `python -m MODULE ...`, forked from one that has loaded the product's modules. Loading them takes
0.5 s of processor time, ten times as long as the rest of a server's start, and the tests start hundreds of servers.

What is started is a process of its own, with its own pid, signals, descriptors and environment; it can be killed at any
moment. `Forked` is what `subprocess.Popen` is for others. The process that forks is the parent, so the exit code comes
through a pipe.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import resource
import runpy
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

EXIT_CODE = struct.Struct("i")
REQUEST_BYTES_MAX = 128 * 1024
LOADED = ("armillary.tools.cli", "armillary.tools.serving.serve", "armillary.tools.check")


class Forked:
    def __init__(self, pid: int, stdout: io.TextIOWrapper, ended: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._ended = ended  # a pipe, which the exit code comes through

    @classmethod
    def start(
        cls,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        stderr: int | None = None,
        directory: Path | None = None,
        descriptors_max: int | None = None,
    ) -> Forked:
        """Standard input is empty, standard output a pipe, and so are errors where no descriptor is given for them."""
        request = {
            "module": module,
            "arguments": arguments,
            "environment": dict(environment),
            "directory": str(directory or Path.cwd()),
            "descriptors_max": descriptors_max,
        }
        reads, writes = os.pipe()
        ended, tells_end = os.pipe()
        try:
            pid = _nursery().fork(request, (writes, writes if stderr is None else stderr, tells_end))
        finally:
            os.close(writes)
            os.close(tells_end)
        return cls(pid, open(reads, encoding="utf-8"), ended)

    def poll(self) -> int | None:
        return self._exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _exit_code(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout_s)[0]:
            (self.returncode,) = EXIT_CODE.unpack(os.read(self._ended, EXIT_CODE.size))
            os.close(self._ended)
        return self.returncode


class _Nursery:
    """The side of the tests: asks the process that forks."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.forked", str(theirs.fileno())],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(descriptors))
            return int(self._control.recv(REQUEST_BYTES_MAX))

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _nursery() -> _Nursery:
    made = _Nursery()
    atexit.register(made.close)
    return made


def _serve(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Forks for each request, and tells of each child how it ended. Returns in a child, with what was asked for."""
    children: dict[int, tuple[int, int]] = {}  # pid and pipe, by the descriptor that tells of the end
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in children:
                    selector.unregister(key.fd)
                    pid, tells_end = children.pop(key.fd)
                    _, status = os.waitpid(pid, 0)
                    try:
                        os.write(tells_end, EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))
                    except BrokenPipeError:
                        pass  # not asked for any more
                    os.close(key.fd)
                    os.close(tells_end)
                    continue
                request, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 3)
                if not request:
                    sys.exit(0)  # the tests are over
                pid = os.fork()
                if pid == 0:
                    control.close()
                    for watched, (_, tells_end) in children.items():
                        os.close(watched)
                        os.close(tells_end)
                    os.close(descriptors[2])
                    return json.loads(request), descriptors[:2]
                watched = os.pidfd_open(pid)
                children[watched] = (pid, descriptors[2])
                selector.register(watched, selectors.EVENT_READ)
                for each in descriptors[:2]:
                    os.close(each)
                control.send(str(pid).encode())


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """What `python -m MODULE ARGUMENTS` would do from here on."""
    for place, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, place)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    most = request["descriptors_max"]
    if most is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sys.argv = [request["module"], *request["arguments"]]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the tests end this process themselves
    for name in LOADED:
        __import__(name)
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()

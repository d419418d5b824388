"""Signals that stop a server: running requests end first, a second signal does not wait, and a log without a reader
stops neither requests nor the stop."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from azure.cosmos import CosmosClient, PartitionKey
from support.forked import Forked
from support.process import KEY, STOP_S, clean_environment
from support.server_operator import Operator

Start = Callable[..., Operator]
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_PIPE_BYTES = 4096


def delayed_read(operator: Operator, delay_ms: int) -> tuple[threading.Thread, list[Any]]:
    """A read that the server holds for so long; returns when it has begun."""
    client = CosmosClient(operator.server.url, KEY)
    database = client.create_database("slow")
    container = database.create_container("items", PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "a"})
    rule = operator.ask("POST", "faults", {"operations": "read", "delayMs": delay_ms})
    answers: list[Any] = []

    def read() -> None:
        with suppress(Exception):
            answers.append(container.read_item("1", "a", retry_total=0))

    thread = threading.Thread(target=read)
    thread.start()
    while not operator.ask("GET", f"faults/{rule['id']}")["hits"]:
        pass
    return thread, answers


def test_running_requests_end_before_the_server_does(start_operator: Start) -> None:
    operator = start_operator("--drain-seconds", "60")
    thread, answers = delayed_read(operator, 500)
    operator.server.process.send_signal(signal.SIGTERM)
    assert operator.server.process.wait(STOP_S) == 0
    thread.join()
    assert [each["id"] for each in answers] == ["1"]
    assert "cut off" not in operator.server.log


def test_a_stop_waits_no_longer_than_told(start_operator: Start) -> None:
    operator = start_operator("--drain-seconds", "0")
    thread, answers = delayed_read(operator, 60_000)
    operator.server.process.send_signal(signal.SIGTERM)
    assert operator.server.process.wait(STOP_S) == 0
    thread.join()
    assert not answers


def test_a_second_signal_does_not_wait(start_operator: Start) -> None:
    operator = start_operator("--drain-seconds", "3600")
    thread, _ = delayed_read(operator, 60_000)
    operator.server.process.send_signal(signal.SIGTERM)
    while "stopping" not in operator.server.log:
        pass
    operator.server.process.send_signal(signal.SIGTERM)
    assert operator.server.process.wait(STOP_S) == -signal.SIGTERM
    thread.join()


@contextmanager
def started(directory: Path, log: int) -> Iterator[Forked]:
    """A server whose standard error is this descriptor."""
    arguments = ("armillary", "serve", "--data", str(directory), "--sql-port", "0")
    process = Forked.start(*arguments, environment=clean_environment(), stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_S)
        process.stdout.close()


def fill(pipe: int) -> None:
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b".")
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags)


def test_a_server_whose_log_is_not_read_stops(tmp_path: Path) -> None:
    """It outlived SIGTERM: the line `stopping` did not fit into the pipe, and the event loop waited for its reader."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, _SET_PIPE_SIZE, _PIPE_BYTES)
    with started(tmp_path / "data", writing) as process:
        assert process.stdout.readline().startswith("ready ")
        fill(writing)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
    os.close(reading)
    os.close(writing)


def test_a_server_whose_log_was_closed_stops(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with started(tmp_path / "data", writing) as process:
        os.close(writing)
        os.close(reading)
        assert process.stdout.readline().startswith("ready ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0


def test_a_server_whose_output_was_closed_serves_and_stops(tmp_path: Path) -> None:
    """The line `ready` cannot be written: the program that started the server has ended."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "armillary", "serve", "--data", str(tmp_path / "data"), "--sql-port", "0"]
    with subprocess.Popen(command, stdout=writing, stderr=writing, env=clean_environment()) as process:
        os.close(writing)
        os.close(reading)
        control = tmp_path / "data" / "control.json"  # written when the first port is open
        while not control.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0

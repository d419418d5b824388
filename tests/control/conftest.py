"""Real server processes with a control API, and how to speak to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.process import ServerProcess, call_armillary

_numbers = count(1)


class Operator:
    """An operator of a server: by its control API and by commands."""

    def __init__(self, server: ServerProcess) -> None:
        assert server.directory is not None
        self.server = server
        self.directory: Path = server.directory
        self.key: str = json.loads((self.directory / "control.json").read_text())["key"]

    def send(
        self, method: str, path: str, content: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"} | (headers or {})
        request = urllib.request.Request(
            f"{self.server.url}/_armillary/{path}",
            None if content is None else json.dumps(content).encode(),
            {name: value for name, value in given.items() if value},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        status, body = self.send(method, path, content)
        assert status < 300, body
        return json.loads(body)

    def command(self, *arguments: str, code: int = 0) -> str:
        """What a command prints; on standard error if it is refused."""
        outcome = call_armillary(*arguments, "--data", str(self.directory))
        assert outcome.returncode == code, outcome.stdout + outcome.stderr
        return outcome.stdout if code == 0 else outcome.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.command(*arguments, "--json"))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        _, body = self.send("GET", "metrics")
        total = 0.0
        for line in body.decode().splitlines():
            if line.startswith((f"armillary_{name}{{", f"armillary_{name} ")):
                found, value = line.rsplit(" ", 1)
                if all(f'{label}="{text}"' in found for label, text in labels.items()):
                    total += float(value)
        return total


Start = Callable[..., Operator]


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"control-{next(_numbers)}"


@pytest.fixture(scope="session")
def operator(server: ServerProcess) -> Operator:
    """Of the shared server."""
    return Operator(server)


@pytest.fixture
def start_operator(start_server: Callable[..., ServerProcess]) -> Start:
    """start_operator("--clock", "movable"): of a server of its own."""
    return lambda *arguments: Operator(start_server("--durability", "relaxed", *arguments))

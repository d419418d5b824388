"""What an operator of a server does: requests of its control API, and commands."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from support.process import ServerProcess, call_armillary


class Operator:
    """An operator of a server: by its control API and by commands."""

    def __init__(self, server: ServerProcess, key: str | None = None) -> None:
        """`key`: the control key; None: the data directory has it."""
        assert server.directory is not None
        self.server = server
        self.directory: Path = server.directory
        self.key: str = key or json.loads((self.directory / "control.json").read_text())["key"]

    def freeze(self) -> None:
        """Stop the clock in the middle of a column of the history of load: meters notice the end of one within a
        second, so what is counted right behind an end may go to the column before it."""
        self.ask("POST", "clock", {"frozen": True})
        self.ask("POST", "clock", {"advanceSeconds": 15 - self.ask("GET", "clock")["nowSeconds"] % 10})

    def send(
        self, method: str, path: str, content: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        return self.send_bytes(method, path, None if content is None else json.dumps(content).encode(), headers)

    def send_bytes(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"} | (headers or {})
        request = urllib.request.Request(
            f"{self.server.url}/_armillary/{path}",
            body,
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

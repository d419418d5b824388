"""Real server processes with a control API, and how to speak to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from support.process import ServerProcess
from support.server_operator import Operator

_numbers = count(1)


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

"""A server with three processes in place of the shared one: tests of other directories run on it, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from control.conftest import operator as operator
from sdk.conftest import _impatient_clients as _impatient_clients
from sdk.conftest import client as client
from sdk.conftest import connect as connect
from sdk.conftest import container as container
from sdk.conftest import database as database
from sdk.conftest import name as name
from support.process import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("processes") / "data"
    running = ServerProcess.start(directory, "--durability", "relaxed", "--processes", "3", "--clock", "movable")
    yield running
    running.stop()
    ServerProcess.check(directory)


@pytest.fixture
def flavour() -> str:
    """Of the released clients for Python: the other one sends the same requests."""
    return "aio"

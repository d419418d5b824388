"""What tests of clusters of processes start from: PostgreSQL's servers, and the names of the nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.postgres import PostgresPrograms, PostgresTrio, unavailable

NAMES = ("n1", "n2", "n3")


@pytest.fixture
def trio() -> Iterator[PostgresTrio]:
    """A primary and two synchronous standbys, which a test may kill and rebuild."""
    try:
        programs = PostgresPrograms()
    except OSError as error:
        unavailable(error)
        raise
    trio = PostgresTrio(programs)
    servers = trio.servers
    try:
        trio.start()
    except OSError as error:
        unavailable(error)
    yield trio
    for server in servers:
        server.stop()
    programs.remove()

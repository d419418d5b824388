"""A certificate and two nodes that know each other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.peers import Certificate, two_nodes

from armillary.clock import SystemClock, VirtualClock
from armillary.cluster.peers.calls import Peers
from armillary.cluster.peers.handshake import own_certificate


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return own_certificate(tmp_path_factory.mktemp("node") / "peers", SystemClock())


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def nodes(clock: VirtualClock, certificate: Certificate) -> AsyncIterator[tuple[Peers, Peers]]:
    both = await two_nodes(clock, certificate)
    yield both
    for each in both:
        await each.close()

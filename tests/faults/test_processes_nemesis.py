"""A server with several processes that are killed and stopped, the first one and the supervisor too, while released
clients work and partitions are split and merged: nothing that was acknowledged is lost, and no guarantee is broken.

`make soak` runs the long form: ARMILLARY_SOAK_EVENTS says how many events."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import uvloop
from faults.server_processes.events import EVENTS, RARE_EVENTS
from faults.server_processes.nemesis import Nemesis

PROCESSES = 3
SHORT = (
    *("first process paused", "split, first process killed", "throughput changed"),
    "container created and deleted, further process killed",
)
EVENTS_LONG = int(os.environ.get("ARMILLARY_SOAK_EVENTS", "200"))
RARE_SHARE = 50  # one in so many events is one that takes long


@pytest.fixture(autouse=True)
def _impatient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose first request is refused asks three times more, half a second apart."""
    monkeypatch.setenv("AZURE_COSMOS_HEALTH_CHECK_RETRY_AFTER_MS", "10")


def torment(nemesis: Nemesis, events: Sequence[str]) -> None:
    happening = [(name, (EVENTS | RARE_EVENTS)[name]) for name in events]
    try:
        uvloop.run(nemesis.run_all(happening))
    finally:
        print(nemesis.report())
    assert not nemesis.violations, nemesis.report()


def test_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    clients = {"lean": 4, "aio": 2, "js": 2}
    torment(Nemesis(tmp_path / "data", seed, PROCESSES, clients, round_events=len(SHORT)), SHORT)


@pytest.mark.soak
def test_nothing_is_lost_for_long(tmp_path: Path, seed: int) -> None:
    """Every kind of event as often as the others, in an order of the seed's."""
    dice = random.Random(f"{seed}/events")
    rare = [dice.choice(list(RARE_EVENTS)) for _ in range(EVENTS_LONG // RARE_SHARE)]
    names = list(EVENTS) * -(-EVENTS_LONG // len(EVENTS))
    dice.shuffle(names)
    names = [*rare, *names][:EVENTS_LONG]
    dice.shuffle(names)
    clients = {"lean": 5, "aio": 3, "sync": 2, "js": 3}
    torment(Nemesis(tmp_path / "data", seed, PROCESSES, clients, round_events=8), names)

"""Partitions that are emptied and filled at once, changes of policy and items that expire, in one process from a seed:
the index answers what the items are, and clients find what they were told."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from faults.elastic.port import Refused
from faults.elastic.tides import DEFINITION, Events, Tide
from faults.elastic.world import World, simulate
from faults.test_elastic_simulation import crashes, reshapes, reshapes_and_crashes

from armillary.account.registry import AccountSettings
from armillary.model.indexes.indexing import ItemTerms
from armillary.partition.history.log import Head
from armillary.partition.writing import path_coverage
from armillary.partition.writing.path_coverage import SCANNING, PathCoverage, note_item, trusted_coverage
from armillary.partition.writing.writer import Writer
from armillary.storage.engine import Txn

DEFECT_SEEDS = 25  # of which several notice each of them


async def nothing(world: World, stopping: asyncio.Event) -> None:
    await stopping.wait()


EVENTS: list[Events] = [nothing, reshapes, crashes, reshapes_and_crashes]


def run_one(seed: int, events: Events, rounds: int = 16) -> World:
    async def run(world: World) -> None:
        await world.open(world.dice.choice((400, 400, 400, 12_000)), is_empty=True, **DEFINITION)
        await Tide(world).run(events, rounds)

    world = simulate(seed, run, AccountSettings())
    print(world.report([]))
    return world


@pytest.mark.parametrize("events", EVENTS)
def test_the_index_is_right(seed: int, events: Events) -> None:
    assert run_one(seed, events, rounds=6).history.tally["questions"] > 50


# A scan of a partition that was split went on, after a change of policy; the first item of an empty partition came
# while it was being copied.
FOUND = (20261149, 20261213)


@pytest.mark.parametrize("number", FOUND)
def test_the_index_is_right_where_it_was_wrong(number: int) -> None:
    run_one(number, EVENTS[number % len(EVENTS)])


@pytest.mark.soak
def test_the_index_is_right_for_long(seed: int) -> None:
    for each in range(seed, seed + int(os.environ.get("ARMILLARY_SOAK_SEEDS", "500"))):
        run_one(each, EVENTS[each % len(EVENTS)])


def memory_is_trusted(patch: pytest.MonkeyPatch) -> None:
    """Paths that all items have, by what was acknowledged last, whatever is under way."""

    def note_paths(self: Writer, terms: ItemTerms, *, is_first: bool = False) -> None:
        known, number = self._coverage, self._schema.rules.number
        if known is not None and known.holds(number, terms.terms):
            return
        becomes = note_item(self._txn, self.head, number, terms.terms, self._lsn, is_first=is_first)
        if becomes is not None:
            self._coverage = self.new_coverage = becomes

    patch.setattr(Writer, "_note_paths", note_paths)


def expiry_stays_behind(patch: pytest.MonkeyPatch) -> None:
    """An item that is written again keeps the end that it had."""
    patch.setattr(Writer, "_delete_expiry", lambda *_: None)


def looks_end_whatever_came_between(patch: pytest.MonkeyPatch) -> None:
    """What a look has found counts, though the partition was emptied or its rules changed since it began."""

    def end_coverage_scan(
        txn: Txn, head: Head, begun: PathCoverage, found: frozenset[str] | None
    ) -> PathCoverage | None:
        known = trusted_coverage(txn, head)
        return path_coverage._put(txn, head, known.ended(found, head.lsn)) if known is not None else None

    patch.setattr("armillary.partition.writing.path_coverage.end_coverage_scan", end_coverage_scan)


def looks_miss_what_is_written_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """Items that are written while a partition is looked through are not compared with what the look finds."""
    after_item = PathCoverage.after_item

    def unsought(self: PathCoverage, *arguments: Any) -> PathCoverage:
        becomes = after_item(self, *arguments)
        return becomes._replace(sought=self.sought) if self.stage == SCANNING else becomes

    patch.setattr(PathCoverage, "after_item", unsought)


DEFECTS = [
    memory_is_trusted,
    expiry_stays_behind,
    looks_end_whatever_came_between,
    looks_miss_what_is_written_meanwhile,
]


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_noticed(seed: int, monkeypatch: pytest.MonkeyPatch, defect: Any) -> None:
    defect(monkeypatch)
    for each in range(seed, seed + DEFECT_SEEDS):
        try:
            run_one(each, nothing)
        except (AssertionError, Refused) as noticed:
            print(f"noticed with --seed {each}: {str(noticed)[:400]}")
            return
    pytest.fail(f"--seed {seed}: {defect.__name__} was not noticed in {DEFECT_SEEDS} runs")

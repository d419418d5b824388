"""Consistency check of a data directory: the catalog's invariants, then every partition of every container. Repairing
misplaced items is `misplaced_items.py`'s part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import Catalog
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.limits import LOGICAL_PARTITION_BYTES_MAX
from armillary.model.resources import ResourceType
from armillary.partition.check import check_partition
from armillary.storage.engine import Engine, View


async def check_account(engine: Engine, clock: Clock) -> AsyncIterator[str]:
    """Sentences, each naming something that is wrong. None: all is well."""
    catalog = Catalog(engine, clock)
    await catalog.load()  # not `open`, which writes
    for problem in _check_catalog(catalog):
        yield problem
    for record in catalog.of_type(ResourceType.CONTAINER):
        database = catalog.get(ResourceType.DATABASE, record.owner)
        if database is None:
            yield f"container {record.name} has no database"
            continue
        what = f"{database.name}/{record.name}"
        is_divided = any(place_of_store(store) for store in record.stores)
        try:
            container = Container(record, database, engine, clock, LOGICAL_PARTITION_BYTES_MAX)
        except (Failure, AssertionError, KeyError, ValueError) as error:
            yield f"{what}: its record cannot be used: {error}"
            continue
        for partition in container.partitions.values():

            def problems(view: View, container: Container = container, key_range=partition.range) -> list[str]:  # type: ignore[no-untyped-def]
                return list(check_partition(view, container.schema, key_range))

            for problem in await partition.read(problems):
                at = f" in process {place_of_store(partition.range.store)}" if is_divided else ""
                yield f"{what}, range {partition.range.id}{at}: {problem}"


def _check_catalog(catalog: Catalog) -> list[str]:
    problems = []
    stores: dict[int, str] = {}
    owners = {record.rid_text for record in _owners(catalog)}
    for record in catalog.of_type(ResourceType.CONTAINER):
        for store in record.stores:
            if store in stores:
                problems.append(f"containers {stores[store]} and {record.name} share a store, or one has it twice")
            stores[store] = record.name
        problems += _check_reshapes(record)
        state = record.container_state
        ids = [each.id for each in state.ranges]
        if len(set(ids)) != len(ids) or max(ids) >= state.next_range:
            problems.append(f"container {record.name} has range ids {ids}, the next one is {state.next_range}")
    for offer in catalog.of_type(ResourceType.OFFER):
        if offer.offer_state.owner not in owners:
            problems.append(f"offer {offer.name} belongs to nothing")
    return problems


def _check_reshapes(record: Record) -> list[str]:
    """Splits and merges that are under way: each is about live ranges, and its children cover just what those do."""
    problems = []
    ranges = {each.id: each for each in record.container_state.ranges}
    busy: set[int] = set()
    for entry in record.container_state.reshapes:
        what = f"container {record.name}, reshape {entry.number} of {list(entry.parents)}"
        parents = [ranges[each] for each in entry.parents if each in ranges]
        if len(parents) != len(entry.parents):
            problems.append(f"{what}: not all of these ranges exist")
            continue
        if not busy.isdisjoint(entry.parents):
            problems.append(f"{what}: another one is about the same range")
        busy.update(entry.parents)
        bounds = [sorted((each.low, each.high) for each in parents)]
        bounds.append(sorted((each.low, each.high) for each in entry.children))
        has_gap = any(before[1] != after[0] for group in bounds for before, after in pairwise(group))
        if has_gap or bounds[0][0][0] != bounds[1][0][0] or bounds[0][-1][1] != bounds[1][-1][1]:
            problems.append(f"{what}: its children do not cover just what its parents do")
    return problems


def _owners(catalog: Catalog) -> list[Record]:
    return [*catalog.of_type(ResourceType.DATABASE), *catalog.of_type(ResourceType.CONTAINER)]

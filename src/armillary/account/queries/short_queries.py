"""First pages of queries that one partition answers, in few steps: the commonest queries. Rows that fit into the page
are answered here, with the charge that `item_walk.py` would have found. What turns out to be longer goes on there, with
what was read.
"""

from __future__ import annotations

from typing import NamedTuple

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries.item_walk import ItemWalk
from armillary.account.queries.partition_slices import BegunPage, PageAnswer, Slice, count_work
from armillary.account.visits.page_charges import Bill
from armillary.account.visits.page_walk import FeedOptions
from armillary.account.visits.visits import check_session
from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.plan import key_index_paths
from armillary.model import charges
from armillary.model.charges import QueryWork
from armillary.partition.budget import QUERY_DEPOSIT
from armillary.partition.partition import Partition
from armillary.query.access.access_path import WHOLE, Index, Scope
from armillary.query.conditions import pinned_keys
from armillary.query.execution import Execution
from armillary.query.page import Progress


class Place(NamedTuple):
    """Where such a query looks."""

    partition: Partition
    low: bytes
    high: bytes
    epk: bytes | None  # of the one logical partition that it is about, if it is about one
    scope: Scope


def place_of(container: Container, bound: BoundQuery, options: FeedOptions) -> Place | None:
    """The place of a query that `first_page` answers; None: `merged_queries.query` does."""
    selection, definition = bound.selection, container.key
    if container.is_observed or definition is None or not bound.has_source or container.schema.rules.default_ttl:
        return None
    if selection.ordering is not None or not selection.is_streaming:
        return None
    if options.continuation is not None or options.epk_range is not None or options.tells_shares:
        return None
    try:
        low, high = container.stretch(options.key, options.range_id, None)
        ranges = container.map.overlapping(low, high)
        if len(ranges) != 1 or (options.key is None and options.range_id is None):
            return None
        partition = container.partitions[ranges[0].id]
        if partition.is_elsewhere:
            return None
        if options.session is not None:
            check_session(partition, options.session)
    except Failure:
        return None
    epk = container.one_key(low, high)
    keys = pinned_keys(selection.condition, key_index_paths(definition))
    if keys is not None and (epk is None or [container.effective_key(key) for key in keys] != [epk]):
        return None
    if epk:
        return Place(partition, low, high, epk, Scope(low, high, epk=low))
    return Place(partition, low, high, epk, WHOLE) if low <= ranges[0].low and high >= ranges[0].high else None


async def first_page(
    account: Account, container: Container, bound: BoundQuery, text: bytes, options: FeedOptions, place: Place
) -> PageAnswer:
    """What `merged_queries.query` answers. `text`: what continuations are bound to."""
    partition, low, high, epk, scope = place
    selection, clock = bound.selection, account.clock
    bill = Bill(options.ask, epk)
    bill.enter(partition, QUERY_DEPOSIT)
    begun_s = clock.elapsed_s()
    execution = Execution(
        selection,
        scope=scope,
        index=Index(container.schema.rules.indexing, is_complete=not container.is_restating),
        statistics=partition,
        progress=Progress(skip=selection.skip, take=selection.take),
        form=container.form,
    )
    found = Slice(partition, low, high, execution)
    try:
        page, is_out_of_time = await found.read(clock, options.page_items, limits.PAGE_BYTES_MAX, begun_s, can_end=True)
    except Failure as failure:
        raise bill.charge(failure, partition) from None
    if page.position is not None:
        bill.leave()
        walk = ItemWalk(account, container, options, selection, text)
        walk.confine(bound.condition)
        walk.is_page_of_one = True
        await walk.go_on(BegunPage(found, page, is_out_of_time, begun_s))
        return walk.answer()
    work = QueryWork(partitions_begun=1)
    count_work(work, page.counters)
    work.returned_ru = charges.rows_ru(page.rows)
    work.loaded_bytes = max(0, page.counters.bytes_loaded - page.size_bytes)
    charge_ru = bill.pay(charges.query_page_ru(work, options.read_factor), partition)
    return PageAnswer(page.rows, None, charge_ru, [(partition.range.id, partition.lsn)], work, page.counters)

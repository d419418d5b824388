"""Queries over several partitions, answered in their final form for clients that do not merge the rows of partitions
themselves. Rows that come one by one are those of `item_pages.py`; DISTINCT, groups and aggregates those of
`merged_pages.py`. What must see everything first (rankings, subqueries of several stages) is answered here, in one
page: `query/gather.py` merges it.
"""

from __future__ import annotations

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.elsewhere.given_pages import given_page
from armillary.account.queries.merged_pages import MergedWalk
from armillary.account.queries.merged_slices import MergedSlice, PageWork, charged_page, read_ahead
from armillary.account.queries.partition_slices import PageAnswer, Slice, out_of_time
from armillary.account.visits.page_walk import FeedOptions, Moved
from armillary.account.visits.visits import check_session, refused_at
from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.partition_queries import is_unmergeable
from armillary.query import continuation_token
from armillary.query.gather import Gather, partial
from armillary.query.ordering import check_order


async def query(
    account: Account, container: Container, bound: BoundQuery, text: bytes, options: FeedOptions
) -> PageAnswer:
    """One page of a query, as `item_pages.query` gives it. Rows of a grouped or distinct subquery, which clients cannot
    merge, are merged here; like groups they come in one page, within the limits that groups have. With
    `options.merges` other queries are merged too."""
    selection = bound.selection
    if selection.is_streaming or not bound.has_source or not options.is_cross_partition_allowed:
        return await item_pages.query(account, container, bound, text, options)
    if options.merges and item_pages.is_merged(account, container, bound, options):
        if selection.ordering is not None:
            check_order(selection.ordering, container.schema.rules.indexing)
        if len(selection.stages) > 1 or selection.ranking is not None:
            return await _whole(account, container, bound, options)
        walk = MergedWalk(account, container, options, selection, text)
        walk.confine(bound.condition)
        walk.ask_whole = given_page
        await walk.run("query")
        return walk.answer()
    is_whole = options.range_id is None and options.epk_range is None and options.continuation is None
    if is_whole and is_unmergeable(bound):
        slices = item_pages.slices_of(account, container, bound, partial(selection), options)
        if len(slices) > 1:
            return await _whole(account, container, bound, options)
    return await item_pages.query(account, container, bound, text, options)


async def _whole(account: Account, container: Container, bound: BoundQuery, options: FeedOptions) -> PageAnswer:
    """All rows in one page."""
    if options.continuation is not None:
        raise continuation_token.bad_token()
    while True:
        slices = item_pages.slices_of(account, container, bound, partial(bound.selection), options)
        try:
            return await _gathered(account, container, bound, slices, options)
        except Moved as moved:
            await moved.followed()


async def _gathered(
    account: Account, container: Container, bound: BoundQuery, slices: list[Slice], options: FeedOptions
) -> PageAnswer:
    for each in slices if options.session is not None else ():
        if each.partition.is_elsewhere:
            continue  # its place checks it
        try:
            check_session(each.partition, options.session or {})
        except Failure as failure:
            raise refused_at(container, each.partition, failure, None, "query") from None
    if container.faults is not None and slices:
        ranges = [each.partition.range for each in slices]
        await container.faults.over("query", container, slices[0].low, slices[-1].high, ranges)
    clock, page_work = account.clock, PageWork(slices)
    begun_s = clock.elapsed_s()
    sources = [MergedSlice(each, clock, page_work) for each in slices]
    for source in sources:
        source.begun_s = begun_s
    read_ahead(sources)

    def check() -> None:
        if clock.elapsed_s() - begun_s > limits.QUERY_SECONDS_MAX:
            raise out_of_time()

    gather = Gather(bound.selection, sources)
    answer = await charged_page(container, bound.selection, options, page_work, sources, lambda: gather.rows(check))
    answer.lsns = list(dict.fromkeys([(each.partition.range.id, each.partition.lsn) for each in slices]))
    return answer

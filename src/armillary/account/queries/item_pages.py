"""Pages of items: read feeds and queries over one logical partition, one physical one, a stretch of the hash space, or
the whole container. `item_walk.py` fills them.

Inside one partition every query is answered in its final form; over several, those whose rows need only be
concatenated. Other queries the client merges: it gets the query plan. For clients that cannot merge, rows in an order
and TOP, OFFSET and LIMIT are merged here too; `merged_queries.py` has the rest.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries.elsewhere.given_pages import given_page
from armillary.account.queries.item_walk import ItemWalk
from armillary.account.queries.partition_slices import PageAnswer, Slice, rows_without_items
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind, Reason, bad_request
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.hybrid_search import is_component
from armillary.languages.sql.planning.partition_queries import is_bare_aggregate
from armillary.languages.sql.planning.plan import key_index_paths, query_plan
from armillary.query.conditions import pinned_keys
from armillary.query.ordering import check_order
from armillary.query.selection import Selection


async def read_feed(account: Account, container: Container, options: FeedOptions) -> PageAnswer:
    walk = ItemWalk(account, container, options, Selection(), b"feed", is_feed=True)
    walk.ask_whole = given_page
    await walk.run("feed")
    return walk.answer()


async def query(
    account: Account, container: Container, bound: BoundQuery, text: bytes, options: FeedOptions
) -> PageAnswer:
    """One page of a query. `text` is what continuations are bound to: the query and its parameters."""
    selection = bound.selection
    if selection.ordering is not None and bound.has_source:
        check_order(selection.ordering, container.schema.rules.indexing)
    if selection.take is not None and is_component(bound):
        # Python's client takes the first page of a ranking's part for all of it.
        options = replace(options, page_items=max(options.page_items, selection.take))
    walk = ItemWalk(account, container, options, selection, text)
    if bound.has_source:
        walk.confine(bound.condition)
        if not options.is_cross_partition_allowed and not walk.is_confined:
            raise bad_request(
                "The query needs several partitions, and the request does not allow that.",
                reason=Reason.CROSS_PARTITION_OFF,
            )
        is_merged = _is_merged(walk, bound)
        if is_merged and not options.merges:
            raise _for_client(container, bound, options.features)
        assert not is_merged or selection.is_streaming, "rows must be merged: see merged_queries.py"
        # As the service's pages of queries are: a client then makes as many requests here as there.
        walk.is_page_of_one = not is_merged
        walk.ask_whole = given_page
        await walk.run("query", faults_max=None if is_merged else 1)
    else:
        walk.rows = await rows_without_items(bound, account.clock)
        walk.work.partitions_begun = 1
    return walk.answer()


def is_merged(account: Account, container: Container, bound: BoundQuery, options: FeedOptions) -> bool:
    """Whether rows of several partitions must be merged for a query, or partitions may come to be several."""
    walk = ItemWalk(account, container, replace(options, continuation=None), bound.selection, b"")
    walk.confine(bound.condition)
    return _is_merged(walk, bound)


def _is_merged(walk: ItemWalk, bound: BoundQuery) -> bool:
    return walk.is_for_clients or (walk.has_several and is_bare_aggregate(bound))


def _for_client(container: Container, bound: BoundQuery, features: str | None) -> Failure:
    plan = query_plan(bound, container.key, features)
    # A client that does not know the newest range has an old map, and reads it anew before it asks each range.
    newest = container.partitions[max(container.partitions)]
    place = {"range_id": newest.range.id, "lsn": newest.lsn, "container": container}
    return Failure(
        Kind.CROSS_PARTITION,
        "The client must merge the parts of this query.",
        details={"reason": Reason.CLIENT_MERGES, "plan": plan, **place},
    )


async def select(
    account: Account, container: Container, selection: Selection, text: bytes, options: FeedOptions
) -> PageAnswer:
    """One page of what any language asks for, where rows of partitions need only be put one after the other. A filter
    that pins one partition key reads that logical partition alone. `text` is what continuations are bound to."""
    assert selection.is_plain, "rows must be merged: see merged_queries.py"
    if container.key is not None and options.key is None:
        keys = pinned_keys(selection.condition, key_index_paths(container.key))
        if keys is not None and len(keys) == 1 and not container.key.is_unsure_of(keys):
            options = replace(options, key=keys[0])
    walk = ItemWalk(account, container, options, selection, text)
    walk.confine(selection.condition)
    walk.ask_whole = given_page
    await walk.run("query")
    return walk.answer()


def slices_of(
    account: Account, container: Container, bound: BoundQuery, selection: Selection, options: FeedOptions
) -> list[Slice]:
    """The slices of a query whose rows are merged, each at its beginning. `selection` is what each partition does
    of the query."""
    walk = ItemWalk(account, container, options, selection, b"")
    walk.confine(bound.condition)
    return walk.find_parts()


def selection_slices(account: Account, container: Container, selection: Selection, options: FeedOptions) -> list[Slice]:
    """The same of what any language asks for."""
    walk = ItemWalk(account, container, options, selection, b"")
    walk.confine(selection.condition)
    return walk.find_parts()

"""Which clients merge the rows of several partitions themselves, and which ones the server merges them for.

The service refuses a query over several partitions with ORDER BY, TOP, OFFSET, DISTINCT, GROUP BY or aggregates with
400/1004 and the query plan. An SDK that can merge then asks each range; other clients are left with the refusal. The
first request of such an SDK looks like that of any other client: what it can merge is announced in its request for a
plan, which comes later. So SDKs are known by their names. Those of DocumentDB's days take the plan out of the refusal
and announce nothing; they know ORDER BY, TOP and single aggregates, and take the parts of anything else for its rows.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.sql import headers as h
from armillary.doors.sql.headers import Headers
from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.plan import merged_features

QueryMode = Literal["auto", "strict", "merge"]

# Sent by SDKs that merge, for queries on several ranges at once.
_PARALLEL: Final = b"x-ms-documentdb-query-parallelizecrosspartitionquery"
_USER_AGENT: Final = b"user-agent"

# As SDKs name themselves: azsdk-python-cosmos/4.9.0, azure-cosmos-js/4.4.1, azsdk-java-cosmos/4.60.0,
# cosmos-netstandard-sdk/3.40.0. Go's (azsdk-go-azcosmos) does not merge; with a query engine it asks for the plan
# first, and then for single ranges.
_MERGING: Final = re.compile(rb"azsdk-python-cosmos|azure-cosmos-js/|azsdk-java-cosmos|cosmos-netstandard-sdk")
# documentdb-nodejs-sdk/1.15.3, documentdb-python-sdk/2.3.5 (pydocumentdb), azure-cosmos/3.1.2 (Python's before 4).
_OLD: Final = re.compile(rb"documentdb-[a-z]+-sdk|azure-cosmos/[0-3]\.")
_OLD_FEATURES: Final = "OrderBy, MultipleOrderBy, Top, Aggregate"

# Clients that are not helped by 410 when a range of their query is gone. JavaScript's keeps the ranges that it read
# first, and takes 410 for a page without rows, for ever (@azure/cosmos 4.10, documentProducer.bufferMore). Python's
# begins anew with all ranges and then adds those that it had not asked yet once more, so that rows come twice
# (azure-cosmos 4.17, _configure_partition_ranges).
_UNAWARE: Final = re.compile(rb"azure-cosmos-js/|azsdk-python-cosmos")


def is_unaware_of_splits(headers: Headers) -> bool:
    return _UNAWARE.search(headers.get(_USER_AGENT, b"")) is not None


def choose_merging(mode: QueryMode, headers: Headers, query: BoundQuery, options: FeedOptions) -> None:
    """Set in `options` whether the server merges the rows of a query for the sender of a request, and what the client
    can merge otherwise."""
    agent = headers.get(_USER_AGENT, b"")
    if mode != "merge" and _OLD.search(agent) is not None:
        options.features = _OLD_FEATURES
        options.merges = mode == "auto" and not _is_within(query, _OLD_FEATURES)
        return
    announced = h.text(headers, h.QUERY_FEATURES)
    merges = (announced is not None and announced.strip()) or _PARALLEL in headers or _MERGING.search(agent)
    options.merges = mode == "merge" or (mode == "auto" and not merges)


def _is_within(query: BoundQuery, features: str) -> bool:
    """Whether a client with these features can merge a query."""
    if not query.has_source:
        return True
    try:
        return merged_features(query) <= set(features.split(", "))
    except Failure:
        return False  # no client can

"""Lists and queries of everything but items: databases, containers, offers, users, permissions, keys, scripts,
conflicts and partition key ranges. They are short and unpartitioned.
"""

from __future__ import annotations

from typing import Any

import orjson

from armillary import limits, work
from armillary.account.catalog.records import Record, creation_order
from armillary.account.container import Container
from armillary.account.queries.partition_slices import rows_of_values
from armillary.account.visits.uncounted_visits import renew_figures
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import Call
from armillary.doors.sql.resources.resources import record_content, renew_shown
from armillary.errors import Reason, bad_request
from armillary.languages.sql.compiling.compile import (
    BoundQuery,
    Computed,
    UserFunctions,
    compile_query,
    parse_parameters,
)
from armillary.languages.sql.library.context import Context
from armillary.languages.sql.planning.resume_filter import parse_resume_filter
from armillary.model.charges import METADATA_FEED_RU, METADATA_READ_RU
from armillary.model.items import parse_document
from armillary.model.resources import ResourceType, child_rid, rid_bytes, rid_text
from armillary.net.http import Response


async def list_resources(call: Call) -> Response:
    records, owner_rid = _records(call)
    page, continuation = _page(call, records)
    await renew_shown(call)
    rows = [orjson.dumps(record_content(call, record)) for record in page]
    return call.answer_feed(METADATA_FEED_RU, owner_rid, _feed(call), rows, continuation)


async def query_resources(call: Call) -> Response:
    query = await work.run(lambda: parse_query_body(call.body, Context(call.account.clock)))
    if call.route.resource_type == ResourceType.CONFLICT.value and not _is_confined(call):
        raise bad_request("The query needs several partitions.", reason=Reason.CROSS_PARTITION_OFF)
    records, owner_rid = _records(call)
    page, continuation = _page(call, records)
    await renew_shown(call)
    contents = [record_content(call, record) for record in page]
    rows = await rows_of_values(query, contents, call.account.clock)
    return call.answer_feed(METADATA_FEED_RU, owner_rid, _feed(call), rows, continuation)


def _is_confined(call: Call) -> bool:
    """Whether a query of what lies in partitions says which, or that it wants all: conflicts lie where items do."""
    headers = call.headers
    is_confined = headers.get(h.PARTITION_KEY) is not None or h.key_range(headers) is not None
    return is_confined or h.flag(headers, h.ENABLE_CROSS_PARTITION)


def parse_query_body(
    body: bytes, context: Context, computed: Computed = (), functions: UserFunctions | None = None
) -> BoundQuery:
    given = parse_document(body)
    unknown = sorted(given.keys() - {"query", "parameters", "resumeFilter"})
    if unknown:
        raise bad_request(f"Unknown property '{unknown[0]}' in the query; it has 'query' and 'parameters'.")
    text = given.get("query")
    if not isinstance(text, str):
        raise bad_request("The query must be a string in the property 'query'.")
    parameters = parse_parameters(given.get("parameters"))
    resumed = parse_resume_filter(given.get("resumeFilter"))
    if resumed is not None:
        text, parameters = resumed.resume(text, parameters)
    return compile_query(text, computed).bind(parameters, context, functions)


def _records(call: Call) -> tuple[list[Record], str]:
    resource_type = ResourceType(call.route.resource_type)
    owner = call.account.owner(resource_type, call.route.segments)
    records = call.account.catalog.children(resource_type, owner.rid if owner is not None else b"")
    return records, owner.rid_text if owner is not None else ""


def _feed(call: Call) -> str:
    return ResourceType(call.route.resource_type).feed


def _page(call: Call, records: list[Record]) -> tuple[list[Record], str | None]:
    """The continuation is the last resource's rid: lists are in the order of creation, whatever comes or goes."""
    after = h.text(call.headers, h.CONTINUATION)
    if after is not None:
        rid = rid_bytes(after)
        if rid is None:
            raise bad_request("Invalid Continuation Token: it is not one of an earlier answer of this list.")
        records = [
            record for record in records if creation_order(record.type, record.rid) > creation_order(record.type, rid)
        ]
    size = h.page_size(call.headers) or limits.PAGE_ITEMS_MAX
    page = records[:size]
    return page, page[-1].rid_text if len(records) > size else None


# Partition key ranges.


async def list_ranges(call: Call) -> Response:
    """All live ranges; with `A-IM`, only those that came after the etag given, until there are none: 304."""
    container = call.owner_container()
    await renew_figures(container, limits.RANGES_WAIT_SECONDS)
    # From here on nothing is waited for: the map, its etag and the partitions belong together.
    etag = container.range_etag
    extra = [(b"etag", etag.encode()), *container_paths(container)]
    ranges = container.map.ranges
    if call.headers.get(h.CHANGE_FEED):
        seen = h.text(call.headers, h.IF_NONE_MATCH)
        if seen == etag:
            return call.answer(304, METADATA_READ_RU, b"", extra)
        ranges = container.ranges_since(seen)
    rows = [orjson.dumps(_range_content(container, each)) for each in ranges]
    return call.answer_feed(METADATA_READ_RU, container.rid_text, ResourceType.RANGE.feed, rows, None, extra)


def container_paths(container: Container) -> list[tuple[bytes, bytes]]:
    return list(h.path_headers(container.link, container.rid_text).pairs)


def _range_content(container: Container, key_range: Any) -> dict[str, Any]:
    rid = rid_text(child_rid(container.record.rid, ResourceType.RANGE, key_range.id))
    return {
        "_rid": rid,
        "id": str(key_range.id),
        "_etag": container.record.etag,
        "minInclusive": key_range.low.hex().upper(),
        "maxExclusive": key_range.high.hex().upper(),
        "ridPrefix": key_range.id,
        "_self": f"{container.record.self_link}pkranges/{rid}/",
        "throughputFraction": 1 / len(container.map.ranges),
        "status": "online",
        "parents": [str(parent) for parent in key_range.parents],
        "ownedArchivalPKRangeIds": [],
        "_ts": container.record.ts,
        "lsn": container.partitions[key_range.id].lsn,
    }

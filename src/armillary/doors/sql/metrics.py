"""Query metrics, index metrics and query advice: the headers that clients ask for and parse. Query metrics come with
`x-armillary-charge-details`, the parts of the charge, which only Armillary sends.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from armillary.account.container import Container
from armillary.account.queries.index_use import CompositePath, IndexUse, container_index_use
from armillary.account.queries.partition_slices import PageAnswer, PartitionShare, Tally
from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.sql import headers as h
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.languages.sql.planning.query_advisor import advice_of
from armillary.languages.sql.syntax import tree
from armillary.model import charges
from armillary.net.charged_requests import HeaderList

_SHARES_BYTES_MAX = 16 * 1024
_REST_BYTES = 200  # for the entry of those that do not fit
_BY_CHARACTERS_MAX = 200


class Asked(NamedTuple):
    """Which of them a request asks for."""

    for_query: bool
    for_index: bool
    for_index_v2: bool
    for_advice: bool

    @classmethod
    def of(cls, headers: h.Headers) -> Asked:
        return cls(*[h.flag(headers, name) for name in _ASKED])


_ASKED = (h.POPULATE_QUERY_METRICS, h.POPULATE_INDEX_METRICS, h.POPULATE_INDEX_METRICS_V2, h.POPULATE_QUERY_ADVICE)


def query_metrics(answer: PageAnswer, compile_s: float, run_s: float, read_factor: int) -> HeaderList:
    """Times that are not told apart here are 0: loading, looking up and running are one loop."""
    counters = answer.counters
    loaded = counters.items_loaded
    ratio = (loaded - counters.items_missed) / loaded if loaded else 1.0
    metrics = {
        "totalExecutionTimeInMs": _ms(compile_s + run_s),
        "queryCompileTimeInMs": _ms(compile_s),
        "queryLogicalPlanBuildTimeInMs": "0.00",
        "queryPhysicalPlanBuildTimeInMs": "0.00",
        "queryOptimizationTimeInMs": "0.00",
        "VMExecutionTimeInMs": _ms(run_s),
        "indexLookupTimeInMs": "0.00",
        "instructionCount": "0",
        "documentLoadTimeInMs": "0.00",
        "systemFunctionExecuteTimeInMs": "0.00",
        "userFunctionExecuteTimeInMs": "0.00",
        "retrievedDocumentCount": str(loaded),
        "retrievedDocumentSize": str(counters.bytes_loaded),
        "outputDocumentCount": str(len(answer.rows)),
        "outputDocumentSize": str(sum(map(len, answer.rows))),
        "writeOutputTimeInMs": "0.00",
        "indexUtilizationRatio": f"{ratio:.2f}",
    }
    parts = {part.what: f"{part.ru:.4f}" for part in charges.query_page_parts(answer.work, read_factor)}
    return [
        (b"x-ms-documentdb-query-metrics", _pairs(metrics)),
        (b"x-armillary-charge-details", _pairs(parts)),
    ]


def partition_shares(container: Container, query: BoundQuery, options: FeedOptions, answer: PageAnswer) -> HeaderList:
    """What each partition of a page was charged and did, the dearest first, as JSON: a header that only Armillary
    sends. The entries add up to the charge; those that do not fit are one entry without id."""
    paths = ", ".join(container_index_use(container, query, options.key).used)
    entries, size_bytes = [], 2
    for index, share in enumerate(answer.shares):
        text = json.dumps({"id": share.range_id, **_share(share.charged, share.tally, paths)})
        size_bytes += len(text) + 2
        if size_bytes > _SHARES_BYTES_MAX - _REST_BYTES:
            entries.append(json.dumps(_rest(answer.shares[index:])))
            break
        entries.append(text)
    return [(b"x-armillary-partitions", f"[{', '.join(entries)}]".encode("ascii"))]


def _share(charged: int, tally: Tally, paths: str) -> dict[str, Any]:
    counters = tally.counters
    scan = "scan" if counters.is_full_scan or not paths else f"index scan {paths}" if counters.precise_scans else ""
    by = f"seek {paths}" if counters.seeks and paths else scan or "key"
    return {
        "ru": charged / 100,
        "loaded": counters.items_loaded,
        "returned": tally.returned,
        "bytes": counters.bytes_loaded,
        "ms": round(tally.seconds * 1000, 2),
        "by": by[:_BY_CHARACTERS_MAX],
    }


def _rest(shares: Sequence[PartitionShare]) -> dict[str, Any]:
    tally = Tally()
    for share in shares:
        tally.add(share.tally)
    entry = _share(sum(share.charged for share in shares), tally, "")
    return {"id": None, "count": len(shares), **entry, "by": None}


def index_metrics(container: Container, query: BoundQuery, options: FeedOptions, *, is_v2: bool) -> HeaderList:
    """JSON, in base64 for clients that ask in the first way and percent-encoded in the second."""
    use = container_index_use(container, query, options.key)
    if is_v2:
        text = quote(orjson.dumps(_second_form(use)), safe="").encode("ascii")
    else:
        text = base64.b64encode(orjson.dumps(_first_form(use)))
    return [(b"x-ms-cosmos-index-utilization", text)]


def query_advice(query: tree.Query) -> HeaderList:
    rules = [{"Id": rule, "Params": []} for rule in advice_of(query)]
    return [(b"x-ms-cosmos-query-advice", quote(orjson.dumps(rules), safe="").encode("ascii"))]


def _first_form(use: IndexUse) -> dict[str, Any]:
    def single(path: str, ending: str = "?") -> dict[str, Any]:
        spec = {"FilterExpression": "", "IndexSpec": f"{path}/{ending}", "FilterPreciseSet": True}
        is_precise = "/[]" not in path and ending == "?"
        return {**spec, "IndexPreciseSet": is_precise, "IndexImpactScore": "High"}

    def spatial(path: str) -> dict[str, Any]:
        return single(path, "*")

    def composite(paths: tuple[CompositePath, ...]) -> dict[str, Any]:
        return {"IndexSpecs": _specs(paths), "IndexPreciseSet": True, "IndexImpactScore": "High"}

    return {
        "UtilizedSingleIndexes": [*map(single, use.used), *map(spatial, use.used_spatial)],
        "PotentialSingleIndexes": [*map(single, use.possible), *map(spatial, use.possible_spatial)],
        "UtilizedCompositeIndexes": list(map(composite, use.used_composites)),
        "PotentialCompositeIndexes": list(map(composite, use.possible_composites)),
    }


def _second_form(use: IndexUse) -> dict[str, Any]:
    def indexes(
        single: tuple[str, ...], spatial: tuple[str, ...], composites: tuple[tuple[CompositePath, ...], ...]
    ) -> dict[str, Any]:
        specs = [*[f"{path}/?" for path in single], *[f"{path}/*" for path in spatial]]
        return {
            "SingleIndexes": [{"IndexSpec": spec} for spec in specs],
            "CompositeIndexes": [{"IndexSpecs": _specs(paths)} for paths in composites],
        }

    return {
        "UtilizedIndexes": indexes(use.used, use.used_spatial, use.used_composites),
        "PotentialIndexes": indexes(use.possible, use.possible_spatial, use.possible_composites),
    }


def _specs(paths: tuple[CompositePath, ...]) -> list[str]:
    return [f"{path} {'DESC' if is_descending else 'ASC'}" for path, is_descending in paths]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def _pairs(values: dict[str, str]) -> bytes:
    return ";".join([f"{name}={value}" for name, value in values.items()]).encode("ascii")

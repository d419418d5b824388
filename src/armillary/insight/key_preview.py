"""How the items of a container would lie by another partition key: a sample of them is hashed by the key that is asked
about and laid onto as many even partitions as a new container would have. Nothing is written or charged.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any, Final

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.errors import Failure
from armillary.insight.sampling import item_count, sampled_items
from armillary.model import documents
from armillary.model.keys import HASH, MULTI_HASH, SPACE_HIGH, SPACE_LOW, Key, PartitionKeyDefinition, to_header
from armillary.model.ranges import even_boundaries
from armillary.model.values import UNDEFINED

COUNT_DEFAULT: Final = 10_000
_VERSION: Final = 2


def parse_paths(paths: list[str]) -> PartitionKeyDefinition:
    """One path, or up to three of a hierarchical key; the refusals are those of a new container."""
    kind = HASH if len(paths) == 1 else MULTI_HASH
    return PartitionKeyDefinition.parse({"paths": paths, "kind": kind, "version": _VERSION})


async def preview_key(
    account: Account, container: Container, definition: PartitionKeyDefinition, count: int, partition_count: int
) -> dict[str, Any]:
    """The answer of the control API."""
    bounds = even_boundaries(partition_count, _VERSION)
    items, sizes = [0] * partition_count, [0] * partition_count
    keys: dict[Key, int] = {}
    missing = 0
    async for stored in sampled_items(account, container, count):
        for each in stored:
            try:
                key = definition.extract(documents.plain_json(each))
                place = bisect_right(bounds, definition.effective_key(key))
            except Failure:  # half of a surrogate pair: such an item could not be stored by this key
                missing += 1
                continue
            missing += UNDEFINED in key
            items[place] += 1
            sizes[place] += len(each)
            keys[key] = keys.get(key, 0) + len(each)
    total = sum(sizes)
    top = max(keys, key=lambda each: keys[each], default=None)
    edges = [SPACE_LOW, *bounds, SPACE_HIGH]
    return {
        "paths": list(definition.paths),
        "sampled": sum(items),
        "of": item_count(container),
        "missing": missing,
        "distinct": len(keys),
        "effectiveKeys": round(total**2 / sum(each**2 for each in keys.values()), 2) if total else None,
        "topKey": to_header(top) if top is not None else None,
        "topShare": round(keys[top] / total, 6) if top is not None else None,
        "partitions": [
            {"id": index, "low": low.hex().upper(), "high": high.hex().upper(), "items": items[index], "bytes": size}
            for (index, size), (low, high) in zip(enumerate(sizes), pairwise(edges), strict=True)
        ],
    }

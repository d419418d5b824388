"""Physical partitions as clients see them: how many, and that items lie where the client's own hash says."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from itertools import pairwise
from typing import Any

import pytest
from azure.cosmos import PartitionKey, ThroughputProperties
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue
from sdk.clients import everything

RANGE = "x-ms-documentdb-partitionkeyrangeid"


async def _ranges(container: Any) -> list[tuple[str, str]]:
    ranges = []
    for feed_range in await everything(container.read_feed_ranges()):
        bounds = json.loads(b64decode(feed_range)) if isinstance(feed_range, str) else feed_range
        ranges.append((bounds["Range"]["min"], bounds["Range"]["max"]))
    return sorted(ranges)


@pytest.mark.parametrize(
    ("throughput", "count"),
    [
        (400, 1),
        (6_000, 1),
        (11_000, 2),
        (12_000, 2),
        (30_000, 5),
        (ThroughputProperties(auto_scale_max_throughput=30_000), 3),  # no headroom: it is the maximum already
    ],
)
async def test_how_many(database: Any, throughput: Any, count: int) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=throughput)
    ranges = await _ranges(container)
    assert len(ranges) == count
    assert ranges[0][0] == ""
    assert ranges[-1][1] == "FF"
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    step = 0x3FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF // count
    assert [low for low, _ in ranges[1:]] == [f"{step * index:032X}" for index in range(1, count)]


@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_items_lie_where_the_client_says(database: Any, levels: int, seed: int) -> None:
    paths = ["/a", "/b", "/c"][:levels]
    key = PartitionKey(paths[0]) if levels == 1 else PartitionKey(paths, kind="MultiHash")
    container = await database.create_container("c", key, offer_throughput=30_000)
    bounds = await _ranges(container)
    dice = random.Random(seed)
    seen = set()
    for number in range(60):
        values = [_value(dice) for _ in paths]
        document = {"id": str(number), **dict(zip("abc", values, strict=False))}
        created = await container.create_item(document)
        served = created.get_response_headers()[RANGE]
        hashed = str(key._get_effective_partition_key_string(values))
        (expected,) = [index for index, (low, high) in enumerate(bounds) if low <= hashed < high]
        assert served == str(expected), (values, hashed)
        seen.add(served)
        given = values if levels > 1 else NullPartitionKeyValue if values[0] is None else values[0]
        read = await container.read_item(str(number), given)
        assert read.get_response_headers()[RANGE] == served
    assert len(seen) == 5


async def test_each_feed_range_has_its_own_items(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=30_000)
    for number in range(50):
        await container.create_item({"id": str(number), "pk": number}, no_response=True)
    await container.create_item({"id": "none"}, no_response=True)
    found: list[str] = []
    for feed_range in await everything(container.read_feed_ranges()):
        part = await everything(container.query_items("SELECT * FROM c", feed_range=feed_range))
        assert part
        found += [each["id"] for each in part]
    assert len(found) == len(set(found)) == 51


async def test_the_feed_range_of_a_key(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=30_000)
    for number in range(20):
        await container.create_item({"id": str(number), "pk": number % 4}, no_response=True)
    await container.create_item({"id": "none"}, no_response=True)
    for key, count in ((1, 5), (3, 5), (NonePartitionKeyValue, 1), ("nobody", 0)):
        one = await container.feed_range_from_partition_key(key)
        assert len(await everything(container.query_items("SELECT * FROM c", feed_range=one))) == count
        inside = [
            await container.is_feed_range_subset(whole, one) for whole in await everything(container.read_feed_ranges())
        ]
        assert inside.count(True) == 1


async def test_a_shared_database_spreads_its_containers(client: Any, name: str) -> None:
    database = await client.create_database(name, offer_throughput=30_000)
    container = await database.create_container("c", PartitionKey("/pk"))
    assert len(await _ranges(container)) == 3
    await client.delete_database(name)


def _value(dice: random.Random) -> Any:
    kind = dice.randrange(6)
    if kind == 0:
        return dice.choice([None, True, False])
    if kind == 1:
        return dice.randint(-(10**6), 10**6)
    if kind == 2:
        return dice.uniform(-1e6, 1e6)
    return "".join(dice.choices("abcé你😀 /\"'", k=dice.randrange(30)))

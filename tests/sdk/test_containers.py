"""Containers: their life, and that every policy comes back as it was given."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, refused

INDEXING = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}


async def test_what_a_new_container_has(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"))
    properties = await container.read()
    assert properties["id"] == "c"
    assert properties["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 2}
    assert properties["indexingPolicy"] == INDEXING
    assert properties["conflictResolutionPolicy"] == {
        "mode": "LastWriterWins",
        "conflictResolutionPath": "/_ts",
        "conflictResolutionProcedure": "",
    }
    assert properties["geospatialConfig"] == {"type": "Geography"}
    assert "defaultTtl" not in properties
    assert properties["_docs"] == "docs/"
    assert properties["_sprocs"] == "sprocs/"
    assert properties["_triggers"] == "triggers/"
    assert properties["_udfs"] == "udfs/"
    assert properties["_conflicts"] == "conflicts/"
    database_rid = (await database.read())["_rid"]
    assert properties["_self"] == f"dbs/{database_rid}/colls/{properties['_rid']}/"
    assert len(properties["_rid"]) == 12
    assert properties.get_response_headers()["etag"] == properties["_etag"]


async def test_every_policy_comes_back(database: Any) -> None:
    indexing = {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/secret/*"}, {"path": '/"_etag"/?'}],
        "compositeIndexes": [[{"path": "/name", "order": "ascending"}, {"path": "/age", "order": "descending"}]],
        "spatialIndexes": [{"path": "/place/*", "types": ["Point", "Polygon", "MultiPolygon", "LineString"]}],
    }
    resolution = {"mode": "LastWriterWins", "conflictResolutionPath": "/stamp", "conflictResolutionProcedure": ""}
    computed = [{"name": "lower", "query": "SELECT VALUE LOWER(c.name) FROM c"}]
    unique = {"uniqueKeys": [{"paths": ["/a", "/b"]}, {"paths": ["/c"]}]}
    container = await database.create_container(
        "c",
        PartitionKey(["/tenant", "/user"], kind="MultiHash"),
        indexing_policy=indexing,
        default_ttl=3600,
        unique_key_policy=unique,
        conflict_resolution_policy=resolution,
        computed_properties=computed,
    )
    properties = await container.read()
    assert properties["partitionKey"] == {"paths": ["/tenant", "/user"], "kind": "MultiHash", "version": 2}
    assert properties["indexingPolicy"] == indexing
    assert properties["defaultTtl"] == 3600
    assert properties["uniqueKeyPolicy"] == unique
    assert properties["conflictResolutionPolicy"] == resolution
    assert properties["computedProperties"] == computed
    assert [user(each) for each in await everything(database.list_containers())] == [user(properties)]


async def test_search_policies_come_back(database: Any) -> None:
    vectors = {
        "vectorEmbeddings": [
            {"path": "/emb", "dataType": "float32", "dimensions": 256, "distanceFunction": "euclidean"},
            {"path": "/small", "dataType": "int8", "dimensions": 8, "distanceFunction": "cosine"},
        ]
    }
    texts = {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/abstract", "language": "en-US"}]}
    container = await database.create_container(
        "c",
        PartitionKey("/pk"),
        vector_embedding_policy=vectors,
        full_text_policy=texts,
        indexing_policy={
            "vectorIndexes": [{"path": "/emb", "type": "diskANN"}, {"path": "/small", "type": "flat"}],
            "fullTextIndexes": [{"path": "/abstract"}],
        },
    )
    properties = await container.read()
    assert properties["vectorEmbeddingPolicy"] == vectors
    assert properties["fullTextPolicy"] == texts
    assert [each["path"] for each in properties["indexingPolicy"]["vectorIndexes"]] == ["/emb", "/small"]
    assert [each["path"] for each in properties["indexingPolicy"]["fullTextIndexes"]] == ["/abstract"]
    assert {"path": "/emb/*"} in properties["indexingPolicy"]["excludedPaths"]


async def test_etag_exclusion_is_added_to_those_given(database: Any) -> None:
    policy = {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/secret/?"}]}
    container = await database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)
    paths = [each["path"] for each in (await container.read())["indexingPolicy"]["excludedPaths"]]
    assert sorted(paths) == ['/"_etag"/?', "/secret/?"]


async def test_no_index_at_all(database: Any) -> None:
    policy = {"indexingMode": "none", "automatic": False}
    container = await database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)
    assert (await container.read())["indexingPolicy"]["indexingMode"] == "none"
    await container.create_item({"id": "1", "pk": "a"})
    assert (await container.read_item("1", "a"))["id"] == "1"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"indexing_policy": {"includedPaths": [{"path": "/a/?"}], "excludedPaths": []}}, "special mandatory"),
        ({"indexing_policy": {"indexingMode": "lazy"}}, ""),
        ({"indexing_policy": {"indexingMode": "sometimes"}}, ""),
        ({"indexing_policy": {"includedPaths": [{"path": "/*"}], "compositeIndexes": [[{"path": "/a"}]]}}, ""),
        ({"indexing_policy": {"includedPaths": [{"path": "no slash"}, {"path": "/*"}]}}, ""),
        ({"indexing_policy": {"indexingMode": "none"}, "default_ttl": 5}, ""),
        ({"default_ttl": 0}, ""),
        ({"default_ttl": -2}, ""),
        ({"default_ttl": "soon"}, ""),
        ({"unique_key_policy": {"uniqueKeys": [{"paths": [f"/{n}"]} for n in range(11)]}}, ""),
        ({"computed_properties": "x"}, "One of the specified inputs is invalid"),
    ],
)
async def test_policies_that_are_refused(database: Any, options: dict[str, Any], text: str) -> None:
    with refused(400, text=text):
        await database.create_container("c", PartitionKey("/pk"), **options)
    with refused(404):
        await database.get_container_client("c").read()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (PartitionKey(["/a", "/b", "/c", "/d"], kind="MultiHash"), "Too many partition key paths"),
        (PartitionKey("no-slash"), ""),
        (PartitionKey("/a/*"), ""),
        (PartitionKey("/a", version=3), ""),
        (PartitionKey([], kind="MultiHash"), ""),
    ],
)
async def test_partition_keys_that_are_refused(database: Any, key: PartitionKey, text: str) -> None:
    with refused(400, text=text):
        await database.create_container("c", key)


async def test_replacing(database: Any) -> None:
    computed = [{"name": "lower", "query": "SELECT VALUE LOWER(c.name) FROM c"}]
    container = await database.create_container("c", PartitionKey("/pk"), default_ttl=10, computed_properties=computed)
    before = await container.read()
    policy = {"includedPaths": [{"path": "/pk/?"}], "excludedPaths": [{"path": "/*"}]}
    await database.replace_container("c", PartitionKey("/pk"), indexing_policy=policy, default_ttl=-1)
    after = await container.read()
    assert after["_rid"] == before["_rid"]
    assert after["_etag"] != before["_etag"]
    assert after["defaultTtl"] == -1
    assert {"path": "/*"} in after["indexingPolicy"]["excludedPaths"]
    assert "computedProperties" not in after
    await database.replace_container("c", PartitionKey("/pk"))
    assert "defaultTtl" not in await container.read()


async def test_replacing_may_spell_paths_otherwise(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "x"})
    await database.replace_container("c", PartitionKey('/"pk"'), default_ttl=-1)
    after = await container.read()
    assert after["partitionKey"]["paths"] == ["/pk"]
    assert after["defaultTtl"] == -1
    assert (await container.read_item("1", "x"))["pk"] == "x"


async def test_what_replacing_may_not_change(database: Any) -> None:
    unique = {"uniqueKeys": [{"paths": ["/a"]}]}
    await database.create_container("c", PartitionKey("/pk"), unique_key_policy=unique)
    with refused(400):
        await database.replace_container("c", PartitionKey("/other"))
    with refused(400):
        await database.replace_container("c", PartitionKey("/pk", version=1))
    with refused(404):
        await database.replace_container("missing", PartitionKey("/pk"))


async def test_life(database: Any) -> None:
    await database.create_container("one", PartitionKey("/pk"))
    await database.create_container("two", PartitionKey("/pk"))
    with refused(409):
        await database.create_container("one", PartitionKey("/pk"))
    same = await database.create_container_if_not_exists("one", PartitionKey("/pk"))
    assert (await same.read())["id"] == "one"
    assert [each["id"] async for each in database.list_containers()] == ["one", "two"]
    found = await everything(
        database.query_containers("SELECT * FROM c WHERE c.id = @id", parameters=[{"name": "@id", "value": "two"}])
    )
    assert [each["id"] for each in found] == ["two"]
    await database.delete_container("one")
    with refused(404):
        await database.get_container_client("one").read()
    with refused(404):
        await database.delete_container("one")


async def test_in_a_database_that_is_not_there(client: Any) -> None:
    missing = client.get_database_client("missing")
    with refused(404, 1003):
        await missing.create_container("c", PartitionKey("/pk"))
    with refused(404, 1003):
        await missing.get_container_client("c").read()
    with refused(404, 1003):
        await missing.get_container_client("c").create_item({"id": "1", "pk": "a"})


async def test_quota_and_statistics(container: Any) -> None:
    for number in range(3):
        await container.create_item({"id": str(number), "pk": f"k{number}"})
    properties = await container.read(populate_quota_info=True, populate_partition_key_range_statistics=True)
    headers = properties.get_response_headers()
    usage = dict(pair.split("=") for pair in headers["x-ms-resource-usage"].strip(";").split(";"))
    assert usage["documentsCount"] == "3"
    assert "x-ms-resource-quota" in headers
    assert headers["x-ms-documentdb-collection-index-transformation-progress"] == "100"
    assert "x-ms-documentdb-collection-lazy-indexing-progress" not in headers
    (statistics,) = properties["statistics"]
    assert statistics["id"] == "0"
    assert statistics["documentCount"] == 3
    assert "sizeInKB" in statistics


async def test_a_client_survives_that_the_container_is_made_again(database: Any, connect: Any, name: str) -> None:
    """Another client deletes and creates the container; the first one finds out by 400/1024 and goes on."""
    container = await database.create_container("c", PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "a"})
    other = (await connect()).get_database_client(name)
    await other.delete_container("c")
    remade = await other.create_container("c", PartitionKey("/other"))
    await remade.create_item({"id": "2", "other": "b"})
    assert (await container.read_item("2", "b"))["id"] == "2"
    await container.create_item({"id": "3", "other": "b"})
    with refused(404):
        await container.read_item("1", "a")


def user(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if name != "statistics"}

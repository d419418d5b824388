"""Container policies: what is echoed, what is refused and in which words (the clients' own tests look for some)."""

from __future__ import annotations

import copy
import random
from functools import partial
from typing import Any

from support.portions import Amount
from support.refusals import refused

from armillary.errors import Failure, Kind
from armillary.model.indexes.search_policies import (
    FullTextPolicy,
    VectorPolicy,
    check_full_text_index,
    check_vector_index,
)
from armillary.model.policies import ContainerPolicies, check_replacement


def echo(**body: Any) -> dict[str, Any]:
    answer = ContainerPolicies.parse(body).to_json()
    assert ContainerPolicies.parse(answer).to_json() == answer
    return answer


def refused_body(words: str = "", /, **body: Any) -> None:
    refused(lambda: ContainerPolicies.parse(body), words)


def test_defaults() -> None:
    assert echo(id="c") == {
        "conflictResolutionPolicy": {
            "mode": "LastWriterWins",
            "conflictResolutionPath": "/_ts",
            "conflictResolutionProcedure": "",
        },
        "geospatialConfig": {"type": "Geography"},
    }


def test_unknown_properties_are_named() -> None:
    refused_body("'defaultTTL'", id="c", defaultTTL=5)
    assert echo(id="c", _rid="x", _docs="docs/", statistics=[])
    refused(
        lambda: ContainerPolicies.parse({"materializedViewDefinition": {"sourceCollectionId": "x"}}),
        "change feed",
        kind=Kind.UNSUPPORTED,
    )


def test_ttl() -> None:
    for good in (-1, 1, 10, 2147483647):
        assert echo(defaultTtl=good)["defaultTtl"] == good
        assert echo(analyticalStorageTtl=good)["analyticalStorageTtl"] == good
    assert echo(defaultTtl=10.0)["defaultTtl"] == 10
    assert echo(analyticalStorageTtl=0)["analyticalStorageTtl"] == 0
    assert "defaultTtl" not in echo(defaultTtl=None)
    bads: list[Any] = [0, -10, -2, 2147483648, "10", True, False, 1.5, 1e300, [], {}]
    for bad in bads:
        refused_body("is invalid", defaultTtl=bad)
    for bad in (-10, "1", True, 1.5):
        refused_body("is invalid", analyticalStorageTtl=bad)


def test_computed_properties() -> None:
    given = [
        {"name": "lower", "query": "SELECT VALUE LOWER(c.group) FROM c"},
        {"name": "n", "query": "select  value 1"},
    ]
    assert echo(computedProperties=given)["computedProperties"] == given
    assert "computedProperties" not in echo(computedProperties=[])
    one = {"name": "a", "query": "SELECT VALUE c.a FROM c"}
    refused_body("One of the specified inputs is invalid", computedProperties=one)
    bads: list[Any] = [
        [one, one],
        ["a"],
        [{"name": "a"}],
        [{"query": one["query"]}],
        [{**one, "name": ""}],
        [{**one, "name": "id"}],
        [{**one, "name": "_ts"}],
        [{**one, "name": 5}],
        [{**one, "query": "SELECT c.a FROM c"}],
        [{**one, "query": 1}],
        [{**one, "more": 1}],
    ]
    for bad in bads:
        refused_body("One of the specified inputs is invalid", computedProperties=bad)
    refused_body("at most 20", computedProperties=[{**one, "name": f"p{i}"} for i in range(21)])


def embedding(**changes: Any) -> dict[str, Any]:
    entry = {"path": "/vector1", "dataType": "float32", "dimensions": 256, "distanceFunction": "euclidean"} | changes
    return {"vectorEmbeddings": [entry]}


def test_vector_embeddings() -> None:
    for data_type in ("float32", "float16", "int8", "uint8"):
        assert echo(vectorEmbeddingPolicy=embedding(dataType=data_type))["vectorEmbeddingPolicy"] == embedding(
            dataType=data_type
        )
    refused_body("Vector Embedding Policy has an invalid DataType", vectorEmbeddingPolicy=embedding(dataType="float33"))
    refused_body(
        "Vector Embedding Policy has Dimensions:8000 which is more than the maximum supported value",
        vectorEmbeddingPolicy=embedding(dimensions=8000),
    )
    refused_body("The Vector Embedding Policy has Dimensions:-1", vectorEmbeddingPolicy=embedding(dimensions=-1))
    refused_body("The Vector Embedding Policy has Dimensions:0", vectorEmbeddingPolicy=embedding(dimensions=0))
    refused_body(
        "The Vector Embedding Policy has an invalid DistanceFunction:handMeasured",
        vectorEmbeddingPolicy=embedding(distanceFunction="handMeasured"),
    )
    for bad in ("vector1", "/vector1/*", "/a/[]/b", "/", 1, None):
        refused_body("invalid Path", vectorEmbeddingPolicy=embedding(path=bad))
    refused_body("", vectorEmbeddingPolicy=embedding(dimensions="256"))
    refused_body("'embeddingSource'", vectorEmbeddingPolicy=embedding(embeddingSource={}))
    refused_body("twice", vectorEmbeddingPolicy={"vectorEmbeddings": embedding()["vectorEmbeddings"] * 2})
    shapes: list[Any] = [[], {"vectorEmbeddings": {}}, {}, "x"]
    for shape in shapes:
        refused_body("One of the specified inputs is invalid", vectorEmbeddingPolicy=shape)


def test_vector_indexes() -> None:
    policy = VectorPolicy.parse(
        {
            "vectorEmbeddings": [
                *embedding()["vectorEmbeddings"],
                *embedding(path="/vector2", dataType="int8", dimensions=200)["vectorEmbeddings"],
                *embedding(path="/large", dimensions=550)["vectorEmbeddings"],
            ]
        }
    )
    good: list[dict[str, Any]] = [
        {"path": "/vector1", "type": "flat"},
        {"path": "/vector2", "type": "quantizedFlat", "quantizerType": "product", "quantizationByteSize": 8},
        {
            "path": "/vector2",
            "type": "diskANN",
            "quantizerType": "spherical",
            "quantizationByteSize": 200,
            "vectorIndexShardKey": ["/country/city"],
            "indexingSearchListSize": 25,
        },
    ]
    for entry in good:
        check_vector_index(entry, policy)
    bad: list[tuple[dict[str, Any], str]] = [
        (
            {"path": "/vector3", "type": "flat"},
            "The Vector Indexing Policy's path::/vector3 not matching in Embedding's path.",
        ),
        ({"path": "/vector1", "type": "notFlat"}, "Index Type::notFlat is invalid"),
        ({"path": "/vector1"}, "Index Type::None is invalid"),
        ({"type": "flat"}, "not matching in Embedding's path"),
        (
            {"path": "/vector1", "type": "quantizedFlat", "quantizationByteSize": 0},
            "The Vector Indexing Policy parameter QuantizationByteSize value :: 0 is out of range. "
            "The allowed range is between 1 and 256.",
        ),
        (
            {"path": "/large", "type": "quantizedFlat", "quantizationByteSize": 513},
            "QuantizationByteSize value :: 513 is out of range. The allowed range is between 1 and 512.",
        ),
        (
            {"path": "/vector1", "type": "diskANN", "indexingSearchListSize": 5},
            "IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.",
        ),
        (
            {"path": "/vector2", "type": "diskANN", "vectorIndexShardKey": ["country"]},
            "The Vector Indexing Policy has an invalid Shard Path: country.",
        ),
        (
            {"path": "/vector2", "type": "diskANN", "vectorIndexShardKey": ["/a", "/b", "/c"]},
            "The number of shard paths defined in the Vector Indexing Policy: 3 exceeds the maximum: 1.",
        ),
        (
            {"path": "/vector2", "type": "diskANN", "vectorIndexShardKey": "/country"},
            "One of the specified inputs is invalid",
        ),
        ({"path": "/large", "type": "flat"}, "505"),
        ({"path": "/vector1", "type": "flat", "quantizationByteSize": 8}, "does not apply"),
        ({"path": "/vector1", "type": "diskANN", "quantizerType": "x"}, "QuantizerType:x"),
        ({"path": "/vector1", "type": "diskANN", "quantizationByteSize": "8"}, "whole number"),
        ({"path": "/vector1", "type": "flat", "other": 1}, "'other'"),
    ]
    for entry, words in bad:
        refused(partial(check_vector_index, entry, policy), words)
    refused(lambda: check_vector_index({"path": "/vector1", "type": "flat"}, None), "not matching in Embedding's path")


def test_full_text() -> None:
    for given in (
        {"defaultLanguage": "en-US"},
        {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/abstract"}]},
        {"defaultLanguage": "fr-FR", "fullTextPaths": [{"path": "/a/b", "language": "de-DE"}]},
        {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/a", "language": "1033"}]},
    ):
        assert echo(fullTextPolicy=given)["fullTextPolicy"] == given
    by_number = FullTextPolicy.parse({"fullTextPaths": [{"path": "/a", "language": "1033"}]})
    assert by_number is not None and by_number.languages == {"/a": "en-US"}
    paths: list[dict[str, Any]] = [{"path": "abstract", "language": "en-US"}]
    refused_body("The Full Text Policy contains an invalid Path: abstract", fullTextPolicy={"fullTextPaths": paths})
    refused_body(
        "The Full Text Policy contains an unsupported language spa-SPA", fullTextPolicy={"defaultLanguage": "spa-SPA"}
    )
    refused_body(
        "The Full Text Policy contains an unsupported language EN-us",
        fullTextPolicy={"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/a", "language": "EN-us"}]},
    )
    bads: list[Any] = [[{"language": "en-US"}], [{"path": "/a/*"}], {}, ["/a"], [{"path": "/a"}, {"path": "/a"}]]
    for bad in bads:
        refused_body("", fullTextPolicy={"fullTextPaths": bad})
    policy = FullTextPolicy.parse({"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/abstract"}]})
    check_full_text_index({"path": "/abstract"}, policy)
    for bad_entry in (
        {"path": "/path"},
        {"path": "abstract"},
        {"not_path": "abstract"},
        {},
        "x",
        {"path": "/abstract/*"},
    ):
        refused(partial(check_full_text_index, bad_entry, policy))
    refused(lambda: check_full_text_index({"path": "/abstract"}, None), "Full Text Policy")


def test_conflict_resolution() -> None:
    custom = {"mode": "Custom", "conflictResolutionProcedure": "dbs/a/colls/b/sprocs/c"}
    assert echo(conflictResolutionPolicy=custom)["conflictResolutionPolicy"] == {**custom, "conflictResolutionPath": ""}
    last = {"mode": "lastWriterWins", "conflictResolutionPath": "/n"}
    assert echo(conflictResolutionPolicy=last)["conflictResolutionPolicy"]["conflictResolutionPath"] == "/n"
    bads: list[Any] = [
        {"mode": "x"},
        {"mode": 1},
        "x",
        {"mode": "Custom", "conflictResolutionPath": "/a"},
        {"mode": "LastWriterWins", "conflictResolutionProcedure": "p"},
        {"conflictResolutionPath": "a"},
        {"other": 1},
        {"mode": "Custom", "conflictResolutionProcedure": 5},
    ]
    for bad in bads:
        refused_body("", conflictResolutionPolicy=bad)


def test_geospatial_and_change_feed() -> None:
    assert echo(geospatialConfig={"type": "Geometry"})["geospatialConfig"] == {"type": "Geometry"}
    assert echo(changeFeedPolicy={"retentionDuration": 10})["changeFeedPolicy"] == {"retentionDuration": 10}
    bads: list[Any] = [{"type": "geo"}, {}, "Geography", {"type": ["Geography"]}]
    for bad in bads:
        refused_body("", geospatialConfig=bad)
    bads = [{"retentionDuration": -1}, {"retentionDuration": "5"}, {}, {"retentionDuration": 10**9}, {"x": 1}]
    for bad in bads:
        refused_body("", changeFeedPolicy=bad)


def test_client_encryption() -> None:
    entry = {
        "path": "/ssn",
        "clientEncryptionKeyId": "key1",
        "encryptionType": "Deterministic",
        "encryptionAlgorithm": "AEAD_AES_256_CBC_HMAC_SHA256",
    }
    given = {"includedPaths": [entry], "policyFormatVersion": 2}
    assert echo(clientEncryptionPolicy=given)["clientEncryptionPolicy"] == given
    assert echo(clientEncryptionPolicy={**given, "includedPaths": [{**entry, "path": "/id"}]})
    changes: list[dict[str, Any]] = [
        {"path": "ssn"},
        {"path": "/a/b"},
        {"path": None},
        {"clientEncryptionKeyId": ""},
        {"encryptionType": "Plain"},
        {"encryptionAlgorithm": "ROT13"},
        {"more": 1},
        {"path": "/id", "encryptionType": "Randomized"},
    ]
    for change in changes:
        refused_body("", clientEncryptionPolicy={**given, "includedPaths": [entry | change]})
    refused_body("unique", clientEncryptionPolicy={**given, "includedPaths": [entry, entry]})
    refused_body("", clientEncryptionPolicy={**given, "policyFormatVersion": 3})
    refused_body("", clientEncryptionPolicy={"policyFormatVersion": 1})
    refused_body("", clientEncryptionPolicy={"includedPaths": [{**entry, "path": "/id"}], "policyFormatVersion": 1})


def test_what_replace_may_not_change() -> None:
    index = {"vectorIndexes": [{"path": "/vector1", "type": "flat"}]}
    old = {
        "id": "c",
        "partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 2},
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/a"]}]},
        "vectorEmbeddingPolicy": embedding(),
        "indexingPolicy": index,
    }
    check_replacement(old, copy.deepcopy(old))
    check_replacement(old, {**old, "indexingPolicy": {}})
    check_replacement(old, {**old, "indexingPolicy": {}, "vectorEmbeddingPolicy": None, "defaultTtl": 5})
    check_replacement({**old, "vectorEmbeddingPolicy": None, "indexingPolicy": {}}, old)
    spelled = {"paths": ['/"id"'], "kind": "Hash", "version": 2}
    quoted = {"vectorIndexes": [{"path": "/'vector1'", "type": "flat"}]}
    check_replacement(old, {**old, "partitionKey": spelled, "indexingPolicy": quoted})
    check_replacement(old, {**old, "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ['/"a"']}]}})
    two = [{"paths": ["/a", "/b/c"]}, {"paths": ["/d"]}]
    turned = [{"paths": ["/d"]}, {"paths": ["/b/c", "/a"]}]
    check_replacement(
        {"id": "c", "uniqueKeyPolicy": {"uniqueKeys": two}}, {"id": "c", "uniqueKeyPolicy": {"uniqueKeys": turned}}
    )
    changes: list[tuple[dict[str, Any], str]] = [
        ({"id": "d"}, "id of a container"),
        ({"partitionKey": {"paths": ["/a"], "kind": "Hash", "version": 2}}, "Partition key"),
        ({"partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 1}}, "Partition key"),
        ({"partitionKey": {"paths": ["/id"], "kind": "MultiHash", "version": 2}}, "Partition key"),
        ({"partitionKey": {"paths": ["/i/d"], "kind": "Hash", "version": 2}}, "Partition key"),
        ({"partitionKey": None}, "Partition key"),
        ({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/a", "/b"]}]}}, "Unique keys"),
        ({"uniqueKeyPolicy": {"uniqueKeys": []}}, "Unique keys"),
        ({"uniqueKeyPolicy": None}, "Unique keys"),
        ({"clientEncryptionPolicy": {"includedPaths": []}}, "encryption"),
        (
            {"vectorEmbeddingPolicy": embedding(dimensions=384)},
            "Paths in existing embedding policy cannot be modified in Collection Replace",
        ),
        (
            {"indexingPolicy": {"vectorIndexes": [{"path": '/"vector1"', "type": "quantizedFlat"}]}},
            "Paths in existing vector indexing policy cannot be modified in Collection Replace",
        ),
        (
            {"indexingPolicy": {"vectorIndexes": [{"path": "/vector1", "type": "quantizedFlat"}]}},
            "Paths in existing vector indexing policy cannot be modified in Collection Replace",
        ),
    ]
    for change, words in changes:
        refused(partial(check_replacement, old, {**old, **change}), words)


def test_fuzz(amount: Amount) -> None:
    seed = 99
    print("seed", seed)
    dice = random.Random(seed)
    words = [
        "path",
        "/a",
        "/b/c",
        "type",
        "flat",
        "mode",
        "Custom",
        "name",
        "query",
        "SELECT VALUE 1",
        "en-US",
        "",
        "/a/*",
    ]
    words += ["vectorEmbeddings", "fullTextPaths", "language", "dimensions", "includedPaths", "Geometry", "dataType"]
    names = ["defaultTtl", "analyticalStorageTtl", "computedProperties", "vectorEmbeddingPolicy", "fullTextPolicy"]
    names += ["conflictResolutionPolicy", "geospatialConfig", "changeFeedPolicy", "clientEncryptionPolicy", "other"]

    def value(depth: int) -> Any:
        pick = dice.random()
        if depth > 0 and pick < 0.3:
            return {dice.choice(words): value(depth - 1) for _ in range(dice.randrange(4))}
        if depth > 0 and pick < 0.5:
            return [value(depth - 1) for _ in range(dice.randrange(3))]
        return dice.choice([None, True, 0, 1, -1, 2**40, 1.5, 1e308, *words])

    accepted = 0
    for _ in range(amount(20_000)):
        body = {name: value(3) for name in dice.sample(names, dice.randrange(1, 3))}
        try:
            answer = ContainerPolicies.parse(body).to_json()
        except Failure as failure:
            assert failure.kind is Kind.BAD_REQUEST  # noqa: PT017
        else:
            accepted += 1
            assert ContainerPolicies.parse(answer).to_json() == answer
    assert accepted > amount(300)

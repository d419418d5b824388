"""Indexing policies: the echo, the refusals, which path wins, and the terms of items; against a naive reading of the
rules as well."""

from __future__ import annotations

import copy
import random
from typing import Any

import orjson
import pytest
from support.portions import Amount
from support.refusals import refused

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model import charges
from armillary.model.encoding import ARRAY_MARK, OBJECT_MARK, encode_term
from armillary.model.indexes.index_paths import parse_index_path, path_text, text_steps
from armillary.model.indexes.indexing import ROOT_MISSING, IndexingPolicy, count_charged
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.values import UNDEFINED, compare

DEFAULT = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}
ETAG = {"path": '/"_etag"/?'}
KEY = PartitionKeyDefinition(("/pk",))


def parse(given: Any = None, *, key: PartitionKeyDefinition | None = KEY, **more: Any) -> IndexingPolicy:
    policy = IndexingPolicy.parse(given, key_definition=key, **{"has_ttl": False, **more})
    again = IndexingPolicy.parse(
        orjson.loads(orjson.dumps(policy.to_json())), key_definition=key, **{"has_ttl": False, **more}
    )
    assert again.to_json() == policy.to_json()
    return policy


def paths(included: list[str], excluded: list[str], **more: Any) -> dict[str, Any]:
    return {
        "includedPaths": [{"path": path} for path in included],
        "excludedPaths": [{"path": path} for path in excluded],
        **more,
    }


def refused_policy(given: Any, words: str = "", **more: Any) -> str:
    return refused(lambda: parse(given, **more), words, characters_max=700)


def terms(policy: IndexingPolicy, document: dict[str, Any], ts: int = 17) -> set[tuple[str, bytes]]:
    found = policy.terms(document, ts)
    assert len(set(found.terms)) == len(found.terms)
    return set(found.terms) - {("/_ts", encode_term(ts))}


def pairs(*given: tuple[str, Any]) -> set[tuple[str, bytes]]:
    return {(path, encode_term(value)) for path, value in given}


# What is echoed.


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"indexingMode": "consistent", "automatic": True},
        {"indexingMode": "Consistent"},
        {"includedPaths": [{"path": "/*"}]},
        {"includedPaths": [{"path": "/"}], "excludedPaths": []},
        {"includedPaths": [{"path": "/*", "indexes": [{"kind": "Hash", "dataType": "String"}, {"kind": "Range"}]}]},
        {"includedPaths": None, "excludedPaths": None, "compositeIndexes": None},
        {"excludedPaths": [{"path": "/_etag/?"}]},
    ],
)
def test_the_default(given: Any) -> None:
    echo = parse(given).to_json()
    assert {**echo, "excludedPaths": DEFAULT["excludedPaths"]} == DEFAULT
    assert len(echo["excludedPaths"]) == 1


def test_the_etag_is_added_to_given_exclusions() -> None:
    given = {
        "automatic": True,
        "indexingMode": "consistent",
        "includedPaths": [{"path": "/", "indexes": [{"kind": "Hash", "dataType": "Number", "precision": 2}]}],
        "excludedPaths": [{"path": '/"systemMetadata"/*'}],
    }
    echo = parse(given).to_json()
    assert echo["includedPaths"] == [{"path": "/*"}]
    assert echo["excludedPaths"] == [{"path": '/"systemMetadata"/*'}, ETAG]
    explicit = parse(paths(["/*", "/_etag/?"], [])).to_json()
    assert explicit["excludedPaths"] == []


def test_old_indexes_are_echoed_below_the_root() -> None:
    location = {"path": '/"Location"/?', "indexes": [{"kind": "Spatial", "dataType": "Point"}]}
    echo = parse({"includedPaths": [location, {"path": "/"}]}).to_json()
    assert echo["includedPaths"] == [location, {"path": "/*"}]


def test_composite_and_spatial_are_echoed() -> None:
    given = {
        "spatialIndexes": [{"path": "/path0/*", "types": ["Point", "LineString", "Polygon", "MultiPolygon"]}],
        "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]],
    }
    assert parse(given).to_json() == {**DEFAULT, **given}
    assert parse({"spatialIndexes": [{"path": "/p/?"}]}).to_json()["spatialIndexes"][0]["types"]


def test_mode_none() -> None:
    policy = parse({"indexingMode": "None", "automatic": False})
    assert policy.to_json() == {"indexingMode": "none", "automatic": False, "includedPaths": [], "excludedPaths": []}
    assert policy.terms({"id": "x"}, 1).terms == []
    assert not policy.is_indexed("/id")
    assert not policy.applies("Include")
    everything = parse({"indexingMode": "none", "includedPaths": [], "excludedPaths": [{"path": "/*"}]})
    assert everything.to_json()["excludedPaths"] == [{"path": "/*"}]
    refused_policy({"indexingMode": "none"}, "time to live", has_ttl=True)
    refused_policy({"indexingMode": "none", "includedPaths": [{"path": "/*"}]}, "includedPaths")
    refused_policy({"indexingMode": "none", "compositeIndexes": [[{"path": "/a"}, {"path": "/b"}]]}, "compositeIndexes")
    assert parse(paths([], ["/*"]), has_ttl=True)


def test_directives() -> None:
    manual = parse({"automatic": False})
    assert [parse().applies(directive) for directive in ("Default", "Include", "Exclude")] == [True, True, False]
    assert [manual.applies(directive) for directive in ("Default", "Include", "Exclude")] == [False, True, False]


def test_vector_paths_are_excluded() -> None:
    vectors = {
        "vectorEmbeddings": [{"path": "/v", "dataType": "float32", "dimensions": 3, "distanceFunction": "cosine"}]
    }
    given = {"vectorIndexes": [{"path": "/v", "type": "flat"}]}
    policy = parse(given, vector_policy=vectors)
    assert policy.to_json()["vectorIndexes"] == given["vectorIndexes"]
    assert {"path": "/v/*"} in policy.to_json()["excludedPaths"]
    assert terms(policy, {"id": "x", "v": [0.1, 0.2, 0.3]}) == pairs(("/id", "x"))
    named = parse(paths(["/*", "/v/*"], []), vector_policy=vectors)
    assert {"path": "/v/*"} not in named.to_json()["excludedPaths"]
    refused_policy(given, "The Vector Indexing Policy's path::/v not matching in Embedding's path.")
    refused_policy({"vectorIndexes": given["vectorIndexes"] * 2}, "twice", vector_policy=vectors)
    refused_policy({"fullTextIndexes": [{"path": "/t"}]}, "Full Text Policy")
    text = {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/t"}]}
    assert parse({"fullTextIndexes": [{"path": "/t"}]}, fulltext_policy=text).to_json()["fullTextIndexes"]
    assert parse({"fullTextIndexes": [], "vectorIndexes": []}).to_json()["fullTextIndexes"] == []


# What is refused.


def test_root_in_exactly_one_set() -> None:
    refused_policy(paths(["/a/?"], []), ROOT_MISSING)
    refused_policy(paths([], []), ROOT_MISSING)
    refused_policy({"includedPaths": []}, ROOT_MISSING)
    refused_policy(paths(["/*"], ["/*"]), "both included and excluded")
    refused_policy(paths(["/"], ["/*"]), "both included and excluded")
    refused_policy(paths(["/*", "/a/?"], ['/"a"/?']), "both included and excluded")
    refused_policy(paths(["/*", "/"], []), "twice")
    assert parse(paths(["/a/?"], ["/*"]))
    assert parse({"excludedPaths": [{"path": "/a/*"}]}).to_json()["includedPaths"] == [{"path": "/*"}]


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ("a/?", 0),
        ("", 0),
        ("/a", 2),
        ("/a/", 3),
        ("/a-b/?", 2),
        ("/a b/?", 2),
        ("//?", 1),
        ("/?", 1),
        ("/*/a", 1),
        ("/a/*/b", 3),
        ("/a/?/b", 3),
        ('/"a/?', 1),
        ('/a"b"/?', 2),
        ("/[]/a/?", 1),
        ("/a/[]", 5),
        ("/a/[0]/?", 3),
        ("/a/{b, c}/?", 3),
        ("/a/[]/{}/?", 6),
        ("/a/[]/{b/?}/?", 6),
        ("/a/[]/{/b, c}/?", 6),
        ("/a/[]/{b, *}/?", 6),
        ("/a/[]/{b, b}/?", 6),
        ("/a/[]/{b, c}/*", 13),
        ("/a/[]/{b, c}", 12),
        ("/a/[]/b/[]/{c, d}/?", 11),
    ],
)
def test_malformed_paths(path: str, position: int) -> None:
    message = refused_policy(paths(["/*", path], []))
    assert f"'{path}' could not be accepted, failed near position '{position}'." in message
    assert "Common errors include invalid characters or absence of quotes around labels." in message


@pytest.mark.parametrize(
    "given",
    [
        1,
        [],
        "x",
        {"mode": "consistent"},
        {"indexingMode": "lazy"},
        {"indexingMode": "fast"},
        {"indexingMode": 1},
        {"automatic": "true"},
        {"includedPaths": {}},
        {"includedPaths": ["/*"]},
        {"includedPaths": [{}]},
        {"includedPaths": [{"path": 1}]},
        {"includedPaths": [{"path": "/*", "other": 1}]},
        {"includedPaths": [{"path": "/*", "indexes": {}}]},
        {"includedPaths": [{"path": "/*", "indexes": [{"kind": "Tree"}]}]},
        {"includedPaths": [{"path": "/*", "indexes": [{"kind": "Range", "dataType": "Date"}]}]},
        {"includedPaths": [{"path": "/*", "indexes": [{"kind": "Range", "precision": "high"}]}]},
        {"excludedPaths": [{"path": "/a/?", "indexes": []}]},
        {"excludedPaths": [{"path": "/a/[]/{b, c}/?"}]},
        {"compositeIndexes": {}},
        {"compositeIndexes": [{}]},
        {"compositeIndexes": [[{"path": "/a"}]]},
        {"compositeIndexes": [[{"path": f"/p{i}"} for i in range(9)]]},
        {"compositeIndexes": [[{"path": "/a"}, {"path": "/a"}]]},
        {"compositeIndexes": [[{"path": "/a"}, {"path": "/b/*"}]]},
        {"compositeIndexes": [[{"path": "/a"}, {"path": "/b/?"}]]},
        {"compositeIndexes": [[{"path": "/a"}, {"path": "/"}]]},
        {"compositeIndexes": [[{"path": "/a"}, {"path": "/b", "order": "up"}]]},
        {"compositeIndexes": [[{"path": "/a"}, {"path": 5}]]},
        {"compositeIndexes": [[{"path": "/a/[]/x"}, {"path": "/b/[]/y"}]]},
        {"compositeIndexes": [[{"path": "/a"}, {"path": "/b"}]] * 2},
        {"compositeIndexes": [[{"path": f"/p{i}"}, {"path": f"/q{i}"}] for i in range(51)]},
        {"spatialIndexes": [{"path": "/*"}]},
        {"spatialIndexes": [{"path": "/a"}]},
        {"spatialIndexes": [{"path": "/a/*", "types": []}]},
        {"spatialIndexes": [{"path": "/a/*", "types": ["Circle"]}]},
        {"spatialIndexes": [{"path": "/a/*", "types": "Point"}]},
        {"spatialIndexes": [{"path": "/a/*", "boundingBox": {}}]},
        {"spatialIndexes": [{"path": "/a/*"}, {"path": "/a/*"}]},
        paths(["/*"], [f"/p{i}/?" for i in range(1501)]),
    ],
)
def test_wrong_policies(given: Any) -> None:
    refused_policy(given)


def test_bounding_boxes_belong_to_geometry() -> None:
    box = {"xmin": 0, "ymin": 0, "xmax": 10, "ymax": 10.5}
    spatial = {"spatialIndexes": [{"path": "/a/*", "types": ["Polygon"], "boundingBox": box}]}
    assert parse(spatial, geospatial="Geometry").to_json()["spatialIndexes"] == spatial["spatialIndexes"]
    assert parse(spatial).to_json()["spatialIndexes"] == spatial["spatialIndexes"]
    refused_policy(spatial, "boundingBox", geospatial="Geography")
    refused_policy(spatial, "Geography", geospatial="Geography")
    refused_policy({"spatialIndexes": [{"path": "/a/*"}]}, "boundingBox", geospatial="Geometry")
    refused_policy({"spatialIndexes": [{"path": "/a/*", "boundingBox": box | {"xmax": 0}}]}, geospatial="Geometry")
    refused_policy({"spatialIndexes": [{"path": "/a/*", "boundingBox": box | {"xmax": "1"}}]}, geospatial="Geometry")


def test_as_many_paths_as_allowed() -> None:
    assert parse(paths(["/*"], [f"/p{i}/?" for i in range(1500)]))
    assert parse({"compositeIndexes": [[{"path": f"/p{i}"}, {"path": f"/q{i}"}] for i in range(50)]})


# Terms.


def test_default_terms() -> None:
    document = {"id": "x", "pk": 1, "a": {"b": None, "c": [1, 1, "x", [True], {"d": 2.5}]}, "e": [], "_etag": "no"}
    found = parse().terms(document, 17)
    scalars = pairs(("/_ts", 17), ("/id", "x"), ("/pk", 1), ("/a/b", None), ("/a/c/[]", 1), ("/a/c/[]", "x"))
    scalars |= pairs(("/a/c/[]/[]", True), ("/a/c/[]/d", 2.5))
    marks = {("/a", OBJECT_MARK), ("/a/c", ARRAY_MARK), ("/e", ARRAY_MARK)}
    marks |= {("/a/c/[]", ARRAY_MARK), ("/a/c/[]", OBJECT_MARK)}
    assert set(found.terms) == scalars | marks
    assert found.charged == 7 == count_charged(found.terms)


def test_published_charge_of_ten_terms() -> None:
    document = {"id": "x", "pk": "p", **{f"p{i}": i for i in range(8)}}
    assert charges.create_ru(1024, parse().terms(document, 1).charged) == pytest.approx(7.0)
    changed = {**document, "p0": "new", "p1": "new"}
    before, after = set(parse().terms(document, 1).terms), set(parse().terms(changed, 2).terms)
    assert count_charged(before ^ after) == 4  # _ts changed too, and is free


def test_system_properties_make_no_difference() -> None:
    policy = parse({"compositeIndexes": [[{"path": "/a"}, {"path": "/_ts"}]]})
    sent = {"id": "x", "a": 1}
    stored = {**sent, "_rid": "r", "_self": "s", "_etag": "e", "_attachments": "a", "_ts": 17, "_lsn": 4}
    assert terms(policy, sent) == terms(policy, stored)
    assert ("(/a asc,/_ts asc)", encode_term(1) + encode_term(17)) in terms(policy, sent)
    assert policy.is_indexed("/_ts")
    assert not any(policy.is_indexed(f"/{name}") for name in ("_rid", "_self", "_etag", "_attachments", "_lsn"))


def test_odd_property_names() -> None:
    document = {"id": "x", "a/b": 1, 'q"': 2, "[]": [3], "": 4, "\\": 5, "é 😀": 6, "(/a asc)": 7, "?": 8, "*": 9}
    expected = pairs(
        ("/id", "x"), ('/"a/b"', 1), ('/"q\\""', 2), ('/"[]"/[]', 3), ("/", 4), ("/\\", 5), ("/é 😀", 6),
        ('/"(/a asc)"', 7), ("/?", 8), ("/*", 9),
    ) | {('/"[]"', ARRAY_MARK)}  # fmt: skip
    assert terms(parse(), document) == expected
    for path, _ in expected:
        assert path_text(text_steps(path)) == path
        assert parse().is_indexed(path)


def test_always_indexed() -> None:
    key = PartitionKeyDefinition(("/tenant/id", "/user"), "MultiHash")
    policy = parse(paths([], ["/*", "/id/?", "/tenant/*", "/user/?"]), key=key)
    document = {"id": "x", "tenant": {"id": 1, "name": "n"}, "user": "u", "other": {"deep": [1, 2]}}
    assert terms(policy, document) == pairs(("/id", "x"), ("/tenant/id", 1), ("/user", "u"))
    assert policy.is_indexed("/tenant/id")
    assert not policy.is_indexed("/tenant")
    assert not policy.is_indexed("/tenant/name")


def test_precedence() -> None:
    policy = parse(
        paths(
            ["/*", "/food/ingredients/nutrition/*", "/x/?", "/list/[]/?", "/list/[]/deep/?"],
            ["/food/ingredients/*", "/x/*", "/y/?", "/list/*", "/y/z/*"],
        )
    )
    for path, is_indexed in {
        "/food": True,
        "/food/ingredients": False,
        "/food/ingredients/salt": False,
        "/food/ingredients/nutrition": True,
        "/food/ingredients/nutrition/fat/kind": True,
        "/x": True,
        "/x/y": False,
        "/y": False,
        "/y/a": True,
        "/y/z": False,
        "/y/z/w": False,
        "/list": False,
        "/list/[]": True,
        "/list/[]/other": False,
        "/list/[]/deep": True,
        "/list/[]/[]": False,
        '/"[]"': True,
    }.items():
        assert policy.is_indexed(path) is is_indexed, path
    document = {"id": "i", "x": {"y": 1}, "y": {"a": 2, "z": 3}, "list": [1, {"deep": 4, "other": 5}]}
    assert terms(policy, document) >= pairs(("/y/a", 2), ("/list/[]", 1), ("/list/[]/deep", 4))
    assert not terms(policy, document) & pairs(("/x/y", 1), ("/y/z", 3), ("/list/[]/other", 5))


def test_explicit_paths_have_undefined() -> None:
    policy = parse(paths(["/*", "/a/?", "/b/[]/c/?", "/d/*"], []))
    nothing = policy.terms({"id": "x"}, 17)
    undefined = pairs(("/a", UNDEFINED), ("/b/[]/c", UNDEFINED), ("/d", UNDEFINED))
    assert set(nothing.terms) == pairs(("/id", "x"), ("/_ts", 17)) | undefined
    assert nothing.charged == 1
    full = terms(policy, {"id": "x", "a": {"z": 1}, "b": [{}, {"c": None}], "d": 1})
    assert not full & undefined
    assert policy.has_undefined("/a")
    assert not policy.has_undefined("/id")


def test_long_values_and_paths_stay_small() -> None:
    policy = parse()
    found = policy.terms({"id": "x", "a": "y" * 1_000_000, "n" * 3000: {"b": 1}}, 1)
    assert max(len(term) for _, term in found.terms) <= limits.TERM_BYTES_MAX
    assert max(len(path) for path, _ in found.terms) <= limits.INDEX_PATH_CHARACTERS_MAX
    assert not policy.is_indexed("/" + "n" * 3000)
    assert not policy.is_indexed("/" + "n" * 3000 + "/b")


def test_the_memory_of_paths_is_bounded() -> None:
    policy = parse()
    for i in range(40):
        found = policy.terms({"id": "x", **{f"{i}-{j}-{'n' * 100}": j for j in range(1000)}}, 1)
        assert found.charged == 1001
        assert policy._walk._memo_bytes < limits.INDEX_MEMO_BYTES_MAX + 1_000_000
    huge = {"id": "x", **{f"{j}-{'n' * 100}": j for j in range(15_000)}}
    assert policy.terms(huge, 1) == policy.terms(huge, 1)


def test_composites() -> None:
    policy = parse(
        {
            "compositeIndexes": [
                [{"path": "/a", "order": "ascending"}, {"path": "/b/c", "order": "descending"}],
                [{"path": "/n"}, {"path": "/list/[]/x"}, {"path": "/list/[]/y", "order": "descending"}],
            ]
        }
    )
    found = policy.terms({"id": "i", "a": 1, "b": {"c": "z"}, "list": [{"x": 1}, {"x": 2, "y": 3}, 4, {"x": 1}]}, 1)
    first = [term for path, term in found.terms if path == "(/a asc,/b/c desc)"]
    assert first == [encode_term(1) + bytes(255 - byte for byte in encode_term("z"))]
    assert len([path for path, _ in found.terms if path == "(/n asc,/list/[]/x asc,/list/[]/y desc)"]) == 3
    # id, a, b/c; in the list x=1, x=2, y=3 and 4; one composite entry, and three of the list
    assert found.charged == 7 + 4
    assert len([path for path, _ in policy.terms({"id": "i"}, 1).terms if path.startswith("(")]) == 2


def test_composites_sort_as_their_parts() -> None:
    seed = 7
    print("seed", seed)
    dice = random.Random(seed)
    policy = parse({"compositeIndexes": [[{"path": "/a"}, {"path": "/b", "order": "descending"}, {"path": "/c"}]]})
    scalars: list[Any] = [UNDEFINED, None, False, True, -1, 0, 1.5, 10, "", "a", "a\x00", "a\x01b", "b", "é", "😀"]

    def order(document: dict[str, Any]) -> bytes:
        clean = {name: value for name, value in document.items() if value is not UNDEFINED}
        return next(term for path, term in policy.terms({"id": "i", **clean}, 1).terms if path.startswith("("))

    for _ in range(2000):
        left = {name: dice.choice(scalars) for name in "abc"}
        right = {name: dice.choice(scalars) for name in "abc"}
        expected = compare(left["a"], right["a"]) or -compare(left["b"], right["b"]) or compare(left["c"], right["c"])
        assert (order(left) > order(right)) - (order(left) < order(right)) == expected


def test_shapes_are_charged() -> None:
    policy = parse({"spatialIndexes": [{"path": "/loc/*", "types": ["Point"]}]})
    plain = policy.terms({"id": "i", "loc": {"type": "Polygon", "coordinates": [1, 2]}}, 1).charged
    assert policy.terms({"id": "i", "loc": {"type": "Point", "coordinates": [1, 2]}}, 1).charged == plain + 4
    assert policy.terms({"id": "i", "loc": {"type": ["Point"]}}, 1).charged == 2


def test_tuple_paths_are_kept() -> None:
    given = paths(["/events/[]/{name, category/kind}/?"], ["/*"])
    policy = parse(given)
    assert policy.to_json()["includedPaths"] == given["includedPaths"]
    assert not policy.is_indexed("/events/[]/name")
    assert parse_index_path("/a/[]/{b, c/d}/?", allows_tuple=True).members == (("b",), ("c", "d"))


def test_tuples_have_terms_together() -> None:
    policy = parse(paths(["/events/[]/{name, category/kind}/?"], ["/*"]), key=None)
    events = [{"name": "a", "category": {"kind": 1}}, {"name": "b"}, {"other": 1}, 7, {"name": "b"}]
    found = policy.terms({"id": "i", "events": events}, 1)
    assert {pair for pair in found.terms if pair[0].startswith("tuple:")} == {
        ("tuple:/events/[]/{name, category/kind}", encode_term("a") + encode_term(1)),
        ("tuple:/events/[]/{name, category/kind}", encode_term("b") + encode_term(UNDEFINED)),
    }
    assert found.charged == 1 + 2
    assert policy.terms({"id": "i", "events": []}, 1).charged == policy.terms({"id": "i"}, 1).charged == 1


def test_quoted_paths() -> None:
    policy = parse(paths(['/"a-b"/?', '/"le/vel"/"q\\"uote"/*', "/'single'/?"], ["/*"]))
    document = {"id": "i", "a-b": 1, "le/vel": {'q"uote': {"deep": 2}}, "single": 3, "other": 4}
    expected = pairs(("/id", "i"), ("/a-b", 1), ('/"le/vel"/"q\\"uote"/deep', 2), ("/single", 3))
    assert terms(policy, document) == expected | {('/"le/vel"/"q\\"uote"', OBJECT_MARK)}


def test_depth() -> None:
    tower: Any = 1
    for level in range(127):
        tower = {"n": tower} if level % 2 else [tower]
    assert len(parse().terms({"id": "x", "t": tower}, 1).terms) == 2 + 128


# A naive reading of the rules, and fuzz.


def naive(included: list[str], excluded: list[str], steps: tuple[str | None, ...]) -> bool:
    best, verdict = (-1, 0), False
    for listed, is_included in ((included, True), (excluded, False)):
        for text in listed:
            path = parse_index_path(text)
            depth = len(path.steps)
            if path.steps == steps[:depth] and (path.ending == "*" or depth == len(steps)):
                rank = (depth, 1 if path.ending == "?" else 0)
                if rank > best:
                    best, verdict = rank, is_included
    return verdict


def test_precedence_against_the_naive_reading() -> None:
    seed = 31
    print("seed", seed)
    dice = random.Random(seed)
    steps: list[str | None] = ["a", "b", None]

    def some_steps(most: int) -> tuple[str | None, ...]:
        return ("a" if dice.random() < 0.5 else "b", *dice.choices(steps, k=dice.randrange(most)))

    for _ in range(600):
        every = list({path_text(some_steps(3)) + dice.choice(["/?", "/*"]) for _ in range(dice.randrange(1, 7))})
        cut = dice.randrange(len(every) + 1)
        included, excluded = every[:cut], every[cut:]
        (included if dice.random() < 0.5 else excluded).append("/*")
        policy = parse(paths(included, excluded), key=None)
        for _ in range(20):
            probe = some_steps(5)
            assert policy.is_indexed(path_text(probe)) is naive(included, excluded, probe), (included, excluded, probe)


def test_fuzz_policies(amount: Amount) -> None:
    seed = 1_234
    print("seed", seed)
    dice = random.Random(seed)
    good = {
        **DEFAULT,
        **paths(["/*", "/a/?", "/b/[]/{c, d}/?"], ['/"x y"/*']),
        "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b/[]/c", "order": "descending"}]],
        "spatialIndexes": [{"path": "/loc/*", "types": ["Point"]}],
    }
    odd: list[Any] = [
        None,
        True,
        -1,
        1.5,
        "",
        "/",
        "/*",
        "/a",
        "/a/?",
        "/a/*",
        '/"',
        "/{a}",
        "none",
        "lazy",
        [],
        {},
        [[]],
    ]
    pieces = ["/", "a", '"', "*", "?", "[]", "{", "}", ",", "\\", "é", " ", "_", "'", "/?", "/*"]
    document = {"id": "i", "a": [1, {"b": 2}], "b": [{"c": 1, "d": 2}], "loc": {"type": "Point"}, "x y": {"z": 1}}

    def change(node: Any) -> Any:
        if dice.random() < 0.03:
            return dice.choice(odd)
        if type(node) is dict:
            changed = {name: change(value) for name, value in node.items() if dice.random() > 0.015}
            if dice.random() < 0.02:
                changed["unknown"] = 1
            return changed
        if type(node) is list:
            return [change(value) for value in node]
        if type(node) is str and dice.random() < 0.06:
            return "".join(dice.choices(pieces, k=dice.randrange(6)))
        return node

    accepted = 0
    for _ in range(amount(20_000)):
        given = change(copy.deepcopy(good))
        try:
            policy = IndexingPolicy.parse(given, key_definition=KEY, has_ttl=dice.random() < 0.3)
        except Failure as failure:
            assert failure.kind is Kind.BAD_REQUEST  # noqa: PT017
        else:
            accepted += 1
            again = IndexingPolicy.parse(policy.to_json(), key_definition=KEY, has_ttl=False)
            assert again.to_json() == policy.to_json()
            assert again.terms(document, 1).charged == policy.terms(document, 1).charged
    assert accepted > amount(1_000)

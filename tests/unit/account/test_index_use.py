"""Which indexes a query is said to use, and which to lack."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.account.queries.index_use import IndexUse, index_use
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.query.access.access_path import Index

COMPOSITE = [{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]
SOME = {"includedPaths": [{"path": "/a/?"}, {"path": "/tags/*"}], "excludedPaths": [{"path": "/*"}]}


def use(text: str, policy: dict[str, Any] | None = None, *, is_complete: bool = True) -> IndexUse:
    parsed = IndexingPolicy.parse(policy, key_definition=None, has_ttl=False)
    return index_use(compile_query(text).bind({}).selection, Index(parsed, is_complete))


@pytest.mark.parametrize(
    ("text", "used", "possible"),
    [
        ("SELECT * FROM c", (), ()),
        ("SELECT * FROM c WHERE c.a = 1", ("/a",), ()),
        ("SELECT * FROM c WHERE c.a = 1 OR c.a > 7", ("/a",), ()),
        ("SELECT * FROM c WHERE c.b > 1 AND c.a IN (1, 2)", ("/a",), ("/b",)),
        ("SELECT * FROM c WHERE IS_DEFINED(c.x.y)", (), ("/x/y",)),
        ("SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, 'red')", ("/tags/[]",), ()),
        ("SELECT * FROM c WHERE c.a = undefined", (), ()),
        ("SELECT * FROM c ORDER BY c.a", ("/a",), ()),
        ("SELECT * FROM c WHERE c.a + 1 = 2", (), ()),
    ],
)
def test_single_indexes(text: str, used: tuple[str, ...], possible: tuple[str, ...]) -> None:
    assert use(text, SOME)[:2] == (used, possible)


def test_spatial_indexes() -> None:
    text = "SELECT * FROM c WHERE ST_DISTANCE({}, {{'type': 'Point', 'coordinates': [1, 2]}}) < 5 AND c.a = 1"
    policy = {**SOME, "spatialIndexes": [{"path": "/at/*", "types": ["Point"]}]}
    found = use(text.format("c.at"), policy)
    assert (found.used, found.used_spatial, found.possible_spatial) == (("/a",), ("/at",), ())
    assert use(text.format("c.there"), policy)[4:] == ((), ("/there",))
    assert use(text.format("c.at"), policy, is_complete=False)[4:] == ((), ("/at",))


def test_an_index_that_is_being_made_is_not_used_yet() -> None:
    assert use("SELECT * FROM c WHERE c.a = 1", is_complete=False)[:2] == ((), ("/a",))


def test_the_key_that_a_request_gives_counts_as_used() -> None:
    policy = IndexingPolicy.parse({"indexingMode": "none", "automatic": False}, key_definition=None, has_ttl=False)
    selection = compile_query("SELECT * FROM c WHERE c.pk = 1 AND c.a = 1").bind({}).selection
    assert index_use(selection, Index(policy), ["/pk"])[:2] == (("/pk",), ("/a",))


@pytest.mark.parametrize("order", ["c.a, c.b DESC", "c.a DESC, c.b"])
def test_a_composite_index_serves_its_order_and_the_opposite(order: str) -> None:
    found = use(f"SELECT * FROM c ORDER BY {order}", {"compositeIndexes": [COMPOSITE]})
    assert found.used_composites == ((("/a", False), ("/b", True)),)
    assert found.possible_composites == ()


@pytest.mark.parametrize(
    "text",
    [
        "WHERE c.a = 1 AND c.b = 2",
        "WHERE c.b > 2 AND c.a = 1",
        "WHERE c.a = 1 ORDER BY c.b",
        "WHERE c.a = 1 ORDER BY c.b DESC",
    ],
)
def test_a_composite_index_serves_filters(text: str) -> None:
    found = use(f"SELECT * FROM c {text}", {"compositeIndexes": [COMPOSITE]})
    assert found.used_composites == ((("/a", False), ("/b", True)),)
    assert use(f"SELECT * FROM c {text}", {"compositeIndexes": [COMPOSITE]}, is_complete=False).used_composites == ()


@pytest.mark.parametrize(
    "text", ["WHERE c.a = 1", "WHERE c.a > 1 AND c.b = 2", "WHERE c.a = 1 OR c.b = 2", "WHERE c.b = 1 ORDER BY c.a"]
)
def test_a_composite_index_does_not_serve(text: str) -> None:
    assert use(f"SELECT * FROM c {text}", {"compositeIndexes": [COMPOSITE]}).used_composites == ()


@pytest.mark.parametrize(
    ("text", "is_used"),
    [
        ("WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.name = 'a' AND t.kind.of = 1)", True),
        ("JOIN t IN c.tags WHERE t.kind.of = 1 AND t.name = 'a' AND c.a = 1", True),
        # Not said of one element.
        ("JOIN t IN c.tags JOIN u IN c.tags WHERE t.name = 'a' AND u.kind.of = 1", False),
        ("WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.name = 'a')", False),
    ],
)
def test_tuple_indexes(text: str, is_used: bool) -> None:
    policy = {"includedPaths": [{"path": "/tags/[]/{name, kind/of}/?"}], "excludedPaths": [{"path": "/*"}]}
    assert ("/tags/[]/{name, kind/of}" in use(f"SELECT VALUE 1 FROM c {text}", policy).used) is is_used


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("WHERE c.a = 1", ()),
        ("WHERE c.a = 1 AND c.x = 2", ((("/a", False), ("/x", False)),)),
        ("WHERE c.a > 1 AND c.b = 2", ((("/b", False), ("/a", False)),)),
        ("WHERE c.a > 1 AND c.b > 2", ()),
        ("WHERE c.a = 1 OR c.b = 2", ()),
        ("WHERE c.a = 1 ORDER BY c.x DESC", ((("/a", False), ("/x", True)),)),
        ("WHERE c.a = 1 ORDER BY c.a", ()),
        ("WHERE c.x > 1 ORDER BY c.x", ()),
        ("WHERE c.a = 1 AND ARRAY_CONTAINS(c.tags, 'red')", ()),
        # What the policy has.
        ("WHERE c.a = 1 AND c.b = 2", ()),
        ("WHERE c.a = 1 ORDER BY c.b DESC", ()),
        ("WHERE c.a = 1 ORDER BY c.b", ()),
    ],
)
def test_composite_indexes_that_are_missing(text: str, possible: tuple[Any, ...]) -> None:
    assert use(f"SELECT * FROM c {text}", {"compositeIndexes": [COMPOSITE]}).possible_composites == possible

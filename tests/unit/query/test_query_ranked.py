"""Ranked queries in one partition: their order is that of scores computed one by one, however they are cut, whatever is
kept in between, and also when a client puts it together from statistics and components.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.limits import WithLimits
from support.shelf import KEY, Shelf

from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.query.access.access_path import WHOLE, Index
from armillary.query.execution import Execution
from armillary.query.page import Page
from armillary.query.selection import Selection

SEED = 5
POLICY = IndexingPolicy.parse(None, key_definition=KEY, has_ttl=False)
WORDS = ["comet", "sphere", "armillary", "brass", "bicycle", "painted", "sky"]
QUERY_VECTOR = [0.3, -0.2, 0.9]


def make_items(dice: random.Random, count: int) -> list[dict[str, Any]]:
    items = []
    for number in range(count):
        item: dict[str, Any] = {"id": str(number), "pk": dice.choice("ab"), "n": dice.randrange(4)}
        for name in ("title", "text"):
            if dice.random() < 0.8:
                item[name] = dice.choice([" ".join(dice.choices(WORDS, k=dice.randrange(1, 9))), "", 5])
        if dice.random() < 0.8:
            item["v"] = dice.choice([[dice.uniform(-1, 1) for _ in range(3)], [1, 2], "v", [0.5, 0.5, 0.5]])
        items.append(item)
    return items


# Scores and ranks once more, as plainly as they are written down.


def bm25(items: list[dict[str, Any]], name: str, terms: list[str]) -> list[float | None]:
    texts = [item[name].split() if isinstance(item.get(name), str) else None for item in items]
    average = sum(len(text) for text in texts if text is not None) / len(items)
    scores: list[float | None] = []
    for text in texts:
        if text is None:
            scores.append(None)
            continue
        score = 0.0
        for term in terms:
            holding = sum(term in other for other in texts if other is not None)
            rarity = math.log(1 + (len(items) - holding + 0.5) / (holding + 0.5))
            often = text.count(term)
            score += rarity * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(text) / average))
        scores.append(score)
    return scores


def likeness(items: list[dict[str, Any]], function: str) -> list[float | None]:
    scores: list[float | None] = []
    for item in items:
        vector = item.get("v")
        if not isinstance(vector, list) or len(vector) != 3:
            scores.append(None)
            continue
        dot = sum(one * other for one, other in zip(vector, QUERY_VECTOR, strict=True))
        if function == "cosine":
            scores.append(dot / math.hypot(*vector) / math.hypot(*QUERY_VECTOR))
        else:
            scores.append(dot if function == "dotproduct" else -math.dist(vector, QUERY_VECTOR))
    return scores


def lowest(score: float | None) -> float:
    return -math.inf if score is None else round(score, 9)


def fusion(components: list[list[float | None]], weights: list[float]) -> list[float | None]:
    totals = [0.0] * len(components[0])
    for scores, weight in zip(components, weights, strict=True):
        keys = [-math.inf if score is None else lowest(score) * (1 if weight > 0 else -1) for score in scores]
        distinct = sorted(set(keys), reverse=True)
        for at, key in enumerate(keys):
            totals[at] += abs(weight) / (61 + distinct.index(key))
    return list(totals)


def best_first(items: list[dict[str, Any]], scores: list[float | None]) -> list[str]:
    order = sorted(range(len(items)), key=lambda at: -lowest(scores[at]))
    return [items[at]["id"] for at in order]


Expected = Callable[[list[dict[str, Any]]], list[float | None]]
ORDERS: dict[str, Expected] = {
    "VectorDistance(c.v, @v)": lambda items: likeness(items, "cosine"),
    "VectorDistance(@v, c.v, true, {distanceFunction: 'Euclidean'})": lambda items: likeness(items, "euclidean"),
    "RANK VectorDistance(c.v, @v, false, {distanceFunction: 'dotproduct'})": lambda items: likeness(
        items, "dotproduct"
    ),
    "RANK FullTextScore(c.text, 'comet')": lambda items: bm25(items, "text", ["comet"]),
    "RANK FullTextScore(c[@name], 'comet', 'brass')": lambda items: bm25(items, "text", ["comet", "brass"]),
    "RANK FullTextScore(c.text, ['sky', @term])": lambda items: bm25(items, "text", ["sky", "sphere"]),
    "RANK FullTextScore(c.text, 'nowhere')": lambda items: bm25(items, "text", ["nowhere"]),
    "RANK RRF(FullTextScore(c.title, 'comet'), FullTextScore(c.text, 'brass', 'sky'))": lambda items: fusion(
        [bm25(items, "title", ["comet"]), bm25(items, "text", ["brass", "sky"])], [1, 1]
    ),
    "RANK RRF(FullTextScore(c.title, 'comet'), VectorDistance(c.v, @v), [2, 0.5])": lambda items: fusion(
        [bm25(items, "title", ["comet"]), likeness(items, "cosine")], [2, 0.5]
    ),
    "RANK RRF(VectorDistance(c.v, @v), FullTextScore(c.title, 'comet'), @weights)": lambda items: fusion(
        [likeness(items, "cosine"), bm25(items, "title", ["comet"])], [1, -1]
    ),
}
PARAMETERS = {"@v": QUERY_VECTOR, "@term": "sphere", "@name": "text", "@weights": [1, -1]}


def given(text: str) -> dict[str, Any]:
    return {name: value for name, value in PARAMETERS.items() if name in compile_query(text).parameters}


async def in_slices(shelf: Shelf, selection: Selection) -> tuple[list[Any], list[Page]]:
    """The rows of a query whose time is up at every look at the clock."""
    execution = Execution(selection, scope=WHOLE, index=Index(shelf.policy))
    pages: list[Page] = []
    for _ in range(1_000):
        pages.append(await shelf.execute(execution, max_items=1, is_due=lambda: True))
        if pages[-1].position is None:
            return [orjson.loads(row) for page in pages for row in page.rows], pages
    raise AssertionError("it never ends")


@pytest.mark.parametrize("order", ORDERS)
async def test_the_best_come_first(order: str) -> None:
    dice = random.Random(f"{SEED} {order}")
    items = make_items(dice, 150)
    shelf = Shelf(POLICY)
    await shelf.put(items)
    scores = ORDERS[order](items)
    ids = best_first(items, scores)
    if "Euclidean" in order:  # ascending, so that those without a distance come first
        unscored = {item["id"] for item, score in zip(items, scores, strict=True) if score is None}
        ids = [each for each in ids if each in unscored] + [each for each in ids if each not in unscored]
    numbers = {item["id"]: item["n"] for item in items}
    wanted = [each for each in ids if numbers[each] == 1]
    for text, expected in {
        f"SELECT VALUE c.id FROM c ORDER BY {order}": ids,
        f"SELECT TOP 7 VALUE c.id FROM c ORDER BY {order}": ids[:7],
        f"SELECT VALUE c.id FROM c ORDER BY {order} OFFSET 5 LIMIT 9": ids[5:14],
        f"SELECT TOP 0 VALUE c.id FROM c ORDER BY {order}": [],
        f"SELECT VALUE c.id FROM c WHERE c.n = 1 ORDER BY {order}": None,
    }.items():
        bound = compile_query(text).bind(given(text))
        rows, _ = await in_slices(shelf, bound.selection)
        if expected is None and "RRF" not in order:
            expected = wanted
        if expected is not None:
            assert rows == expected, text
        assert rows == bound.evaluate_over(items) == bound.evaluate_over(items), text
        assert await shelf.all_rows(text, given(text)) == rows, "the same at once as in slices"


async def test_filtered_items_count_in_the_scores_but_not_in_the_ranks() -> None:
    items = make_items(random.Random(SEED), 120)
    shelf = Shelf(POLICY)
    await shelf.put(items)
    titles, texts = bm25(items, "title", ["comet"]), bm25(items, "text", ["sky"])
    kept = [at for at, item in enumerate(items) if item["n"] == 1]
    totals = fusion([[titles[at] for at in kept], [texts[at] for at in kept]], [1, 1])
    text = (
        "SELECT VALUE c.id FROM c WHERE c.n = 1 "
        "ORDER BY RANK RRF(FullTextScore(c.title, 'comet'), FullTextScore(c.text, 'sky'))"
    )
    assert await shelf.all_rows(text) == best_first([items[at] for at in kept], totals)


@pytest.mark.parametrize("terms", [["comet"], ["brass", "sky"]])
async def test_a_client_finds_the_same_scores(terms: list[str]) -> None:
    """What a client does over several partitions: statistics first, then a query that has them written into it."""
    items = make_items(random.Random(SEED), 100)
    shelf = Shelf(POLICY)
    await shelf.put(items)
    hits = ", ".join([f"COUNTIF(FullTextContains(c.text, '{term}'))" for term in terms])
    (row,) = await shelf.all_rows(
        'SELECT COUNT(1) AS documentCount, [{"totalWordCount": SUM(_FullTextWordCount(c.text)), '
        f'"hitCounts": [{hits}]}}] AS fullTextStatistics FROM c'
    )
    (counts,) = row["fullTextStatistics"]
    assert row["documentCount"] == 100
    assert all(type(number) is int for number in [counts["totalWordCount"], *counts["hitCounts"]])
    listed = orjson.dumps(terms).decode()
    direct = await shelf.all_rows(f"SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, {listed})")
    for given_counts in (f"{counts['totalWordCount']}, {counts['hitCounts']}", orjson.dumps(counts).decode()):
        score = f"_FullTextScore(c.text, {listed}, {row['documentCount']}, {given_counts})"
        rows = await shelf.all_rows(
            f'SELECT TOP 120 c.id, [{{"item": {score}}}] AS orderByItems, {{"payload": c, "componentScores": '
            f"[({score} ?? -1)]}} AS payload FROM c WHERE (true) ORDER BY {score} DESC",
        )
        scores = dict(zip([item["id"] for item in items], bm25(items, "text", terms), strict=True))
        assert {each["id"] for each in rows} == set(direct)
        assert [scores[each["id"]] for each in rows] == [scores[each] for each in direct]
        for each in rows:
            expected = scores[each["id"]]
            assert each["orderByItems"] == ([{}] if expected is None else [{"item": pytest.approx(expected)}])
            assert each["payload"]["componentScores"] == [pytest.approx(-1 if expected is None else expected)]


async def test_sources_and_rows_of_other_shapes() -> None:
    items: list[dict[str, Any]] = [
        {"id": "1", "pk": "a", "in": {"v": [1, 0], "t": "comet"}, "tags": ["x", "y"]},
        {"id": "2", "pk": "a", "in": {"v": [0, 1], "t": "comet comet"}, "tags": ["x"]},
        {"id": "3", "pk": "a", "in": {"v": [1, 1]}, "tags": ["z"], "name": "three"},
        {"id": "4", "pk": "a", "tags": ["z"]},
    ]
    shelf = Shelf(POLICY)
    await shelf.put(items)
    for text, expected in {
        'SELECT VALUE i.v FROM c["in"] i ORDER BY VectorDistance(i.v, [0, 1])': [[0, 1], [1, 1], [1, 0]],
        'SELECT TOP 3 VALUE t FROM c JOIN t IN c.tags ORDER BY VectorDistance(c["in"].v, [1, 0.1])': ["x", "y", "z"],
        'SELECT TOP 2 VALUE c.name FROM c ORDER BY VectorDistance(c["in"].v, [1, 0.1])': ["three"],
        'SELECT DISTINCT VALUE c.tags[0] FROM c ORDER BY VectorDistance(c["in"].v, [1, 0.1])': ["x", "z"],
        'SELECT VALUE i.t FROM c["in"] i ORDER BY RANK FullTextScore(i.t, "comet")': ["comet comet", "comet"],
        'SELECT TOP 1 c.id FROM c ORDER BY RANK FullTextScore(c["in"].t, {"term": "comit", "distance": 1})': [
            {"id": "2"}
        ],
    }.items():
        assert await shelf.all_rows(text) == expected, text


async def test_memory_is_bounded(with_limits: WithLimits) -> None:
    """With TOP, many more items are ranked than may be held, unless the score of each depends on all the others."""
    dice = random.Random(SEED)
    items: list[dict[str, Any]] = [
        {"id": str(number), "pk": "a", "v": [1.0, dice.random()], "t": "comet" if number % 500 == 7 else "sky"}
        for number in range(3_000)
    ]
    shelf = Shelf(POLICY)
    await shelf.put(items)
    with_limits(QUERY_SORTED_MAX=1_030)
    nearest = sorted(items, key=lambda item: item["v"][1])
    rows = await shelf.all_rows("SELECT TOP 5 VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0])")
    assert rows == [item["id"] for item in nearest[:5]]
    rows = await shelf.all_rows("SELECT TOP 9 VALUE c.id FROM c ORDER BY RANK FullTextScore(c.t, 'comet')")
    assert rows == ["7", "507", "1007", "1507", "2007", "2507", "0", "1", "2"]
    rows = await shelf.all_rows(
        "SELECT TOP 7 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'comet'), FullTextScore(c.t, 'sun'))"
    )
    assert rows == ["7", "507", "1007", "1507", "2007", "2507", "0"]
    for text in (
        "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0])",
        "SELECT TOP 5 c.id FROM c ORDER BY RANK RRF(VectorDistance(c.v, [1, 0]), FullTextScore(c.t, 'comet'))",
    ):
        with pytest.raises(Failure, match="1030 items"):
            await shelf.all_rows(text)


async def test_the_charge_is_the_same_however_it_is_cut() -> None:
    items = make_items(random.Random(SEED), 200)
    shelf = Shelf(POLICY)
    await shelf.put(items)
    text = "SELECT TOP 3 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'comet')"
    whole, _ = await shelf.page(text)
    _, pages = await in_slices(shelf, compile_query(text).bind({}).selection)
    assert len(pages) > 3
    assert whole.counters.items_loaded == sum(page.counters.items_loaded for page in pages) == 200
    assert whole.counters.bytes_loaded == sum(page.counters.bytes_loaded for page in pages)
    assert whole.counters.sorted_rows == sum(page.counters.sorted_rows for page in pages) == 3
    assert whole.counters.items_missed == sum(page.counters.items_missed for page in pages) == 197

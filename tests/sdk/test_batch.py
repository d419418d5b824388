"""Transactional batches: all or nothing, in order, seen by none before the end."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosBatchOperationError
from sdk.clients import everything, refused, user_part


async def test_every_operation(container: Any) -> None:
    await container.create_item({"id": "old", "pk": "a", "n": 1})
    await container.create_item({"id": "gone", "pk": "a"})
    answers = await container.execute_item_batch(
        [
            ("create", ({"id": "new", "pk": "a"},)),
            ("upsert", ({"id": "upserted", "pk": "a"},)),
            ("read", ("new",)),
            ("replace", ("old", {"id": "old", "pk": "a", "n": 2})),
            ("patch", ("old", [{"op": "incr", "path": "/n", "value": 5}])),
            ("delete", ("gone",)),
            ("upsert", ({"id": "old", "pk": "a", "n": 9},)),
        ],
        "a",
    )
    assert [each["statusCode"] for each in answers] == [201, 201, 200, 200, 200, 204, 200]
    assert user_part(answers[2]["resourceBody"]) == {"id": "new", "pk": "a"}
    assert answers[4]["resourceBody"]["n"] == 7
    assert answers[0]["eTag"] == answers[0]["resourceBody"]["_etag"]
    assert all(each["requestCharge"] >= 1 for each in answers)
    headers = answers.get_response_headers()
    assert float(headers["x-ms-request-charge"]) == pytest.approx(sum(each["requestCharge"] for each in answers))
    left = {each["id"]: each for each in await everything(container.read_all_items())}
    assert sorted(left) == ["new", "old", "upserted"]
    assert left["old"]["n"] == 9
    assert left["new"] == answers[0]["resourceBody"]


@pytest.mark.parametrize(
    ("guilty", "status"),
    [
        (("create", ({"id": "there", "pk": "a"},)), 409),
        (("replace", ("missing", {"id": "missing", "pk": "a"})), 404),
        (("delete", ("missing",)), 404),
        (("read", ("missing",)), 404),
        (("patch", ("there", [{"op": "remove", "path": "/missing"}])), 400),
        (("replace", ("there", {"id": "there", "pk": "a"}), {"if_match_etag": '"no"'}), 412),
        (
            ("patch", ("there", [{"op": "set", "path": "/n", "value": 1}]), {"filter_predicate": "from c where c.n=9"}),
            412,
        ),
        (("create", ({"id": "x", "pk": "b"},)), 400),
        (("create", ({"id": "first", "pk": "a"},)), 409),
    ],
)
async def test_one_failure_undoes_all(container: Any, guilty: Any, status: int) -> None:
    there = await container.create_item({"id": "there", "pk": "a", "n": 1})
    operations = [
        ("create", ({"id": "first", "pk": "a"},)),
        guilty,
        ("upsert", ({"id": "last", "pk": "a"},)),
    ]
    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch(deepcopy(operations), "a")  # the client takes its options out of them
    assert caught.value.error_index == 1
    answers = caught.value.operation_responses
    assert [each["statusCode"] for each in answers] == [424, status, 424]
    assert all("resourceBody" not in each for each in answers)
    assert await everything(container.read_all_items()) == [there]


async def test_a_hundred_and_not_more(container: Any) -> None:
    operations = [("create", ({"id": str(n), "pk": "a"},)) for n in range(100)]
    answers = await container.execute_item_batch(operations, "a")
    assert [each["statusCode"] for each in answers] == [201] * 100
    assert len(await everything(container.read_all_items())) == 100
    with refused(400, text="Batch request has more operations than what is supported"):
        await container.execute_item_batch([("read", ("1",))] * 101, "a")
    with refused(400, text="Batch request has no operations"):
        await container.execute_item_batch([], "a")


async def test_two_megabytes_and_not_more(container: Any) -> None:
    with refused(413):
        await container.execute_item_batch(
            [("create", ({"id": str(n), "pk": "a", "text": "x" * 800_000},)) for n in range(3)], "a"
        )
    assert await everything(container.read_all_items()) == []


async def test_etags_inside(container: Any) -> None:
    created = await container.create_item({"id": "1", "pk": "a", "n": 1})
    answers = await container.execute_item_batch(
        [
            ("replace", ("1", {"id": "1", "pk": "a", "n": 2}), {"if_match_etag": created["_etag"]}),
            ("read", ("1",), {"if_none_match_etag": '"other"'}),
        ],
        "a",
    )
    assert [each["statusCode"] for each in answers] == [200, 200]
    etag = answers[0]["eTag"]
    answers = await container.execute_item_batch([("read", ("1",), {"if_none_match_etag": etag})], "a")
    assert answers[0]["statusCode"] == 304
    answers = await container.execute_item_batch([("delete", ("1",), {"if_match_etag": etag})], "a")
    assert answers[0]["statusCode"] == 204


async def test_conditions_are_judged_after_the_operations_before(container: Any) -> None:
    """As the client's own tests want it of filters: a patch finds what an upsert of the same batch made. Its sample
    document_management.py replaces an item and then again under the etag of before, and prints that this failed."""
    created = await container.create_item({"id": "1", "pk": "a", "n": 1})
    replace = ("replace", ("1", {"id": "1", "pk": "a", "n": 2}))
    with pytest.raises(CosmosBatchOperationError) as caught:
        await container.execute_item_batch([replace, (*replace, {"if_match_etag": created["_etag"]})], "a")
    assert caught.value.error_index == 1
    assert [each["statusCode"] for each in caught.value.operation_responses] == [424, 412]
    upsert = ("upsert", ({"id": "2", "pk": "a", "n": 1},))
    patch = ("patch", ("2", [{"op": "incr", "path": "/n", "value": 1}]), {"filter_predicate": "from c where c.n = 1"})
    answers = await container.execute_item_batch([upsert, patch], "a")
    assert [each["statusCode"] for each in answers] == [201, 200]


async def test_unknown_operations_are_refused(container: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017 - the client itself, or the server
        await container.execute_item_batch([("rename", ("1",))], "a")
    assert await everything(container.read_all_items()) == []

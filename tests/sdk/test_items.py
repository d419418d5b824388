"""Single items: their life, what is stored exactly, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos.documents import IndexingDirective
from sdk.clients import everything, refused, user_part

MB = 1024 * 1024


async def test_life(container: Any) -> None:
    created = await container.create_item({"id": "1", "pk": "a", "n": 1})
    assert user_part(created) == {"id": "1", "pk": "a", "n": 1}
    assert created["_attachments"] == "attachments/"
    container_link = (await container.read())["_self"]
    assert created["_self"] == f"{container_link}docs/{created['_rid']}/"
    assert created.get_response_headers()["etag"] == created["_etag"]
    assert await container.read_item("1", "a") == created
    with refused(409, text="(Conflict)"):
        await container.create_item({"id": "1", "pk": "a"})
    replaced = await container.replace_item("1", {"id": "1", "pk": "a", "m": 2})
    assert user_part(replaced) == {"id": "1", "pk": "a", "m": 2}
    assert replaced["_rid"] == created["_rid"]
    assert replaced["_etag"] != created["_etag"]
    assert user_part(await container.upsert_item({"id": "1", "pk": "a", "k": 3})) == {"id": "1", "pk": "a", "k": 3}
    assert user_part(await container.upsert_item({"id": "2", "pk": "a"})) == {"id": "2", "pk": "a"}
    await container.delete_item("1", "a")
    with refused(404, text="(NotFound)"):
        await container.read_item("1", "a")
    with refused(404):
        await container.delete_item("1", "a")
    with refused(404):
        await container.replace_item("1", {"id": "1", "pk": "a"})
    assert (await container.create_item({"id": "1", "pk": "a"}))["_rid"] != created["_rid"]


async def test_the_status_of_an_upsert_tells_what_it_did(container: Any) -> None:
    bodies = []
    for number in (1, 2):
        bodies.append(await container.upsert_item({"id": "1", "pk": "a", "n": number}))
    assert bodies[0]["_rid"] == bodies[1]["_rid"]
    assert len(await everything(container.read_all_items())) == 1


@pytest.mark.parametrize(
    "item_id",
    [
        "a b",
        "!@$%^&*()-~`'_[]{}|;:,.<>",
        "Grüße",
        "数据",
        "😀🎉",
        "%20",
        "50%",
        "+",
        "a=b&c=d",
        "'quoted'",
        '"double"',
        "x" * 1023,
        "é" * 511,
        "\u0001",
        "e\u0301",
        "ZbcA==",
        " leading",
    ],
)
async def test_ids_of_any_form(container: Any, item_id: str) -> None:
    await container.create_item({"id": item_id, "pk": item_id[:50]})
    assert (await container.read_item(item_id, item_id[:50]))["id"] == item_id
    replaced = await container.replace_item(item_id, {"id": item_id, "pk": item_id[:50], "n": 2})
    assert replaced["n"] == 2
    query = "SELECT * FROM c WHERE c.id = @id"
    found = await everything(container.query_items(query, parameters=[{"name": "@id", "value": item_id}]))
    assert [each["id"] for each in found] == [item_id]
    await container.delete_item(item_id, item_id[:50])
    assert await everything(container.read_all_items()) == []


@pytest.mark.parametrize("item_id", ["x" * 1024, "é" * 512, "a/b", "a\\b", "a#b", "", 5, None])
async def test_ids_that_no_item_has(container: Any, item_id: Any) -> None:
    with pytest.raises(Exception) as caught:
        await container.create_item({"id": item_id, "pk": "a"})
    assert getattr(caught.value, "status_code", 400) == 400
    assert await everything(container.read_all_items()) == []


async def test_an_id_is_needed(container: Any) -> None:
    with refused(400):
        await container.create_item({"pk": "a"})
    made = await container.create_item({"pk": "a"}, enable_automatic_id_generation=True)
    assert await container.read_item(made["id"], "a") == made


async def test_values_come_back_exactly(container: Any) -> None:
    document: dict[str, Any] = {
        "id": "1",
        "pk": "a",
        "z": 1,
        "a": [1, -1, 0, 2**53 - 1, -(2**53) + 1, 0.1, 1e300, 5e-324, -0.5, 1.5],
        "flags": [True, False, None],
        "texts": ["", "é", "你好", "😀", "\u0000", '\n\t"\\', "\u2028", "e\u0301"],
        "nested": {"b": {"c": [{"d": []}, {}]}, "": "empty name", "ü": 1},
    }
    await container.create_item(document)
    read = await container.read_item("1", "a")
    assert user_part(read) == document
    assert [name for name in read if not name.startswith("_")] == list(document)
    assert [type(each) for each in read["a"]] == [type(each) for each in document["a"]]


async def test_system_properties_of_the_body_do_not_count(container: Any) -> None:
    created = await container.create_item(
        {"id": "1", "pk": "a", "_rid": "x", "_self": "x", "_etag": "x", "_ts": 1, "_attachments": "x"}
    )
    assert created["_rid"] != "x"
    assert created["_ts"] > 1
    assert created["_attachments"] == "attachments/"
    # A body read earlier is written again: its old _etag is not a precondition.
    await container.upsert_item({**created, "n": 1})
    assert (await container.replace_item("1", {**created, "n": 2}))["n"] == 2


async def test_replacing_may_rename(container: Any) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})
    await container.create_item({"id": "taken", "pk": "a"})
    renamed = await container.replace_item("1", {"id": "2", "pk": "a"})
    assert renamed["_rid"] == created["_rid"]
    assert await container.read_item("2", "a") == renamed
    with refused(404):
        await container.read_item("1", "a")
    with refused(409):
        await container.replace_item("2", {"id": "taken", "pk": "a"})
    assert await container.read_item("2", "a") == renamed


async def test_an_item_cannot_change_its_partition(container: Any) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})
    with refused(404):
        await container.replace_item("1", {"id": "1", "pk": "b"})
    assert await container.read_item("1", "a") == created


async def test_two_megabytes_and_not_more(container: Any) -> None:
    largest = await container.create_item({"id": "1", "pk": "a", "text": "x" * (2 * MB - 1024)})
    assert len((await container.read_item("1", "a"))["text"]) == 2 * MB - 1024
    for operation in (container.create_item, container.upsert_item):
        with refused(413, text="(RequestEntityTooLarge)"):
            await operation({"id": "2", "pk": "a", "text": "x" * (2 * MB)})
    with refused(413):
        await container.replace_item("1", {"id": "1", "pk": "a", "text": "x" * (2 * MB)})
    with refused(413):  # two bytes each
        await container.create_item({"id": "2", "pk": "a", "text": "é" * MB})
    with refused(413):
        await container.patch_item("1", "a", [{"op": "add", "path": "/more", "value": "x" * 2048}])
    assert [each["_etag"] for each in await everything(container.read_all_items())] == [largest["_etag"]]


async def test_as_deep_as_128_levels(container: Any) -> None:
    def deep(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    await container.create_item({"id": "1", "pk": "a", "deep": deep(127)})
    assert (await container.read_item("1", "a"))["deep"] == deep(127)
    with refused(400):
        await container.create_item({"id": "2", "pk": "a", "deep": deep(129)})
    with refused(404):
        await container.read_item("2", "a")


async def test_rids_grow(container: Any) -> None:
    created = [await container.create_item({"id": str(n), "pk": "a"}) for n in (3, 1, 2)]
    listed = await everything(container.read_all_items())
    assert [each["id"] for each in listed] == ["3", "1", "2"]
    assert [each["_rid"] for each in listed] == [each["_rid"] for each in created]


async def test_no_body_when_none_is_wanted(container: Any) -> None:
    created = await container.create_item({"id": "1", "pk": "a"}, no_response=True)
    assert created == {}
    assert created.get_response_headers()["etag"]
    assert await container.upsert_item({"id": "1", "pk": "a", "n": 1}, no_response=True) == {}
    assert await container.replace_item("1", {"id": "1", "pk": "a", "n": 2}, no_response=True) == {}
    operations = [{"op": "incr", "path": "/n", "value": 1}]
    assert await container.patch_item("1", "a", operations, no_response=True) == {}
    assert (await container.read_item("1", "a"))["n"] == 3


async def test_indexing_directive(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a", "n": 1}, indexing_directive=IndexingDirective.Exclude)
    await container.create_item({"id": "2", "pk": "a", "n": 1})
    assert (await container.read_item("1", "a"))["id"] == "1"
    found = await everything(container.query_items("SELECT * FROM c WHERE c.n = 1"))
    assert [each["id"] for each in found] == ["2"]


async def test_delete_all_of_one_partition_key(container: Any) -> None:
    for number in range(120):
        await container.create_item({"id": str(number), "pk": "a"}, no_response=True)
    await container.create_item({"id": "1", "pk": "b"})
    await container.create_item({"id": "1", "pk": None})
    await container.create_item({"id": "1"})
    await container.delete_all_items_by_partition_key("a")
    left = await everything(container.read_all_items())
    assert len(left) == 3
    with refused(404):
        await container.read_item("1", "a")
    await container.delete_all_items_by_partition_key(None)
    assert sorted("pk" in each for each in await everything(container.read_all_items())) == [False, True]
    await container.create_item({"id": "1", "pk": "a"})


async def test_hints_are_checked(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a"}, priority="Low", throughput_bucket=1)
    assert (await container.read_item("1", "a", priority="High", throughput_bucket=5))["id"] == "1"
    with refused(400):
        await container.read_item("1", "a", priority="Medium")
    with refused(400):
        await container.read_item("1", "a", throughput_bucket=6)
    with refused(400):
        await container.create_item({"id": "2", "pk": "a"}, priority="Medium")
    assert len(await everything(container.read_all_items())) == 1

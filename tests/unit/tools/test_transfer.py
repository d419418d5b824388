"""Sources, sinks and transforms of `armillary import` and `armillary export`, without a server: what goes into a file
comes out of it again, from wherever a run was interrupted."""

from __future__ import annotations

import codecs
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from bson import BSON, Decimal128, Int64, ObjectId
from bson.datetime_ms import DatetimeMS
from pyarrow import parquet

from armillary.errors import Failure, Kind
from armillary.tools.transfer.checkpoint import Checkpoint
from armillary.tools.transfer.pipeline import BadRows, Pipeline
from armillary.tools.transfer.places import Reading, sink_of, source_of
from armillary.tools.transfer.rows import BadRow, Page, Row, Written
from armillary.tools.transfer.transforms import Transforms

ITEMS: list[dict[str, Any]] = [
    {
        "id": str(number),
        "text": ["plain", "007", "", "true", "12", 'a "quoted", one', "line\nend", '{"a"'][number % 8],
        "number": number * 1.5,
        "whole": number,
        "flag": number % 3 == 0,
        "nothing": None,
        "inside": {"deep": [1, "two", None]},
    }
    for number in range(2500)
]


async def read_all(place: Path, how: Reading, position: Any = None) -> list[Page]:
    source = source_of(str(place), how)
    try:
        return [page async for page in source.pages(position)]
    finally:
        await source.close()


def documents(pages: list[Page]) -> list[dict[str, Any]]:
    return [row.document for page in pages for row in page.rows if isinstance(row, Row)]


def bad_of(pages: list[Page]) -> list[BadRow]:
    return [row for page in pages for row in page.rows if isinstance(row, BadRow)]


async def write_all(place: Path, how: Reading, *, cut_at: int | None = None) -> None:
    """`cut_at`: rows after which the writer dies, having remembered its place, with some more written."""
    rows = [Row(number, dict(item)) for number, item in enumerate(ITEMS, 1)]
    sink = sink_of(str(place), how)
    await sink.open(None)
    if cut_at is not None:
        await sink.write(rows[:cut_at])
        position = json.loads(json.dumps(sink.position()))
        await sink.write(rows[cut_at : cut_at + 100])
        await sink.close(is_complete=False)
        sink = sink_of(str(place), how)
        await sink.open(position)
    await sink.write(rows[cut_at or 0 :])
    await sink.close(is_complete=True)


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "bson", "bson.gz", "parquet"])
async def test_what_is_written_is_read_again(tmp_path: Path, ending: str) -> None:
    place = tmp_path / f"items.{ending}"
    await write_all(place, Reading())
    pages = await read_all(place, Reading())
    assert not bad_of(pages)
    expected = ITEMS
    if ending == "parquet":  # a column without a value is no property, one without a type holds JSON
        inside = '{"deep":[1,"two",null]}'
        expected = [{name: value for name, value in item.items() if value is not None} for item in ITEMS]
        expected = [item | {"inside": inside} for item in expected]
    assert documents(pages) == expected
    assert pages[-1].share == 1.0


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "bson", "bson.gz", "parquet"])
async def test_reading_goes_on_from_every_place(tmp_path: Path, ending: str) -> None:
    place = tmp_path / f"items.{ending}"
    await write_all(place, Reading())
    pages = await read_all(place, Reading())
    numbers = [row.number for page in pages for row in page.rows]
    assert len(pages) > 1 and numbers == sorted(set(numbers))
    for count in range(1, len(pages)):
        position = json.loads(json.dumps(pages[count - 1].position))
        rest = await read_all(place, Reading(), position)
        assert documents(pages[:count]) + documents(rest) == documents(pages)
        assert [row.number for page in rest for row in page.rows] == numbers[len(documents(pages[:count])) :]


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "bson"])
async def test_large_rows_make_small_pages(tmp_path: Path, ending: str) -> None:
    """A page is held in memory: a thousand rows of a megabyte would be a gigabyte."""
    place = tmp_path / f"items.{ending}"
    rows = [Row(number, {"id": f"{number}", "text": "x" * 300_000}) for number in range(1, 21)]
    sink = sink_of(str(place), Reading())
    await sink.open(None)
    await sink.write(rows)
    await sink.close(is_complete=True)
    pages = await read_all(place, Reading())
    assert documents(pages) == [row.document for row in rows]
    assert max(len(page.rows) for page in pages) == 7


@pytest.mark.parametrize("ending", ["csv", "parquet"])
async def test_rows_of_many_columns_make_small_pages(tmp_path: Path, ending: str) -> None:
    place = tmp_path / f"items.{ending}"
    rows = [Row(number, {"id": f"{number}", **{f"c{n}": n for n in range(1_000)}}) for number in range(1, 151)]
    sink = sink_of(str(place), Reading())
    await sink.open(None)
    await sink.write(rows)
    await sink.close(is_complete=True)
    pages = await read_all(place, Reading())
    assert documents(pages) == [row.document for row in rows]
    assert max(len(page.rows) for page in pages) <= 131


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "bson"])
async def test_writing_goes_on_where_it_was_safe(tmp_path: Path, ending: str) -> None:
    whole, cut = tmp_path / f"whole.{ending}", tmp_path / f"cut.{ending}"
    await write_all(whole, Reading())
    await write_all(cut, Reading(), cut_at=1100)
    assert cut.read_bytes() == whole.read_bytes()


async def test_compressed_lines(tmp_path: Path) -> None:
    place = tmp_path / "items.jsonl.gz"
    place.write_bytes(gzip.compress(b"\n".join(json.dumps(item).encode() for item in ITEMS)))
    assert documents(await read_all(place, Reading())) == ITEMS
    with pytest.raises(Failure):
        sink_of(str(place), Reading())


async def test_files_that_begin_with_a_mark_of_byte_order(tmp_path: Path) -> None:
    for name, text in (("a.jsonl", '{"id":"1"}\r\n'), ("a.json", '[{"id":"1"}]'), ("a.csv", "id\r\n1\r\n")):
        (tmp_path / name).write_bytes(codecs.BOM_UTF8 + text.encode())
        assert documents(await read_all(tmp_path / name, Reading())) == [{"id": "1"}]


@pytest.mark.parametrize("ending", ["jsonl.gz", "bson.gz", "csv.gz"])
async def test_what_is_damaged_is_said(tmp_path: Path, ending: str) -> None:
    whole = gzip.compress(b'{"id":"1"}\n' * 1000)
    for name, content in (("cut", whole[:-12]), ("other", b"this is not compressed"), ("wrong", whole[:30] + whole)):
        place = tmp_path / f"{name}.{ending}"
        place.write_bytes(content)
        checkpoint = Checkpoint(tmp_path / "state", {}, is_restart=True)
        sink, source = sink_of(str(tmp_path / "out.json"), Reading()), source_of(str(place), Reading())
        bad_rows = BadRows(tmp_path / "bad", 0)
        pipeline = Pipeline(source, sink, Transforms(), checkpoint, bad_rows, pages_at_once=1)
        with pytest.raises(Failure, match=r"damaged|broken|cannot be read") as caught:
            await pipeline.run()
        assert "\n" not in caught.value.message


async def test_a_full_disk_is_said() -> None:
    sink = sink_of("/dev/full", Reading(format="jsonl"))
    await sink.open(None)
    with pytest.raises(Failure, match="/dev/full cannot be written: No space left"):
        await sink.write([Row(1, {"id": "1", "text": "x" * 100_000})])
    await sink.close(is_complete=False)
    await sink.open(None)
    await sink.write([Row(1, {"id": "1"})])  # which waits to be written with more
    with pytest.raises(Failure, match="No space left"):
        await sink.close(is_complete=True)


async def test_moments_of_parquet(tmp_path: Path) -> None:
    place = tmp_path / "t.parquet"
    nanoseconds = pyarrow.array([1577840523456789123], pyarrow.int64()).cast(pyarrow.timestamp("ns"))
    inside = pyarrow.StructArray.from_arrays([nanoseconds], ["at"])
    lists = pyarrow.ListArray.from_arrays([0, 1], inside)
    parquet.write_table(pyarrow.table({"id": ["1"], "at": nanoseconds, "in": inside, "all": lists}), place)
    moment = "2020-01-01T01:02:03.456789Z"
    assert documents(await read_all(place, Reading())) == [
        {"id": "1", "at": moment, "in": {"at": moment}, "all": [{"at": moment}]}
    ]


async def test_bad_lines_are_numbered(tmp_path: Path) -> None:
    place = tmp_path / "items.jsonl"
    place.write_bytes(b'{"id":"1"}\n\n{"id":\n[2]\n{"id":"5"}\n')
    pages = await read_all(place, Reading())
    assert [(each.number, each.excerpt) for each in bad_of(pages)] == [(3, '{"id":'), (4, "[2]")]
    assert documents(pages) == [{"id": "1"}, {"id": "5"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": "1"}', "not a JSON array"),
        ('[{"id": "1"}, {"id"', "Element 2 of the array"),
        ('[{"id": "1"} {"id": "2"}]', "behind element 1"),
        ('[{"id": NaN}]', "Element 1"),
        ("", "not a JSON array"),
        ("[" * 200_000, "nested too deeply"),
        ('[{"a":' * 200_000, "nested too deeply"),
    ],
)
async def test_broken_arrays(tmp_path: Path, text: str, said: str) -> None:
    place = tmp_path / "items.json"
    place.write_text(text)
    with pytest.raises(Failure, match=said):
        await read_all(place, Reading())


async def test_arrays_with_large_elements_and_others_than_objects(tmp_path: Path) -> None:
    place = tmp_path / "items.json"
    elements = [{"id": "1", "text": "ä" * 1_500_000}, 12345, "x", {"id": "2"}]
    place.write_text(json.dumps(elements, ensure_ascii=False), "utf-8")
    pages = await read_all(place, Reading())
    assert documents(pages) == [elements[0], elements[3]]
    assert [each.number for each in bad_of(pages)] == [2, 3]


async def test_csv_types_and_columns(tmp_path: Path) -> None:
    place = tmp_path / "items.csv"
    place.write_text('id,zip,/address/city,n,flag\r\n1,00123,Ulm,1.50,true\r\n2,99,"a,b",,\r\n3,1\r\n', "utf-8-sig")
    pages = await read_all(place, Reading())
    assert documents(pages) == [
        {"id": "1", "zip": "00123", "address": {"city": "Ulm"}, "n": 1.5, "flag": True},
        {"id": "2", "zip": 99, "address": {"city": "a,b"}},
    ]
    assert bad_of(pages)[0].reason == "It has 2 cells for 5 columns."
    texts = documents(await read_all(place, Reading(is_text=True)))
    assert texts[0] == {"id": "1", "zip": "00123", "address": {"city": "Ulm"}, "n": "1.50", "flag": "true"}


async def test_ids_and_columns_of_csv_that_clash(tmp_path: Path) -> None:
    place = tmp_path / "items.csv"
    place.write_text('id,a,/a/b\n1,5,\n"""2""",,6\n3,5,6\n007,,\n')
    pages = await read_all(place, Reading())
    assert documents(pages) == [{"id": "1", "a": 5}, {"id": "2", "a": {"b": 6}}, {"id": "007"}]
    assert [(each.number, each.reason) for each in bad_of(pages)] == [
        (3, "'a' is no object, so 'a/b' cannot be put into it.")
    ]


async def test_a_dump_of_mongodb(tmp_path: Path) -> None:
    folder = tmp_path / "dump/shop"
    folder.mkdir(parents=True)
    oid = ObjectId()
    found = {
        "_id": oid,
        "when": DatetimeMS(1_500_000_000_123),
        "price": Decimal128("12.50"),
        "precise": Decimal128("0.1234567890123456789"),
        "large": Int64(2**60),
        "bytes": b"\x00\x01",
        "id": 7,
    }
    (folder / "orders.bson").write_bytes(BSON.encode(found) + BSON.encode({"_id": 2}))
    plain = documents(await read_all(tmp_path / "dump", Reading()))
    assert plain == [
        {
            "id": str(oid),
            "when": "2017-07-14T02:40:00.123Z",
            "price": 12.5,
            "precise": "0.1234567890123456789",
            "large": str(2**60),
            "bytes": "AAE=",
            "_id": 7,
        },
        {"id": "2"},
    ]
    exact = documents(await read_all(tmp_path / "dump", Reading(is_exact=True)))
    assert exact[0]["when"] == {"$date": {"$numberLong": "1500000000123"}}
    (folder / "other.bson").write_bytes(b"")
    with pytest.raises(Failure, match=r"orders\.bson, shop/other\.bson"):
        source_of(str(tmp_path / "dump"), Reading())
    (folder / "cut.bson").write_bytes(BSON.encode(found)[:-3])
    with pytest.raises(Failure, match="ends inside document 1"):
        await read_all(folder / "cut.bson", Reading())


def applied(transforms: Transforms, document: dict[str, Any]) -> Any:
    row = transforms.apply(Row(1, document))
    return row.document if isinstance(row, Row) else row.reason


def test_transforms() -> None:
    transforms = Transforms(
        renames=["when=/at/time"],
        types=["/at/time=date", "n=number", "zip=text", "on=bool", "tags=json", "count=integer"],
        synthetic_keys=["/pk={deviceId}-{date}"],
        item_id="{deviceId}/{count}",
        drops=["secret", "/at/zone"],
    )
    assert applied(
        transforms,
        {
            "when": 1_500_000_000,
            "at": {"zone": 1},
            "n": "1e3",
            "zip": 123,
            "on": "yes",
            "tags": "[1]",
            "count": "7",
            "deviceId": "abc-123",
            "date": 2018,
            "secret": 1,
        },
    ) == {
        "at": {"time": "2017-07-14T02:40:00Z"},
        "n": 1000.0,
        "zip": "123",
        "on": True,
        "tags": [1],
        "count": 7,
        "deviceId": "abc-123",
        "date": 2018,
        "pk": "abc-123-2018",
        "id": "abc-123/7",
    }
    missing = applied(transforms, {"deviceId": "a", "count": 1})
    assert missing == "'date' is needed for '{deviceId}-{date}', and is missing or no plain value."
    assert applied(Transforms(types=["n=integer"]), {"n": "1.5"}) == "'n' is '1.5', which is no integer."
    assert applied(Transforms(item_id="key"), {"key": 5}) == {"key": 5, "id": "5"}
    assert applied(Transforms(synthetic_keys=["/a/b={x}"]), {"a": 1, "x": "y"}).startswith("'a' is no object")


@pytest.mark.parametrize(
    "wrong", [{"types": ["n=float"]}, {"renames": ["n"]}, {"item_id": "{"}, {"synthetic_keys": ["/pk={}"]}]
)
def test_wrong_transforms_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Failure) as caught:
        Transforms(**wrong)
    assert caught.value.kind is Kind.BAD_REQUEST


async def test_a_run_that_dies_anywhere_ends_the_same(tmp_path: Path) -> None:
    place = tmp_path / "in.jsonl"
    lines = [json.dumps(item) if number % 100 else "{broken" for number, item in enumerate(ITEMS)]
    place.write_text("\n".join(lines))

    async def run(sink_place: Path, bad: Path, state: Path, pages: int | None) -> None:
        """`pages`: after how many it dies."""
        checkpoint = Checkpoint(state, {"source": "in"}, is_restart=False)
        sink = sink_of(str(sink_place), Reading())
        done = 0

        def progress(totals: object, share: float | None) -> None:
            nonlocal done
            done += 1
            if done == pages:
                raise RuntimeError("dies")
            checkpoint.sink, checkpoint.bad_bytes = sink.position(), bad_rows.synced_bytes()
            checkpoint.save()

        bad_rows = BadRows(bad, checkpoint.bad_bytes)
        source = source_of(str(place), Reading())
        pipeline = Pipeline(source, sink, Transforms(), checkpoint, bad_rows, pages_at_once=4, progress=progress)
        totals = await pipeline.run()
        assert totals.rows == 2475 and totals.bad_rows == 25

    await run(tmp_path / "whole.jsonl", tmp_path / "whole.bad", tmp_path / "whole.state", None)
    page_count = len(await read_all(place, Reading()))
    for pages in range(1, page_count + 1):
        out, bad, state = tmp_path / "out.jsonl", tmp_path / "bad", tmp_path / f"state-{pages}"
        with pytest.raises(RuntimeError):
            await run(out, bad, state, pages)
        await run(out, bad, state, None)
        assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
        assert bad.read_bytes() == (tmp_path / "whole.bad").read_bytes()


async def test_progress_moves_within_a_page(tmp_path: Path) -> None:
    place = tmp_path / "in.jsonl"
    place.write_text("\n".join(json.dumps(item) for item in ITEMS[:100]))

    class Slow:
        """A sink that has written some rows of a page when progress is shown."""

        is_ordered, is_resumable, rows_ahead = False, False, 0

        async def open(self, position: object) -> None: ...

        async def write(self, rows: list[Row]) -> Written:
            for self.rows_ahead in (25, 75, 50):  # the last: rows that are sent again
                pipeline._show()
            self.rows_ahead = 0
            return Written(len(rows), 0.0, [])

        def position(self) -> object: ...

        async def close(self, *, is_complete: bool) -> None: ...

    shown: list[tuple[int, float | None]] = []
    pipeline = Pipeline(
        source_of(str(place), Reading()),
        Slow(),
        Transforms(),
        Checkpoint(tmp_path / "state", {}, is_restart=False),
        BadRows(tmp_path / "bad", 0),
        pages_at_once=4,
        progress=lambda totals, share: shown.append((totals.rows, share)),
    )
    await pipeline.run()
    assert shown == [(25, 0.25), (75, 0.75), (75, 0.5), (100, 1.0)]


def test_states_of_other_runs_are_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = Checkpoint(state, {"source": "a"}, is_restart=False)
    first.source = {"row": 5}
    first.save()
    assert Checkpoint(state, {"source": "a"}, is_restart=False).source == {"row": 5}
    with pytest.raises(Failure, match="its source differs"):
        Checkpoint(state, {"source": "b"}, is_restart=False)
    assert Checkpoint(state, {"source": "b"}, is_restart=True).source is None
    good = json.loads(state.read_text())
    wrong: Any
    for wrong in (
        *({}, [], {**good, "identity": "x"}, {**good, "identity": []}, {**good, "rows": "1"}, {**good, "badBytes": -1}),
        *({**good, "sink": "bytes"}, {**good, "source": 5}, {**good, "format": 99}, {**good, "badRows": True}),
    ):
        state.write_text(json.dumps(wrong))
        with pytest.raises(Failure, match="no state of a run"):
            Checkpoint(state, {"source": "a"}, is_restart=False)


async def test_a_dump_that_is_nested_too_deeply(tmp_path: Path) -> None:
    """A row of it is bad, and the others are read."""
    nested = b"\x05\x00\x00\x00\x00"
    for _ in range(20_000):
        nested = b"\x03a\x00" + nested + b"\x00"
        nested = (len(nested) + 4).to_bytes(4, "little") + nested
    place = tmp_path / "items.bson"
    place.write_bytes(nested + BSON.encode({"_id": "1"}))
    pages = await read_all(place, Reading())
    assert [each.number for each in bad_of(pages)] == [1]
    assert documents(pages) == [{"id": "1"}]


@pytest.mark.parametrize("place", ["items.txt", "cosmos:https://host/onlydb", "table:http://host", "mongodb://host/db"])
def test_places_that_say_too_little_are_refused(place: str) -> None:
    with pytest.raises(Failure) as caught:
        source_of(place, Reading(remote_key="aaaa"))
    assert caught.value.kind is Kind.BAD_REQUEST

"""Reading captures: the documented format, files that are cut off or no captures at all, exports of the cloud's logs,
and captures as workloads."""

from __future__ import annotations

import gzip
import json
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from armillary.errors import Failure
from armillary.insight.capture_workload import workload_text
from armillary.insight.captures import Captured, Head, ValueList, open_capture, read_capture
from armillary.insight.planning.workload import parse_workload

HEAD: dict[str, Any] = {
    "format": "armillary-capture",
    "version": 1,
    "id": "0123456789ab",
    "database": "shop",
    "container": "orders",
    "key": ["/customerId"],
    "partitions": 4,
    "begunAt": "2026-01-31T12:00:00.000+00:00",
    "endedAt": None,
    "state": "stopped",
    "reason": "it was stopped",
    "share": 0.5,
    "values": False,
    "requests": 2,
    "missed": 0,
    "bytes": 100,
}
READ: dict[str, Any] = {
    "t": 12,
    "door": "sql",
    "op": "read",
    "status": 200,
    "ru": 1.0,
    "parts": [3],
    "rows": 1,
    "bytes": 700,
    "key": ["aaaa"],
    "id": "bbbb",
}
QUERY: dict[str, Any] = {
    **{name: READ[name] for name in ("t", "door", "status", "ru", "rows", "bytes")},
    "op": "query",
    "parts": [0, 1],
    "run": "cccc",
    "loaded": 5,
    "eq": {"/customerId": "aaaa"},
    "in": {"/state": {"n": 70, "digests": ["dddd"]}},
    "range": ["/when"],
    "order": [["/when", True]],
    "shape": "SELECT * FROM c WHERE ?",
}


def packed(*lines: dict[str, Any]) -> bytes:
    """As a server sends it: the head and the rest are members of their own."""
    text = [json.dumps(line).encode() + b"\n" for line in lines]
    return gzip.compress(text[0], mtime=0) + gzip.compress(b"".join(text[1:]))


def test_the_format() -> None:
    head, records = read_capture(BytesIO(packed(HEAD, READ, QUERY)))
    assert head == Head("shop", "orders", ("/customerId",), 4, HEAD["begunAt"], 0.5, False, 2)
    read, query = records
    assert read == Captured(12, "sql", "read", 200, 0, 1.0, (3,), 1, 700, 0, ("aaaa",), "bbbb")
    assert query.equal == {"/customerId": "aaaa"} and query.lists == {"/state": ValueList(70, ("dddd",))}
    assert (query.ranges, query.order, query.run) == (("/when",), (("/when", True),), "cccc")


def test_files_that_were_cut_off() -> None:
    whole = packed(HEAD, READ, QUERY)
    _, records = read_capture(BytesIO(whole[:-4]))
    assert next(records).operation == "read"
    with pytest.raises(Failure, match="was cut off"):
        list(records)
    stream = BytesIO(gzip.compress(json.dumps(HEAD).encode() + b"\n" + b'{"t":1'))
    with pytest.raises(Failure, match="was cut off"):
        list(read_capture(stream).records)
    assert stream.closed
    _, records = read_capture(BytesIO(whole + b"garbage"))
    with pytest.raises(Failure, match="damaged"):
        list(records)


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (b"", "no capture"),
        (b"plain text", "not gzip"),
        (gzip.compress(b"[]\n", mtime=0), "no capture"),
        (packed({**HEAD, "version": 2}), "version 2; this program reads version 1"),
        (packed({name: value for name, value in HEAD.items() if name != "key"}), "a field is missing"),
        (packed(HEAD, {"t": 1}), "Line 2"),
        (packed(HEAD, {**READ, "parts": 3}), "Line 2"),
        (packed(HEAD, {**QUERY, "in": []}), "Line 2"),
        (gzip.compress(b"x" * 5_000_000, mtime=0), "more than"),
    ],
)
def test_what_is_no_capture(content: bytes, refusal: str) -> None:
    with pytest.raises(Failure, match=refusal):
        list(read_capture(BytesIO(content), "The file").records)


def test_files_are_opened_by_name(tmp_path: Path) -> None:
    file = tmp_path / "capture.gz"
    file.write_bytes(packed(HEAD, READ))
    assert len(list(open_capture(str(file)).records)) == 1
    with pytest.raises(Failure, match="cannot be read"):
        open_capture(str(tmp_path / "none"))


EXPORTS = {
    "requests": (
        "TimeGenerated [UTC],OperationName,StatusCode,RequestCharge,ActivityId,ResponseLength\n"
        '"1/31/2026, 12:00:00.000 PM",Create,201,5.71,a-1,300\n'
        '"1/31/2026, 12:00:01.500 PM",Query,429,0.38,a-2,0\n'
    ),
    "keys": (
        "TimeGenerated,PartitionKey,PartitionKeyRangeId,RequestCharge,OperationName\n"
        '2026-01-31T12:00:00Z,"[""de""]",2,1.0,Read\n'
        '2026-01-31T12:00:02Z,"[""de"",7]",3,2.5,Upsert\n'
    ),
    "queries": (
        "TimeGenerated,QueryText,ActivityId,PartitionKeyRangeId,NumberOfRowsReturned\n"
        '2026-01-31T12:00:00Z,"{""query"":""SELECT * FROM c""}",a,0,3\n'
    ),
}


def exported(tmp_path: Path, text: str) -> str:
    file = tmp_path / "export.csv"
    file.write_text(text, "utf-8-sig")
    return f"azure:{file}"


def test_exports_of_the_cloud(tmp_path: Path) -> None:
    head, records = open_capture(exported(tmp_path, EXPORTS["requests"]))
    create, query = records
    assert head.is_of_cloud and head.begun_at == "2026-01-31T12:00:00.000+00:00"
    assert (create.operation, create.status, create.charge_ru, create.size_bytes) == ("create", 201, 5.71, 300)
    assert (query.t_ms, query.status, query.is_query) == (1500, 429, True)
    first, second = open_capture(exported(tmp_path, EXPORTS["keys"])).records
    assert first.partitions == (2,) and first.key is not None and second.key is not None
    assert first.key == second.key[:1] and list(second.values.values()) == ["de", 7]
    [told] = open_capture(exported(tmp_path, EXPORTS["queries"])).records
    assert told.shape == '{"query":"SELECT * FROM c"}' and told.rows == 3


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "is none of"),
        ("a,b\n1,2\n", "is none of"),
        (EXPORTS["keys"].splitlines()[0] + "\n", "no rows"),
        (EXPORTS["requests"].replace("1/31/2026, 12:00:01.500 PM", "yesterday"), "Line 3 .* no TimeGenerated"),
        (EXPORTS["requests"].replace("429", "many"), "no StatusCode"),
        (EXPORTS["queries"].replace("SELECT", "x" * 1_100_000), "no CSV"),
    ],
)
def test_exports_that_cannot_be_read(tmp_path: Path, text: str, refusal: str) -> None:
    with pytest.raises(Failure, match=refusal):
        list(open_capture(exported(tmp_path, text)).records)


def test_workloads() -> None:
    """Rates are those of all requests, though the capture has half of them; pages of one query are one query."""
    lines = [{**READ, "t": number * 100, "key": [f"k{number % 3}"]} for number in range(100)]
    lines += [{**QUERY, "t": 10_000, "run": str(number // 2)} for number in range(10)]
    writes = [{**READ, "op": "create", "key": ["hot\x7f"], "leaf": {"/id": "1", "/a": "2"}} for _ in range(20)]
    batch = [{**READ, "op": "create", "group": f"g{number // 3}"} for number in range(6)]
    lines += [*writes, *batch, {**READ, "op": "changes"}]
    text = workload_text(read_capture(BytesIO(packed(HEAD, *lines))), {"autoscale": 4_000}, 12_345)
    made = tomllib.loads(text)
    assert made["container"] == {"partition_key": ["/customerId"], "autoscale": 4_000}
    data = {"size": "12345B", "item_bytes": 700, "terms": 2, "keys": {"explicit": {"hot\x7f": 20.0}}}
    assert made["data"] == data
    found = {each["kind"]: each for each in made["operations"]}
    assert (found["read"]["rate"], found["create"]["rate"], found["query"]["rate"]) == (20.0, 4.0, 1.0)
    assert (found["batch"]["rate"], found["batch"]["items"]) == (0.4, 3)
    assert found["read"]["keys"]["explicit"] == {"k0": 34.0, "k1": 33.0, "k2": 33.0}
    assert (found["query"]["filter"], found["query"]["rows"], found["query"]["loaded"]) == (["/customerId"], 2.0, 10.0)
    assert "1 requests of the kind changes" in text
    read = parse_workload(text, lambda name: name)
    assert read.data.size_bytes == 12_345 and [each.kind for each in read.operations] == [*found]
    with pytest.raises(Failure, match="a partition key"):
        workload_text(read_capture(BytesIO(packed({**HEAD, "key": []}, READ))))


def test_many_keys_in_a_workload() -> None:
    lines = [{**READ, "key": [f"k{number}"]} for number in range(1_000)]
    made = tomllib.loads(workload_text(read_capture(BytesIO(packed(HEAD, *lines)))))
    shares = made["operations"][0]["keys"]["explicit"]
    assert len(shares) == 400 and sum(shares.values()) == pytest.approx(1_000)

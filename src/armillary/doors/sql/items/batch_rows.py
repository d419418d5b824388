"""Batches in HybridRow, the form in which .NET sends transactional batches and bulk requests and expects their results:
the two schemas that its client knows, operations as rows to those of the JSON form, and results to rows. The encoding
is in `model/hybrid_row/`.

The schemas are those of `HybridRowBatchSchemas.json` of the .NET client, the numbers of operations those of its
enumeration `OperationType`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import orjson

from armillary import limits, work
from armillary.errors import Failure, Kind, bad_request
from armillary.model.binary_json.binary_reader import decode
from armillary.model.binary_json.type_markers import PREAMBLE
from armillary.model.hybrid_row.record_stream import read_records, write_records
from armillary.model.hybrid_row.rows import VERSION, Column, Layout, Storage, Type, read_row, write_row
from armillary.model.items import parse_json

FIRST_BYTE: Final = bytes([VERSION])  # of a body in HybridRow

OPERATION: Final = Layout(
    2145473648,
    [
        Column("operationType", Type.INT32, Storage.FIXED),
        Column("resourceType", Type.INT32, Storage.FIXED),
        Column("partitionKey", Type.UTF8, Storage.VARIABLE),
        Column("effectivePartitionKey", Type.BINARY, Storage.VARIABLE),
        Column("id", Type.UTF8, Storage.VARIABLE),
        Column("binaryId", Type.BINARY, Storage.VARIABLE),
        Column("resourceBody", Type.BINARY, Storage.VARIABLE),
        Column("indexingDirective", Type.UTF8, Storage.SPARSE),
        Column("ifMatch", Type.UTF8, Storage.SPARSE),
        Column("ifNoneMatch", Type.UTF8, Storage.SPARSE),
        Column("timeToLiveInSeconds", Type.INT32, Storage.SPARSE),
        Column("minimalReturnPreference", Type.BOOLEAN, Storage.SPARSE),
    ],
)
RESULT: Final = Layout(
    2145473649,
    [
        Column("statusCode", Type.INT32, Storage.FIXED),
        Column("subStatusCode", Type.INT32, Storage.FIXED),
        Column("eTag", Type.UTF8, Storage.VARIABLE),
        Column("resourceBody", Type.BINARY, Storage.VARIABLE),
        Column("retryAfterMilliseconds", Type.UINT32, Storage.SPARSE),
        Column("requestCharge", Type.FLOAT64, Storage.SPARSE),
    ],
)
_WORDS: Final = {0: "create", 1: "patch", 2: "read", 4: "delete", 5: "replace", 20: "upsert"}
_DOCUMENT: Final = 2  # the number of items among the types of resources


def read_operations(body: bytes) -> list[dict[str, Any]]:
    """The operations of a batch as its JSON form has them; one more than a batch may have, if it has more."""
    operations = []
    room_bytes = limits.BATCH_BYTES_MAX
    for index, record in enumerate(islice(read_records(body), limits.BATCH_OPERATIONS_MAX + 1)):
        values = read_row(OPERATION, record)
        if values.pop("resourceType", None) != _DOCUMENT:
            raise bad_request(
                f"Operation {index} of the batch is not about an item: its resourceType is not {_DOCUMENT}."
            )
        number = values.get("operationType")
        values["operationType"] = _WORDS.get(number, number) if number is not None else None
        if "resourceBody" in values:
            text = _text(values["resourceBody"])
            room_bytes -= len(text)
            if room_bytes < 0:
                raise Failure(Kind.TOO_LARGE, "Batch request size is too large: the limit is 2 MB of JSON text.")
            values["resourceBody"] = parse_json(text)
        operations.append(values)
    return operations


def _text(body: bytes) -> bytes:
    """The JSON text of an operation's body, which may be binary JSON."""
    work.spend(len(body) // limits.WORK_UNIT_BYTES)
    return orjson.dumps(decode(body)) if body[:1] == bytes([PREAMBLE]) else body


def write_results(results: Iterable[Mapping[str, Any]]) -> bytes:
    return write_records(write_row(RESULT, result) for result in results)

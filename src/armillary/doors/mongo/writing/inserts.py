"""The command insert, and what every new document goes through: its `_id`, the shard key, the validator. Also the
statement ids of retryable writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Any, Final

from bson.objectid import ObjectId
from bson.regex import Regex

from armillary import limits, work
from armillary.account.collections import collection_rules, document_operations
from armillary.account.collections.document_operations import DocumentWrite, RetryRecord, WriteOutcome
from armillary.account.collections.write_pipeline import RecordOf
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands import capped
from armillary.doors.mongo.errors import ends_command, write_error
from armillary.doors.mongo.wire.messages import decode_document
from armillary.doors.mongo.writing.duplicate_key_errors import as_duplicate
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_elements import elements
from armillary.model.bson.bson_values import Document, encode, type_name

_INT32: Final = Struct("<i")
INSERT_FIELDS: Final = frozenset("insert documents ordered bypassDocumentValidation".split())
_DOCUMENT_UNITS: Final = 300
_SMALL_BYTES, _FEW = 16 * limits.KB, 20  # prepared without a greenlet, in about a millisecond


def check_count(count: int) -> None:
    if not 1 <= count <= limits.MONGO_BATCH_OPERATIONS_MAX:
        raise refusal(
            16,
            f"Write batch sizes must be between 1 and {limits.MONGO_BATCH_OPERATIONS_MAX}. Got {count} operations.",
        )


async def insert(call: Call) -> Reply:
    collection = call.collection()
    documents = documents_of(call)
    check_count(len(documents))
    is_ordered = call.fields.flag("ordered", True)
    container = await namespaces.for_writing(call, collection)
    skips = call.fields.flag("bypassDocumentValidation", False)
    check = collection_rules.check_of(container, skips_validation=skips)
    operations: list[DocumentWrite] = []
    places: list[int] = []  # of each operation's document
    errors: list[Document] = []
    retryable = call.retryable
    statements = statement_numbers(call, len(documents))
    known = await retryable.known(container) if retryable is not None else {}

    def prepare() -> None:
        for index, given in enumerate(documents):
            if statements[index] in known:
                continue
            try:
                work.spend(_DOCUMENT_UNITS + len(given) // 8)
                operations.append(inserting(call, container, given, check))
                places.append(index)
            except Failure as failure:
                errors.append(write_error(failure, index))
                if is_ordered:
                    break

    if check is None and len(documents) <= _FEW and sum(map(len, documents)) < _SMALL_BYTES:
        prepare()
    else:
        await work.run(prepare, call.check_work)
    if not is_ordered and len(container.partitions) > 1:
        # Unordered: grouped by partition, so that fewer transactions are needed.
        partition_of = [container.partition_for(each.epk).range.id for each in operations]
        sequence = sorted(range(len(operations)), key=partition_of.__getitem__)
        operations, places = [operations[each] for each in sequence], [places[each] for each in sequence]
    # Change streams must show documents in their order, so one transaction does not mix partitions then.
    is_mixed = is_ordered and len(container.partitions) > 1 and not container.schema.keeps_events
    record_of = None
    if retryable is not None:

        def record_of(run: Sequence[int]) -> RetryRecord:
            numbers = tuple([statements[places[place]] for place in run])
            return retryable.record(numbers, (b"",) * len(numbers))

    outcomes = await write_all(call, container, operations, stops=is_ordered, is_mixed=is_mixed, record_of=record_of)
    retried = [statement for statement in statements if statement in known]
    done = len(retried)
    failed = False
    for place, outcome in enumerate(outcomes):
        if not isinstance(outcome, Failure):
            done += 1
            if document_operations.was_repeated(outcome):
                retried.append(statements[places[place]])
            continue
        document = document_operations.document_of(operations[place])
        if is_ordered and not failed:
            errors.clear()  # an ordered insert ends here: later errors do not count
        failed = True
        errors.append(write_error(as_duplicate(call, container, outcome, document), places[place]))
    reply: Document = {"n": done}
    if errors:
        reply["writeErrors"] = sorted(errors, key=lambda each: each["index"])
    if retried:
        reply["retriedStmtIds"] = retried
    return reply


def statement_numbers(call: Call, count: int) -> list[int]:
    """The statement ids of a retryable write."""
    given = call.body.get("stmtIds")
    most = limits.MONGO_STATEMENT_NUMBER_MAX
    if given is not None:
        numbers = call.fields.array("stmtIds")
        if len(numbers) != count:
            raise refusal(16, f"Number of statement ids must match the number of batch entries. Got {len(numbers)}.")
        if not all(isinstance(each, int) and 0 <= each <= most for each in numbers):
            raise refusal(2, f"Statement ids are whole numbers from 0 to {most}.")
        return [int(each) for each in numbers]
    first = call.fields.number("stmtId", 0, high=most - count)
    return list(range(first, first + count))


def documents_of(call: Call) -> list[bytes]:
    """The documents of an insert, encoded as they came."""
    documents = call.sequences.get("documents")
    if documents is not None:
        return documents
    for index, each in enumerate(call.fields.array("documents")):
        if type(each) is not dict:
            raise refusal(
                14,
                f"BSON field 'insert.documents.{index}' is the wrong type '{type_name(each)}', expected type 'object'",
            )
    return documents_at(call.raw_body, "documents")


def inserting(
    call: Call, container: Container, given: bytes, check: collection_rules.Check | None = None
) -> DocumentWrite:
    document = decode_document(given)
    if next(iter(document), None) != "_id":
        document = {"_id": document["_id"], **document} if "_id" in document else {"_id": new_id(call), **document}
        given = with_id_first(given, encode({"_id": document["_id"]}))
    check_id(document["_id"])
    namespaces.check_shard_key(container, document)
    capped.check_size(container, given)
    if check is not None:
        check(document, None)
    return document_operations.inserting(container, document, given, call.clock)


def new_id(call: Call) -> ObjectId:
    seconds = int(call.clock.now_s()) & 0xFFFFFFFF
    return ObjectId(seconds.to_bytes(4, "big") + call.clock.random_bytes(8))


def check_id(value: Any) -> None:
    if isinstance(value, list):
        raise refusal(53, "The '_id' value cannot be of type array")
    if isinstance(value, Regex):
        raise refusal(53, "The '_id' value cannot be of type regex")
    dollar = _dollar_name(value)
    if dollar is not None:
        raise refusal(52, f"_id fields may not contain '$'-prefixed fields: {dollar} is not valid for storage.")


def _dollar_name(value: Any) -> str | None:
    if type(value) is not dict:
        return None
    for name, below in value.items():
        found = name if name.startswith("$") else _dollar_name(below)
        if found is not None:
            return found
    return None


async def write_all(
    call: Call,
    container: Container,
    operations: list[DocumentWrite],
    *,
    stops: bool,
    is_mixed: bool = False,
    record_of: RecordOf | None = None,
) -> list[WriteOutcome | Failure]:
    """The outcome of each operation, as far as they were run."""
    if call.transaction is None or container.key is None:
        return await _write_run(call, container, operations, stops=stops, is_mixed=is_mixed, record_of=record_of)
    # A transaction has a part for each value of the shard key.
    outcomes: list[WriteOutcome | Failure] = []
    for _, run in groupby(operations, key=attrgetter("key")):
        outcomes += await _write_run(call, container, list(run), stops=stops)
        if stops and isinstance(outcomes[-1], Failure):
            break
    return outcomes


async def _write_run(
    call: Call,
    container: Container,
    operations: list[DocumentWrite],
    *,
    stops: bool,
    is_mixed: bool = False,
    record_of: RecordOf | None = None,
) -> list[WriteOutcome | Failure]:
    if not operations:
        return []
    scoped = await call.scoped(container, operations[0].key)
    try:
        answer = await document_operations.write_many(
            scoped, operations, stops=stops, at_once=call.transaction is None, is_mixed=is_mixed, record_of=record_of
        )
    except Failure as failure:
        if failure.kind is not Kind.THROTTLED:
            raise
        call.spend(failure.charge_ru)
        return [failure]
    call.spend(answer.charge_ru)
    for each in answer.outcomes:
        if isinstance(each, Failure) and ends_command(each):
            raise each
    if call.transaction is not None:
        call.transaction.check(answer.outcomes)
    return answer.outcomes


# BSON documents as bytes: what clients sent is stored as they sent it, without decoding and encoding it again.


def documents_at(document: bytes, field: str) -> list[bytes]:
    """The documents of an array, each as it is."""
    wanted = field.encode()
    for kind, name, begin, end in elements(document):
        if name == wanted and kind == 0x04:
            array = document[begin + 1 + len(name) + 1 : end]
            return [array[first + 2 + len(each) : last] for _, each, first, last in elements(array)]
    return []


def with_id_first(document: bytes, id_document: bytes) -> bytes:
    """The same document with this `_id` at its beginning."""
    pieces = [id_document[4:-1]]
    for _, name, begin, end in elements(document):
        if name != b"_id":
            pieces.append(document[begin:end])
    content = b"".join(pieces)
    return _INT32.pack(len(content) + 5) + content + b"\x00"

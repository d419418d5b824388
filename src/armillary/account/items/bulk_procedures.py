"""The bulk procedures of the service: many inserts, updates or deletes of one physical partition, of any of its logical
partitions, in one transaction. Clients know them by names that begin with `__.sys.`; no script is run for them.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member, check_owner, operation_of
from armillary.account.queries import item_pages
from armillary.account.visits import visits
from armillary.account.visits.page_walk import FeedOptions
from armillary.account.visits.write_visits import WriteMany, Written
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import BoundQuery
from armillary.model.items import parse_document
from armillary.model.keys import Key
from armillary.partition.budget import Ask
from armillary.partition.operations import Document, MemberFailed, Operation, Verb
from armillary.partition.partition import Partition
from armillary.query.recipes import items_of

_CHANGED = (Kind.PRECONDITION_FAILED, Kind.NOT_FOUND)  # another client has written the item since it was read
_TRIES_MAX = 10

Update = Callable[[Document], Document]


@dataclass(slots=True)
class Progress:
    """How much of a list was done, from its beginning. `failure`: of the one behind, if it is why the rest was not."""

    range_id: int
    lsn: int = 0
    count: int = 0
    charge_ru: float = 0.0
    failure: Failure | None = None


@dataclass(slots=True)
class ItemUpdate:
    """A change of one item."""

    item_id: str
    key: Key
    update: Update


async def insert(
    account: Account,
    container: Container,
    range_id: str,
    documents: Sequence[Callable[[], Document]],
    ask: Ask | None,
    *,
    is_upsert: bool,
    stops_at: Collection[Kind],
) -> Progress:
    """Create items, or replace those that exist. A failure of one of the kinds `stops_at` ends the list, and those
    before it are stored; with any other none is stored. `documents` are made one by one: each may be refused."""
    partition = container.partition_by_id(range_id)
    verb = Verb.UPSERT if is_upsert else Verb.CREATE
    operations: list[Operation] = []
    refused: Failure | None = None
    for made in documents[: limits.BULK_PROCEDURE_OPERATIONS_MAX]:
        try:
            document = made()
            operation = operation_of(
                container, Member(verb, document=document), container.key_of(document), account.clock
            )
        except Failure as failure:
            refused = failure
            break
        operations.append(operation)
        await asyncio.sleep(0)  # other requests wait for one item, not for all
    return await _write_until(container, partition, operations, refused, ask, stops_at)


async def update(
    account: Account,
    container: Container,
    range_id: str,
    updates: Sequence[ItemUpdate],
    ask: Ask | None,
    *,
    stops_at: Collection[Kind],
) -> Progress:
    """Change items that exist. Each is read and replaced under its etag, and read again if another client has changed
    it meanwhile."""
    partition = container.partition_by_id(range_id)
    charge_ru = 0.0
    for _ in range(_TRIES_MAX):
        changed = await _changed(account, container, updates[: limits.BULK_PROCEDURE_OPERATIONS_MAX], ask)
        charge_ru += changed.charge_ru
        try:
            done = await _write_until(container, partition, changed.operations, changed.refused, ask, stops_at)
        except Failure as failure:
            charge_ru += failure.charge_ru
            if failure.kind not in _CHANGED:
                raise _charged(failure, charge_ru) from None
            continue
        done.charge_ru += charge_ru
        return done
    raise _charged(Failure(Kind.RETRY_WITH, "The items of the bulk update keep changing. Try again."), charge_ru)


async def delete(
    account: Account, container: Container, range_id: str, condition: BoundQuery, items_max: int, ask: Ask | None
) -> tuple[Progress, bool]:
    """Delete the items of the partition that meet a condition (`compile_condition`); whether none is left. An item that
    another client has changed since it was found is left for the next call."""
    partition = container.partition_by_id(range_id)
    options = FeedOptions(range_id=range_id, page_items=min(items_max, limits.BULK_PROCEDURE_OPERATIONS_MAX), ask=ask)
    page = await item_pages.select(account, container, items_of(condition.selection), b"bulk delete", options)
    operations = []
    for row in page.rows:
        document = parse_document(row)
        own = ItemOptions(if_match=document["_etag"])
        member = Member(Verb.DELETE, document["id"], options=own)
        operations.append(operation_of(container, member, container.key_of(document), account.clock))
    done = Progress(partition.range.id, charge_ru=page.charge_ru)
    is_all = page.continuation is None
    try:
        lost = await _meet_faults(container, operations)
    except Failure as failure:
        raise _charged(failure, failure.charge_ru + done.charge_ru) from None
    while operations:
        try:
            written = await _write(container, partition, operations, ask)
        except MemberFailed as failed:
            done.charge_ru += failed.failure.charge_ru
            if failed.failure.kind not in _CHANGED:
                raise _charged(failed.failure, done.charge_ru) from None
            is_all = is_all and failed.failure.kind is Kind.NOT_FOUND
            del operations[failed.index]
            continue
        except Failure as failure:
            raise _charged(failure, failure.charge_ru + done.charge_ru) from None
        if lost is not None:
            raise lost
        done.count, done.charge_ru = len(operations), done.charge_ru + written.charge_ru
        break
    done.lsn = partition.lsn
    return done, is_all


@dataclass(slots=True)
class _Changed:
    """Items as they are to be stored. `charge_ru`: of those that were read, without the refused one."""

    operations: list[Operation]
    charge_ru: float
    refused: Failure | None = None


async def _changed(account: Account, container: Container, updates: Sequence[ItemUpdate], ask: Ask | None) -> _Changed:
    """As many as have about the size of a batch: items may be much larger than their updates, and clients send the
    rest again."""
    found = _Changed([], 0.0)
    seen: dict[tuple[Key, str], tuple[Document, int]] = {}  # an item may be changed more than once
    total_bytes = 0
    for each in updates:
        place, etag = (each.key, each.item_id), None
        try:
            if place in seen:
                before, size_bytes = seen[place]
                document = copy.deepcopy(before)
            else:
                answer = await items.read(container, each.item_id, ItemOptions(each.key, ask=ask))
                found.charge_ru += answer.charge_ru
                assert answer.payload is not None
                document, size_bytes, etag = parse_document(answer.payload), len(answer.payload), answer.etag
            document = each.update(document)
            seen[place] = document, size_bytes
            member = Member(Verb.REPLACE, each.item_id, document, options=ItemOptions(if_match=etag))
            found.operations.append(operation_of(container, member, each.key, account.clock))
        except Failure as failure:
            found.refused = failure
            break
        total_bytes += size_bytes
        if total_bytes >= limits.BATCH_BYTES_MAX:
            break
        await asyncio.sleep(0)  # other requests wait for one item, not for all
    return found


async def _write_until(
    container: Container,
    partition: Partition,
    operations: list[Operation],
    refused: Failure | None,
    ask: Ask | None,
    stops_at: Collection[Kind],
) -> Progress:
    """`refused`: of the operation behind the last of these. A failure has the charge of all that was tried."""
    lost = await _meet_faults(container, operations)
    done = Progress(partition.range.id, partition.lsn, failure=refused)
    if refused is not None:
        done.charge_ru = refused.charge_ru
    while True:
        if done.failure is not None and done.failure.kind not in stops_at:
            raise _charged(done.failure, done.charge_ru)
        if not operations:
            return done
        try:
            written = await _write(container, partition, operations, ask)
        except MemberFailed as failed:  # nothing is stored: again without it
            done.failure = failed.failure
            done.charge_ru += failed.failure.charge_ru
            operations = operations[: failed.index]
            continue
        except Failure as failure:
            raise _charged(failure, failure.charge_ru + done.charge_ru) from None
        if lost is not None:
            raise lost
        done.count, done.lsn = len(operations), partition.lsn
        done.charge_ru += written.charge_ru
        return done


def _charged(failure: Failure, charge_ru: float) -> Failure:
    """A failure with the charge of the reads and writes that led to it, which partitions have counted."""
    failure.charge_ru, failure.is_metered = charge_ru, failure.is_metered or charge_ru > 0
    return failure


async def _write(
    container: Container, partition: Partition, operations: Sequence[Operation], ask: Ask | None
) -> Written:
    visit = WriteMany(operations[0].epk, operations)
    while True:
        for each in operations:
            check_owner(container, partition, each)
        written = await visits.run_at(container, partition, visit, ask)
        if written is not None:
            return written
        await partition.released()


async def _meet_faults(container: Container, operations: Sequence[Operation]) -> Failure | None:
    """What to raise once the items are written."""
    if container.faults is None or not operations:
        return None
    return await container.faults.at_key("execute", container, operations[0].epk)

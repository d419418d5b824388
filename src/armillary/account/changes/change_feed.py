"""The change feed: items written since a position in the log or a time, in the order of writing inside a partition. In
latest-version mode each item comes once, as it is now, without deleted or expired ones; where a container keeps all
versions, every version and the deletes come too.

A page is about one logical partition, one physical one, a range of effective keys, or the whole container. It ends at
the end of a transaction. The JSON of the changes is here too; status and headers are the door's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.captures.notes import Note
from armillary.account.changes import feed_positions
from armillary.account.changes.changes_elsewhere import ChangesElsewhere
from armillary.account.changes.feed_positions import Positions, Stretch
from armillary.account.container import Container
from armillary.account.visits.page_walk import FeedOptions, PageWalk, SliceEnd, moved_or
from armillary.account.visits.visits import session_behind
from armillary.errors import Failure, bad_request
from armillary.model import charges
from armillary.model.documents import json_document, json_text
from armillary.model.encoding import payload_of, unpack_header
from armillary.model.ranges import KeyRange
from armillary.model.values import UNDEFINED
from armillary.partition.budget import READ_DEPOSIT
from armillary.partition.history.change_reading import Changed, ChangeReader, Room, VersionReader
from armillary.partition.history.versions import CREATED, DELETED, EXPIRED, REPLACED, Version
from armillary.partition.operations import Result

_OPERATIONS = {CREATED: "create", REPLACED: "replace", DELETED: "delete", EXPIRED: "delete"}


@dataclass(slots=True)
class ChangePage:
    items: list[Changed] = field(default_factory=list)
    continuation: str = ""  # where the next page begins; there is always one
    is_end: bool = True  # there is nothing more now
    charge_ru: float = 0.0
    lsns: list[tuple[int, int]] = field(default_factory=list)  # of the partitions asked: range id, lsn


async def read_changes(
    account: Account,
    container: Container,
    options: FeedOptions,
    *,
    is_from_now: bool = False,
    since_s: int | None = None,
    has_all_versions: bool = False,
) -> ChangePage:
    """The next page after `options.continuation`, or from the beginning; `is_from_now`: an empty page, whose
    continuation is behind the last change. `since_s`: only items that were written in that second or later."""
    if has_all_versions and not container.schema.versions_number:
        raise bad_request(
            f"All Versions and Deletes change feed must be enabled for the container '{container.name}': give it a "
            'changeFeedPolicy with a retention, e.g. {"retentionDuration": 10} for ten minutes.'
        )
    reader_type = VersionReader if has_all_versions else ChangeReader
    walk = _ChangeWalk(account, container, options, since_s, reader_type, is_from_now=is_from_now)
    await walk.run("changes")
    return walk.answer()


class _ChangeWalk(PageWalk[ChangeReader]):
    """One page of changes, or with `is_from_now` none, only the position behind the last one."""

    def __init__(
        self,
        account: Account,
        container: Container,
        options: FeedOptions,
        since_s: int | None,
        reader_type: type[ChangeReader],
        *,
        is_from_now: bool,
    ) -> None:
        low, high = container.stretch(options.key, options.range_id, options.epk_range)
        super().__init__(account, container, options, low, high, READ_DEPOSIT)
        self._since_s = since_s
        self._reader_type = reader_type
        self._is_from_now = is_from_now
        self._begin_anew()
        self._positions = feed_positions.beginning(low, high)
        if options.continuation is not None:
            rid = container.record.rid
            self._positions = feed_positions.decode(options.continuation, account.secret, rid, low, high)

    def _begin_anew(self) -> None:
        self._page = ChangePage()
        self._size_bytes = 0
        self._reads_ru = 0.0

    def find_parts(self) -> list[ChangeReader]:
        map_ = self._container.map
        return [
            self._reader(key_range, stretch)
            for stretch in self._positions.stretches
            if stretch.low < stretch.high
            for key_range in map_.overlapping(stretch.low, stretch.high)
        ]

    def _reader(self, key_range: KeyRange, stretch: Stretch) -> ChangeReader:
        container = self._container
        partition = container.partitions[key_range.id]
        low, high = max(stretch.low, key_range.low), min(stretch.high, key_range.high)
        if partition.is_elsewhere:
            has_versions = self._reader_type is VersionReader
            return ChangesElsewhere(
                container,
                partition,
                low,
                high,
                stretch.lsn,
                self._since_s,
                self._options.session,
                has_versions=has_versions,
            )
        has_expiry = container.schema.rules.default_ttl is not None
        is_live = self._is_live if has_expiry else None
        return self._reader_type(partition, low, high, stretch.lsn, since_s=self._since_s, is_live=is_live)

    async def _fill(self) -> None:
        topology = self._account.topology
        if topology is not None and not topology.may_answer_strongly:
            self._check_positions()
        if not self._is_from_now:
            await super()._fill()
            return
        for reader in self._parts:
            reader.ticket = self._bill.enter(reader.partition, self._deposit)
            try:
                reader.lsn = await reader.end_lsn()
            except Failure as failure:
                raise moved_or(failure, reader.partition) from None

    def _check_positions(self) -> None:
        """On a node of a cluster that may be behind: refuse a position that another node has given."""
        for reader in self._parts:
            if reader.lsn > reader.partition.head.lsn and not reader.partition.is_elsewhere:
                raise session_behind("The change feed position is ahead of this node.", reader.partition)

    async def _read_slice(self, index: int) -> SliceEnd:
        clock, page = self._account.clock, self._page
        slice_end_s = clock.elapsed_s() + limits.SLICE_SECONDS
        room = Room(
            self._options.page_items - len(page.items), limits.PAGE_BYTES_MAX - self._size_bytes, not page.items
        )
        reader = self._parts[index]
        try:
            step = await reader.read(room, lambda: clock.elapsed_s() > slice_end_s)
        except Failure as failure:
            raise moved_or(failure, reader.partition) from None
        page.items += step.items
        self._size_bytes += step.size_bytes
        self._reads_ru += sum([charges.read_ru(len(payload_of(each.stored))) for each in step.items])
        return SliceEnd(step.is_end, step.is_full)

    def _is_late(self, part: ChangeReader, seconds: float) -> bool:
        """Clients take an empty page for the end, so it is given more time."""
        return seconds > (limits.PAGE_SECONDS_MAX if self._page.items else limits.EMPTY_PAGE_SECONDS_MAX)

    def _stop_at(self, index: int) -> None:
        """Stretches that were not read come first in the next page, so that none starves."""
        self._parts = self._parts[index:] + self._parts[:index]
        self._page.is_end = False

    def answer(self) -> ChangePage:
        page, container = self._page, self._container
        page.continuation = self._options.continuation or "0"
        if self._parts:  # there are none where range, keys and partition key have nothing in common
            positions = Positions(tuple(Stretch(each.low, each.high, each.lsn) for each in self._parts))
            page.continuation = positions.encode(self._account.secret, container.record.rid, is_part=self._is_part)
        page.charge_ru, page.lsns = self._settle()
        return page

    def _note(self) -> Note:
        note = Note("changes", Result.READ, 0.0, self._options.key, is_alone=False)
        note.rows, note.size_bytes = len(self._page.items), self._size_bytes
        return note

    @property
    def _is_part(self) -> bool:
        """Whether the request names a range and is about some of its keys only, or comes from a client that will make
        other ranges of it when it is gone."""
        options = self._options
        if options.range_id is None or options.key is not None:
            return False
        low, high = min(each.low for each in self._parts), max(each.high for each in self._parts)
        whole = self._parts[0].partition.range
        return options.is_unaware or low > whole.low or high < whole.high

    def _cost_ru(self) -> float:
        factor = self._options.read_factor
        return max(float(factor), self._reads_ru * factor)


# Changes as JSON.


def change_row(changed: Changed, container: Container, *, is_beside: bool = False) -> bytes:
    """The item with its lsn, which stands beside the item with `is_beside`, and in it otherwise. Where all versions are
    read, what was done to it."""
    if changed.version is not None:
        return _version_row(changed.lsn, changed.version, container)
    if is_beside:
        current, changed_s = json_text(changed.stored, container.schema), unpack_header(changed.stored).ts
        return b'{"current":%b,"metadata":{"lsn":%d,"crts":%d}}' % (current, changed.lsn, changed_s)
    # The lsn is no part of what is stored; the text of an item ends with a brace.
    return b'%b,"_lsn":%d}' % (json_text(changed.stored, container.schema)[:-1], changed.lsn)


def _version_row(lsn: int, version: Version, container: Container) -> bytes:
    """What was done to an item, with how it became and how it was."""
    entry, schema = version.entry, container.schema
    if entry.kind == CREATED and version.current is not None:  # by far the commonest
        current = json_text(version.current, schema)
        return b'{"current":%b,"metadata":{"operationType":"create","lsn":%d,"crts":%d}}' % (
            current,
            lsn,
            entry.changed_s,
        )
    metadata: dict[str, Any] = {"operationType": _OPERATIONS[entry.kind], "lsn": lsn, "crts": entry.changed_s}
    parts = [b'{"current":%b' % (json_text(version.current, schema) if version.current is not None else b"{}")]
    if version.previous is not None:
        metadata["previousImageLSN"] = entry.before_lsn
        parts.append(b'"previous":%b' % json_text(version.previous, schema))
        if version.current is None:
            metadata |= _deleted(version.previous, container)
    if entry.kind == EXPIRED:
        metadata["timeToLiveExpired"] = True
    parts.append(b'"metadata":%b}' % orjson.dumps(metadata))
    return b",".join(parts)


def _deleted(stored: bytes, container: Container) -> dict[str, Any]:
    """Which item a delete is about, as the service says it: by its id and the values of its partition key, each under
    its path without the first slash (.NET's client, `ChangeFeedMetadata.PartitionKey`) and without quotes."""
    document = json_document(stored, container.schema)
    named: dict[str, Any] = {"id": document["id"]}
    if container.key is not None:
        values = zip(container.key.steps, container.key_of(document), strict=False)
        named["partitionKey"] = {"/".join(steps): value for steps, value in values if value is not UNDEFINED}
    return named

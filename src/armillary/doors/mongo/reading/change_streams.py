"""Change streams over a collection, a database or all databases.

Events of documents are stored with the documents (`account/collections/event_feed.py`), so a stream resumes from its
token after splits and restarts. Events of collections (create, drop, rename) go to the streams that are open at that
moment.
"""

from __future__ import annotations

from binascii import Error as HexError
from binascii import unhexlify
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError
from bson.timestamp import Timestamp

from armillary import limits
from armillary.account.collections import document_operations, event_feed
from armillary.account.collections.event_feed import DocumentEvent, Position, Told
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reading import split_events
from armillary.doors.mongo.sessions import authorization
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.pipeline import Pipeline
from armillary.languages.mongo.stages.stage import Run, of_list
from armillary.model.bson.bson_values import Document, decode, encode, is_identical

_OPTIONS: Final = frozenset(
    "fullDocument fullDocumentBeforeChange resumeAfter startAfter startAtOperationTime allChangesForCluster "
    "showExpandedEvents showMigrationEvents".split()
)
_LOOKUPS: Final = ("default", "updateLookup", "whenAvailable", "required")
_IMAGES: Final = ("off", "whenAvailable", "required")
_AFTER: Final = frozenset("$match $project $addFields $set $unset $replaceRoot $replaceWith $redact".split())
_TIME_DIGITS: Final = 16


class ChangeStream:
    """The source of a change stream's cursor."""

    def __init__(
        self, call: Call, collection: str | None, spec: Document, pipeline: Pipeline, run: Run, *, splits: bool
    ) -> None:
        """`splits`: large events are split into fragments."""
        fields = Fields(spec, "$changeStream")
        fields.only(_OPTIONS)
        self._services = call.services
        self._opening = call  # for what it reads while no command of its own runs
        self._database: str | None = call.database
        self._collection = collection
        if fields.flag("allChangesForCluster", False):
            if call.database != "admin" or collection is not None:
                raise refusal(72, "A change stream of the cluster is opened on the admin database, with {aggregate: 1}")
            self._database = None
        elif call.database in ("admin", "config", "local"):
            raise refusal(73, f"$changeStream may not be opened on the internal {call.database} database")
        elif collection is not None and collection.startswith("system."):
            raise refusal(73, f"$changeStream may not be opened on the internal {collection} collection")
        self.check_rights(call)
        self._lookup = fields.text("fullDocument", "default")
        self._image = fields.text("fullDocumentBeforeChange", "off")
        if self._lookup not in _LOOKUPS or self._image not in _IMAGES:
            raise refusal(2, "fullDocument is default, updateLookup, whenAvailable or required")
        self._is_expanded = fields.flag("showExpandedEvents", False)
        self._pipeline, self._run = pipeline, run
        self._positions: dict[str, Position] = {}  # by the rid of a container
        self._entered: set[str] = set()  # rids of the containers that it covers
        self._names: dict[str, str] = {}  # of collections that were moved to another shard key, by former rid
        self._waiting: deque[Document] = deque()  # events of collections
        self._since_ms: int | None = None  # earlier events are skipped
        self._from_ms: int | None = None  # start in the past: events since then are sent as far as they are stored
        self._token: Document = {}
        self._is_over = False
        self._splits = splits
        self._before: dict[str, dict[str, Position]] = {}  # positions before events that may be split, by their tokens
        self._fragments_told = 0  # of the event that comes first
        self._begin(fields)

    def _begin(self, fields: Fields) -> None:
        given = [name for name in ("resumeAfter", "startAfter", "startAtOperationTime") if name in fields]
        if len(given) > 1:
            raise refusal(40674, f"Only one of {', '.join(given)} may be given")
        self._is_resumed = bool(given)
        if not given:
            return
        if given[0] == "startAtOperationTime":
            moment = fields.body[given[0]]
            if not isinstance(moment, Timestamp):
                raise refusal(14, "startAtOperationTime is a timestamp")
            self._since_ms = self._from_ms = self._services.cluster_time.wall_ms(moment)
            return
        token = fields.document(given[0])
        kept = _unpacked(token)
        if kept.get("i") and given[0] == "resumeAfter":
            raise refusal(
                260, "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate"
            )
        self._fragments_told = int(kept.get("f", 0))
        if self._fragments_told and not self._splits:
            raise refusal(280, "The resume token is of a fragment: $changeStreamSplitLargeEvent must be there again")
        self._positions = {rid: event_feed.unpacked(each) for rid, each in kept["p"].items()}
        self._from_ms = int(token["_data"][:_TIME_DIGITS], 16)
        self._token = token

    # For the cursor.

    def check_rights(self, call: Call) -> None:
        """Streams of databases and collections are covered by the right to the command."""
        if self._database is None:
            authorization.require_everywhere(call)

    @property
    def resume_token(self) -> Document:
        return self._token or self._made_token(0)

    @property
    def is_exhausted(self) -> bool:
        return self._is_over and not self._waiting

    async def close(self) -> None:
        self._is_over = True
        self._waiting.clear()
        self._services.streams.discard(self)

    async def open(self, call: Call) -> None:
        """Start now, or from the given position."""
        self._services.streams.add(self)
        for container in self._containers(call):
            await self._enter(call, container, is_new=False)

    async def read(self, call: Call, count: int) -> list[bytes] | None:
        limit_ms = call.fields.whole("maxTimeMS", low=0) if call.name == "getMore" else None
        machine = self._services.machine
        wait_s = limits.MONGO_AWAIT_SECONDS if limit_ms is None else limit_ms / 1000
        ends_s = machine.monotonic_s() + (wait_s if call.name == "getMore" else 0.0)
        while True:
            found = await self._next(call, min(count, limits.MONGO_FIRST_BATCH * 10))
            if found:
                return self._encoded(found)
            if self.is_exhausted:
                return None
            left_s = ends_s - machine.monotonic_s()
            if left_s <= 0 or not await call.client.pause(min(left_s, limits.MONGO_STREAM_POLL_SECONDS)):
                return []
            call.check_killed()

    def _encoded(self, found: list[Document]) -> list[bytes]:
        told: list[bytes] = []
        for event in found:
            encoded = encode(event)
            if len(encoded) <= limits.MONGO_DOCUMENT_BYTES_MAX:
                told.append(encoded)
            elif self._splits:
                told += [encode(each) for each in self._fragments(event)]
            else:
                raise split_events.too_large(len(encoded))
            self._fragments_told = 0
        self._before.clear()
        return told

    def _fragments(self, event: Document) -> list[Document]:
        """Each with a token that leads to the next; that of the last is the event's own, and so is each where it is
        not known any more what was before the event."""
        token = event["_id"]
        found = split_events.fragments(event)
        before = self._before.get(token["_data"])
        wall_ms = int(token["_data"][:_TIME_DIGITS], 16)
        told = [
            {"_id": token if before is None or number == len(found) else _token(before, wall_ms, {"f": number}), **each}
            for number, each in enumerate(found, 1)
        ]
        return told[self._fragments_told :]

    # Events of documents.

    def covers(self, database: str, collection: str) -> bool:
        """As in MongoDB, streams of databases do not cover system collections."""
        if self._collection is not None:
            return (database, collection) == (self._database, self._collection)
        return self._database in (None, database) and not collection.startswith(namespaces.SYSTEM)

    def _containers(self, call: Call) -> list[Container]:
        if self._collection is None:
            named = self._database
            of_database = namespaces.collections_of(call, named) if named is not None else call.account.containers
            # The target of a migration is covered once it has taken over the name.
            present = [each for each in of_database if each.state.migration is None]
            return [each for each in present if self.covers(each.database.name, each.name)]
        assert self._database is not None
        container = namespaces.find(call, self._collection, self._database)
        return [container] if container is not None else []

    async def _enter(self, call: Call, container: Container, *, is_new: bool) -> None:
        rid = container.record.rid.hex()
        await event_feed.watch(call.account, container)
        self._entered.add(rid)
        if rid in self._positions or container.state.former_rid in self._positions:
            return
        if not self._is_resumed and not is_new:
            self._positions[rid] = await event_feed.now(container)
            return
        # New collections are read from their beginning; so are all if a start time was given.
        position = self._positions[rid] = event_feed.beginning()
        if self._from_ms is not None:
            for event in await event_feed.remembered(container, self._from_ms):
                self._waiting.append(await self._shown(call, container, Told(event, position)))

    async def _next(self, call: Call, count: int) -> list[Document]:
        found: list[Document] = []
        while self._waiting and len(found) < count:
            found.append(self._waiting.popleft())
        if not found and not self._is_over:
            found = await self._documents_events(call, count)
        return await self._through_pipeline(found)

    async def _documents_events(self, call: Call, count: int) -> list[Document]:
        found: list[tuple[int, int, Container, Told]] = []
        ends: dict[str, Position] = {}
        if self._is_gone(call):
            self._end(call)
            return []
        for present in self._containers(call):
            container = self._due(call, present)
            rid = container.record.rid.hex()
            if rid in ends:
                continue  # of a whole database both are watched, what was moved and what it was moved to
            if rid not in self._positions:
                await self._enter(call, container, is_new=True)
            position = self._positions[rid]
            if not event_feed.has_news(container, position):
                continue
            told, ends[rid] = await event_feed.read(container, position, count, self._since_ms)
            times = [when for when, _ in event_feed.in_turn(each.event for each in told)]
            found += [(when, len(ends), container, each) for when, each in zip(times, told, strict=True)]
        found.sort(key=lambda each: each[:2])
        # A token says what was told before, of all collections: so it is made when the event's turn comes.
        shown: list[Document] = []
        for _, _, container, each in found:
            before = dict(self._positions) if self._splits else {}
            self._positions[container.record.rid.hex()] = each.position
            document = await self._shown(call, container, each)
            if self._splits:
                self._before[document["_id"]["_data"]] = before
            shown.append(document)
        self._positions |= ends
        self._token = self._made_token(found[-1][3].event.wall_ms if found else 0)
        return shown

    def _is_gone(self, call: Call) -> bool:
        """Whether its collection was deleted through another API, or replaced by a restore."""
        if self._collection is None or not self._entered:
            return False
        known = self._entered | self._positions.keys()
        present = [each.record for each in self._containers(call)]
        return not any(each.rid.hex() in known or each.container_state.former_rid in known for each in present)

    def _end(self, call: Call) -> None:
        """Send drop and invalidate events, and end."""
        self._announce(call, {"operationType": "drop", "ns": {"db": self._database, "coll": self._collection}})
        self._announce(call, {"operationType": "invalidate"}, is_invalid=True)
        self._is_over = True

    def _due(self, call: Call, container: Container) -> Container:
        """Of a collection that was moved to another shard key, what was done before the move comes first: it is in the
        container that the collection was then."""
        former, rid = container.state.former_rid, container.record.rid.hex()
        if former is None or rid in self._positions or former not in self._positions:
            return container
        moved = call.account.container_by_rid(bytes.fromhex(former))
        if moved is None:
            raise event_feed.lost()
        if not event_feed.has_news(moved, self._positions[former]):
            self._positions[rid] = event_feed.beginning()
            self._names.pop(former, None)
            return container
        self._names[former] = container.name
        return moved

    async def _shown(self, call: Call, container: Container, told: Told) -> Document:
        event = told.event
        document: Document = {
            "_id": self._made_token(event.wall_ms),
            "operationType": event.kind,
            "clusterTime": self._services.cluster_time.of_event(event.wall_ms, _number(event)),
            "wallTime": DatetimeMS(event.wall_ms),
        }
        if event.kind in (event_feed.INSERT, event_feed.REPLACE):
            document["fullDocument"] = event.document
        elif event.kind == event_feed.UPDATE and self._lookup != "default":
            document["fullDocument"] = await self._looked_up(call, container, event)
        name = self._names.get(container.record.rid.hex(), container.name)
        document["ns"] = {"db": container.database.name, "coll": name}
        if self._is_expanded:
            document["collectionUUID"] = namespaces.uuid_of(container)
        document["documentKey"] = event.key
        if event.update is not None:
            document["updateDescription"] = event.update
            if not self._is_expanded:
                event.update.pop("disambiguatedPaths", None)
        if self._image != "off" and event.kind != event_feed.INSERT:
            if event.before is None and self._image == "required":
                raise _no_image("pre-image")
            document["fullDocumentBeforeChange"] = event.before
        return document

    async def _looked_up(self, call: Call, container: Container, event: DocumentEvent) -> Document | None:
        if self._lookup != "updateLookup":
            if event.document is None and self._lookup == "required":
                raise _no_image("post-image")
            return event.document
        pseudo: Document = {"_id": event.key["_id"]}
        for path, value in event.key.items():
            *above, last = path.split(".")
            place = pseudo
            for part in above:
                place = place.setdefault(part, {})
            place[last] = value
        found = await document_operations.find(container, container.key_of_bson(pseudo), event.key["_id"])
        call.spend(found.charge_ru)
        return decode(found.document) if found.document is not None else None

    async def _through_pipeline(self, found: list[Document]) -> list[Document]:
        if not found or not self._pipeline.stages:
            return found
        shown: list[Document] = []
        async for batch in self._pipeline.run(of_list(found), self._run):
            shown += batch
        tokens = [each["_id"] for each in found]
        for each in shown:
            if "_id" not in each or not any(is_identical(each["_id"], token) for token in tokens):
                raise Failure(
                    refusal(280, "").kind,
                    "Encountered an event whose _id field, which contains the resume token, was modified by the "
                    "pipeline. Modifying the _id field of an event makes it impossible to resume the stream.",
                    details={"code": 280, "labels": ("NonResumableChangeStreamError",)},
                )
        return shown

    # Events of collections.

    async def tell(self, kind: str, database: str, collection: str, extra: Document) -> None:
        """Queue an event about a collection or a database."""
        call = self._opening
        is_expanded = kind not in ("drop", "rename", "dropDatabase")
        if (is_expanded and not self._is_expanded) or self._is_over:
            return
        if self._is_gone(call):
            self._end(call)
            return
        # Earlier events of documents come first.
        for document in await self._documents_events(call, limits.MONGO_EVENTS_MAX):
            self._waiting.append(document)
        if kind == "dropDatabase" and self._collection is not None:
            return
        namespace: Document = {"db": database, "coll": collection} if collection else {"db": database}
        container = namespaces.find(call, collection, database) if self._is_expanded and collection else None
        if container is not None:
            extra = {"collectionUUID": namespaces.uuid_of(container), **extra}
        if not self._is_expanded:
            extra = {name: value for name, value in extra.items() if name != "operationDescription"}
        self._announce(call, {"operationType": kind, "ns": namespace, **extra})
        is_end = kind in ("drop", "rename") if self._collection is not None else kind == "dropDatabase"
        if is_end and self._database is not None:
            self._announce(call, {"operationType": "invalidate"}, is_invalid=True)
            self._is_over = True

    def _announce(self, call: Call, event: Document, *, is_invalid: bool = False) -> None:
        now_ms = int(call.clock.now_s() * 1000)
        shown: Document = {
            "_id": self._made_token(now_ms, is_invalid=is_invalid),
            "operationType": event["operationType"],
            "clusterTime": self._services.cluster_time.now,
            "wallTime": DatetimeMS(now_ms),
            **event,
        }
        self._token = shown["_id"]
        self._waiting.append(shown)

    def _made_token(self, wall_ms: int, *, is_invalid: bool = False) -> Document:
        wall_ms = wall_ms or int(self._services.account.clock.now_s() * 1000)
        return _token(self._positions, wall_ms, {"i": True} if is_invalid else {})


def _token(positions: Mapping[str, Position], wall_ms: int, more: Document) -> Document:
    kept: Document = {"p": {rid: event_feed.packed(each) for rid, each in positions.items()}, **more}
    return {"_data": f"{wall_ms:0{_TIME_DIGITS}x}{encode(kept).hex()}".upper()}


def check_after(given: list[Any]) -> None:
    """Refuse stages that may not follow $changeStream."""
    for stage in given[1:]:
        name = next(iter(stage), "") if isinstance(stage, dict) else ""
        if name not in _AFTER:
            raise refusal(20, f"{name} is not permitted in a $changeStream pipeline")


def _unpacked(token: Document) -> dict[str, Any]:
    data = token.get("_data")
    if not isinstance(data, str):
        raise refusal(260, "A resume token has a string '_data'")
    try:
        int(data[:_TIME_DIGITS], 16)
        kept = decode(unhexlify(data[_TIME_DIGITS:]))
        for each in kept["p"].values():
            event_feed.unpacked(each)
    except (HexError, BSONError, KeyError, ValueError, TypeError, AttributeError):
        raise refusal(260, "The resume token is not one that was given here") from None
    return kept


def _number(event: DocumentEvent) -> int:
    """Grows with the events of a partition."""
    return (event.lsn << 4) + int.from_bytes(event.place[8:10], "big")


def _no_image(what: str) -> Failure:
    return refusal(
        47,
        f"Change stream was configured to require a {what} for all events, but the {what} was not found.",
        labels=("NonResumableChangeStreamError",),
    )

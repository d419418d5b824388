"""The operations that a partition applies to items, and their results. Every door, batch, script and import issues a
list of these through the one write path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar

from orjson import loads

from armillary import limits, work
from armillary.errors import Failure
from armillary.model import documents, items
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_json import document_of
from armillary.model.bson.bson_values import decode
from armillary.model.encoding import FORMAT_BSON, FORMAT_JSON
from armillary.model.indexes.indexing import ItemTerms
from armillary.model.keys import Key
from armillary.model.patch import Patch
from armillary.model.sendable import LOCAL, Sendable
from armillary.partition.document_changes import Changed, ChangeStatement, CompiledChange, Decided
from armillary.partition.schema import Rules, Schema

Document = dict[str, Any]

NO_TERMS = ItemTerms([], 0)


class Verb(Enum):
    CREATE = auto()
    UPSERT = auto()
    REPLACE = auto()
    PATCH = auto()
    MERGE = auto()
    CHANGE = auto()
    DELETE = auto()
    READ = auto()


@dataclass(slots=True)
class Draft(Sendable):
    """An item ready to be stored, except for the system properties that are set by the write itself. Where it was sent
    to, everything else is made from the text again (`redraft`)."""

    item_id: str
    document: Document = field(metadata=LOCAL)
    text: bytes  # the item's JSON without system properties and closing brace, or its BSON
    ttl: int
    ts: int
    made_terms: ItemTerms | None = field(metadata=LOCAL)  # None: a large item's, not made yet
    is_indexed: bool
    rules: Rules | None = field(metadata=LOCAL)  # None: it was sent, and is not made again yet
    format: int = FORMAT_JSON

    @property
    def terms(self) -> ItemTerms:
        """Of a large item, made on first use, in code that can give way."""
        return self.made_terms if self.made_terms is not None else self.make_terms()

    def make_terms(self) -> ItemTerms:
        assert self.rules is not None
        indexing = self.rules.indexing
        if self.format == FORMAT_JSON:
            self.made_terms = indexing.terms(self.document, self.ts)
        else:
            self.made_terms = documents.bson_terms(indexing, self.document, self.ts, self.item_id)
        work.spend(4 * len(self.made_terms.terms))
        return self.made_terms

    def bson(self) -> Document:
        """The item as a BSON document."""
        if self.format == FORMAT_BSON:
            return self.document
        return document_of(items.strip_system_properties(self.document))


def draft(schema: Schema, document: Document, ts: int, directive: str = "Default") -> Draft:
    """Validate a document and compute everything about it that needs no transaction."""
    item_id = items.validate_item_id(document)
    ttl = items.item_ttl(document)
    text = items.open_text(document)
    items.check_size(len(text))  # before the terms: an item that is too large is not indexed
    rules = schema.rules
    is_indexed = rules.indexing.applies(directive)
    terms = None if is_indexed else NO_TERMS
    if rules.indexing.dated_fields:
        ttl = rules.ttl_of(FORMAT_JSON, document, ts)
    made = Draft(item_id, document, text, ttl, ts, terms, is_indexed, rules)
    if is_indexed and (len(text) <= limits.WORK_AT_ONCE_BYTES or work.can_wait()):
        made.make_terms()
    return made


def bson_draft(schema: Schema, document: Document, encoded: bytes, ts: int, directive: str = "Default") -> Draft:
    """The same for a BSON document, which has an `_id`."""
    documents.check_bson_size(len(encoded))
    rules = schema.rules
    item_id = id_text(document["_id"])
    is_indexed = rules.indexing.applies(directive)
    terms = None if is_indexed else NO_TERMS
    ttl = rules.ttl_of(FORMAT_BSON, document, ts)
    made = Draft(item_id, document, encoded, ttl, ts, terms, is_indexed, rules, FORMAT_BSON)
    if is_indexed and (len(encoded) <= limits.WORK_AT_ONCE_BYTES or work.can_wait()):
        made.make_terms()
    return made


def redraft(schema: Schema, made: Draft, directive: str) -> Draft:
    """A draft that was made elsewhere or by other rules, by those of this schema."""
    if made.format == FORMAT_BSON:
        document = made.document if made.rules is not None else decode(made.text)
        return bson_draft(schema, document, made.text, made.ts, directive)
    return draft(schema, made.document if made.rules is not None else loads(made.text + b"}"), made.ts, directive)


@dataclass(slots=True)
class Operation(Sendable):
    verb: Verb
    epk: bytes
    key: Key
    item_id: str
    draft: Draft | None = None  # CREATE, UPSERT, REPLACE, MERGE
    patch: Patch | None = None
    change: ChangeStatement | None = None  # of a MongoDB document: a CHANGE, or a DELETE with a filter
    decided: Decided | None = None  # what the change makes of the document, if that was computed before
    if_match: str | None = None
    if_none_match: str | None = None
    directive: str = "Default"
    is_any: bool = False  # a DELETE of any item, expired or not
    is_replacement: bool = False  # a CHANGE that replaces the whole document
    # Compiled where the operation runs: the condition of the patch, and the change.
    condition: Callable[[Document], bool] | None = field(default=None, compare=False, repr=False, metadata=LOCAL)
    compiled: CompiledChange | None = field(default=None, compare=False, repr=False, metadata=LOCAL)

    def changed(self, document: Document, encoded: bytes) -> Changed:
        """What the statement makes of a document."""
        decided = self.decided
        if decided is not None and decided.document == encoded:
            if isinstance(decided.outcome, Failure):
                raise decided.outcome
            return decided.outcome
        assert self.compiled is not None, "compiled by the visit"
        return self.compiled(document)


class Result(Enum):
    __hash__ = object.__hash__  # each answer looks up its status, and Enum's own hash is slow

    CREATED = auto()
    REPLACED = auto()
    DELETED = auto()
    READ = auto()
    NOT_MODIFIED = auto()
    MISSING = auto()  # a read of an item that does not exist
    REPEATED = auto()  # a retried write that was applied before: the payload is the recorded answer


@dataclass(slots=True)
class Outcome:
    result: Result
    payload: bytes | None  # the item as answered; None after DELETE
    etag: str | None
    lsn: int
    charge_ru: float
    # The parts of a write's charge, besides the new item's size.
    old_bytes: int = 0  # of the previous item
    terms: int = 0  # charged terms that were added or removed
    patch_operations: int = 0
    before: bytes | None = None  # the BSON of a document that was changed or deleted
    changed: Changed | None = None  # what a MongoDB statement made of it


class MemberFailed(Exception):
    """One operation of an atomic list failed, and with it the whole list. Never leaves the callers of the partition
    package."""

    SENT: ClassVar = {"index": int, "failure": Failure}

    def __init__(self, index: int, failure: Failure) -> None:
        super().__init__(str(failure))
        self.index = index
        self.failure = failure


def make_all_terms(operations: Sequence[Operation]) -> None:
    """Make the terms of large items before their transaction. May give way."""
    for index, operation in enumerate(operations):
        if operation.draft is not None and operation.draft.made_terms is None:
            try:
                operation.draft.make_terms()
            except Failure as failure:
                raise MemberFailed(index, failure) from failure

"""What MongoDB's updates, deletes and `$merge` ask of one document, as the client stated it. The statement is plain
data; the function that it means is compiled from it (`account/collections/compiled_changes.py`) and called by the
transaction that writes, on the document that is stored at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from bson.timestamp import Timestamp

from armillary.errors import Failure
from armillary.model.bson.bson_values import Document

CHANGE_SHARES: Final = 200  # of a transaction's time, which many changes share


@dataclass(frozen=True, slots=True)
class Returning:
    """What findAndModify answers: the document as it was, or as it is now, and which fields of it."""

    is_new: bool = False
    fields: Document | None = None  # a projection


@dataclass(frozen=True, slots=True)
class ChangeStatement:
    filter: Document  # a document that does not match it any more is left as it is
    update: Document | list[Any] | None = None  # operators, a replacement or a pipeline; None: it is deleted
    array_filters: list[Any] | None = None
    merge: str | None = None  # of $merge: how the update, which is then the incoming document, is combined
    collation: Document | None = None
    let: Document | None = None  # values of variables
    now_ms: int = 0  # $$NOW
    cluster_time: Timestamp | None = None  # $$CLUSTER_TIME; None: made from $$NOW
    skips_validation: bool = False
    returning: Returning | None = None


@dataclass(slots=True)
class Changed:
    """What a statement makes of a document."""

    before: Document | None = None  # None: the document does not match
    after: Document | None = None  # None: it stays as it is, or is deleted
    answer: Document | None = None  # of findAndModify

    @property
    def is_match(self) -> bool:
        return self.before is not None


@dataclass(frozen=True, slots=True)
class Decided:
    """What a statement makes of a document, computed before the transaction because it takes long: it holds if the
    document is still the same."""

    document: bytes  # BSON
    outcome: Changed | Failure


CompiledChange: TypeAlias = Callable[[Document], Changed]

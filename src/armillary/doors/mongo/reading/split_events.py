"""`$changeStreamSplitLargeEvent`: change stream events above the size limit of documents are split into fragments. Each
fragment has some of the fields and its own resume token.
"""

from __future__ import annotations

from typing import Any, Final

from armillary import limits
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, encode

_STAGE: Final = "$changeStreamSplitLargeEvent"
_OWN_BYTES: Final = 64 * limits.KB  # room for token and counts


def without_split(stages: list[Any]) -> tuple[list[Any], bool]:
    """The stages without this one, and whether it was there."""
    places = [place for place, stage in enumerate(stages) if isinstance(stage, dict) and _STAGE in stage]
    if not places:
        return stages, False
    first = stages[0]
    if not isinstance(first, dict) or "$changeStream" not in first:
        raise refusal(40602, f"{_STAGE} is only valid in a change stream pipeline")
    if stages[places[0]] != {_STAGE: {}}:
        raise refusal(7182800, f"{_STAGE} spec should be an empty object")
    if places != [len(stages) - 1]:
        raise refusal(7182802, f"{_STAGE} must be the last stage in the pipeline")
    return stages[:-1], True


def fragments(event: Document) -> list[Document]:
    """The fields of an event without its token, in as few documents as possible, small fields first."""
    sized = sorted(((len(encode({name: value})), name) for name, value in event.items() if name != "_id"))
    found: list[Document] = []
    room = 0
    for size_bytes, name in sized:
        if size_bytes > limits.MONGO_DOCUMENT_BYTES_MAX - _OWN_BYTES:
            raise too_large(size_bytes)
        if size_bytes > room:
            found.append({})
            room = limits.MONGO_DOCUMENT_BYTES_MAX - _OWN_BYTES
        found[-1][name] = event[name]
        room -= size_bytes
    return [{"splitEvent": {"fragment": number, "of": len(found)}, **each} for number, each in enumerate(found, 1)]


def too_large(size_bytes: int) -> Failure:
    most = limits.MONGO_DOCUMENT_BYTES_MAX
    return refusal(
        10334,
        f"BSONObj size: {size_bytes} is invalid. Size must be between 0 and {most}. A change stream can take large "
        f"events apart: {_STAGE}.",
        labels=("NonResumableChangeStreamError",),
    )

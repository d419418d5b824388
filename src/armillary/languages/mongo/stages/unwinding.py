"""`$unwind`: one document for each element of an array. Long arrays are handed on in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from bson.int64 import Int64

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.compiling import check_path
from armillary.languages.mongo.paths import with_value
from armillary.languages.mongo.stages.stage import (
    Batch,
    Batches,
    Run,
    Stream,
    batches_of,
)
from armillary.model.bson.bson_values import MISSING, Document, type_name


def unwind(name: str, spec: Any, context: Context) -> Stream:
    index: list[str] | None = None
    preserves = False
    if type(spec) is dict:
        for each, value in spec.items():
            if each == "path":
                if type(value) is not str:
                    raise refusal(28808, f"expected a string as the path for $unwind stage, got {type_name(value)}")
            elif each == "preserveNullAndEmptyArrays":
                if type(value) is not bool:
                    raise refusal(
                        28809,
                        "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got "
                        + type_name(value),
                    )
                preserves = value
            elif each == "includeArrayIndex":
                if type(value) is not str or not value:
                    raise refusal(
                        28810, "expected a non-empty string for the includeArrayIndex  option to $unwind stage"
                    )
                if value.startswith("$"):
                    raise refusal(
                        28822, f"includeArrayIndex option to $unwind stage should not be prefixed with a '$': {value}"
                    )
                index = check_path(value)
            else:
                raise refusal(28811, f"unrecognized option to $unwind stage: {each}")
        path = spec.get("path")
    else:
        path = spec
        if type(spec) is not str:
            raise refusal(
                15981,
                f"expected either a string or an object as specification for $unwind stage, got {type_name(spec)}",
            )
    if not path:
        raise refusal(28812, "no path specified to $unwind stage")
    if not path.startswith("$"):
        raise refusal(28818, f"path option to $unwind stage should be prefixed with a '$': {path}")
    parts = check_path(path[1:])

    return _Unwinding(lambda document: _unwound(document, parts, index, preserves))


class _Unwinding:
    """Passes on long arrays in parts, because a document for each element takes much more memory than the array."""

    collection: str | None = None

    def __init__(self, unwound: Callable[[Document], Iterable[Document]]) -> None:
        self._unwound = unwound

    async def stream(self, source: Batches, run: Run) -> Batches:
        async with aclosing(source):
            async for batch in source:
                for made in batches_of(self._each(batch)):
                    yield made

    def _each(self, batch: Batch) -> Iterator[Document]:
        for document in batch:
            for made in self._unwound(document):
                work.spend(10 + len(made))
                yield made


def _unwound(document: Document, parts: list[str], index: list[str] | None, preserves: bool) -> Iterable[Document]:
    value: Any = document
    for part in parts:
        value = value.get(part, MISSING) if type(value) is dict else MISSING
    if type(value) is not list:
        if not preserves and (value is None or value is MISSING):
            return
        yield document if index is None else with_value(document, index, None)
        return
    if not value:
        if preserves:
            made = with_value(document, parts, MISSING)
            yield made if index is None else with_value(made, index, None)
        return
    for place, element in enumerate(value):
        made = {**document, parts[0]: element} if len(parts) == 1 else with_value(document, parts, element)
        yield made if index is None else with_value(made, index, Int64(place))

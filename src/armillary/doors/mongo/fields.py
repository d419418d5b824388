"""The fields of a command, taken out by the type they must have. The texts of refusals are those that MongoDB's own
parser of commands gives."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from bson.int64 import Int64

from armillary.errors import Failure
from armillary.languages.mongo.errors import TYPE_MISMATCH, refusal
from armillary.model.bson.bson_values import Document, type_name

_INT64_MAX: Final = (1 << 63) - 1

# What any command may carry.
GENERIC: Final = frozenset(
    "$db lsid $clusterTime $readPreference txnNumber autocommit startTransaction readConcern writeConcern comment "
    "maxTimeMS apiVersion apiStrict apiDeprecationErrors $audit $client mayBypassWriteBlocking stmtId stmtIds "
    "$queryOptions $configServerState $oplogQueryData $replData databaseVersion shardVersion rawData".split()
)


class Fields:
    """A document with the name that its refusals call it by, such as `find` or `update.updates`."""

    __slots__ = ("body", "name")

    def __init__(self, body: Document, name: str) -> None:
        self.body = body
        self.name = name

    def __contains__(self, name: str) -> bool:
        return self.body.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        value = self.body.get(name)
        if value is None:
            if default is None:
                raise self.missing(name)
            return default
        if type(value) is not str:
            raise self._wrong_type(name, value, "string")
        return value

    def document(self, name: str, default: Document | None = None) -> Document:
        value = self.body.get(name)
        if value is None:
            if default is None:
                raise self.missing(name)
            return default
        if not isinstance(value, dict):
            raise self._wrong_type(name, value, "object")
        return value

    def optional_document(self, name: str) -> Document | None:
        return self.document(name, {}) if self.body.get(name) is not None else None

    def array(self, name: str, default: list[Any] | None = None) -> list[Any]:
        value = self.body.get(name)
        if value is None:
            if default is None:
                raise self.missing(name)
            return default
        if not isinstance(value, list):
            raise self._wrong_type(name, value, "array")
        return value

    def documents(self, name: str, default: list[Document] | None = None) -> list[Document]:
        values: list[Document] = self.array(name, default)
        for index, each in enumerate(values):
            if not isinstance(each, dict):
                raise self._wrong_type(f"{name}.{index}", each, "object")
        return values

    def flag(self, name: str, default: bool) -> bool:
        """Numbers are taken for truth values, as the server does it."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool | int | float):
            return bool(value)
        raise self._types(name, value, ("bool", "long", "int", "decimal", "double"))

    def whole(self, name: str, default: int | None = None, *, low: int = 0, high: int = _INT64_MAX) -> int | None:
        """A number without fraction, in whatever numeric type; None: not given."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._types(name, value, ("long", "int", "decimal", "double"))
        if value != value or value in (float("inf"), float("-inf")):
            raise refusal(2, f"BSON field '{name}' value must be a whole number, actual value '{value}'")
        number = int(value)
        if number < low:
            raise refusal(51024, f"BSON field '{name}' value must be >= {low}, actual value '{number}'")
        if number > high:
            raise refusal(51024, f"BSON field '{name}' value must be <= {high}, actual value '{number}'")
        return number

    def number(self, name: str, default: int, *, low: int = 0, high: int = _INT64_MAX) -> int:
        found = self.whole(name, default, low=low, high=high)
        assert found is not None
        return found

    def long(self, name: str) -> int:
        value = self.body.get(name)
        if value is None:
            raise self.missing(name)
        if not isinstance(value, Int64):
            raise self._wrong_type(name, value, "long")
        return int(value)

    def payload(self, name: str) -> bytes:
        """Binary, or the same in base64, as old shells send it."""
        value = self.body.get(name)
        if isinstance(value, bytes):
            return bytes(value)
        if isinstance(value, str):
            from base64 import b64decode

            try:
                return b64decode(value, validate=True)
            except ValueError:
                raise refusal(2, f"The field '{name}' is neither binary nor base64") from None
        if value is None:
            raise self.missing(name)
        raise self._types(name, value, ("binData", "string"))

    def only(self, known: Collection[str]) -> None:
        """Refuse a field that the command does not have."""
        for name in self.body:
            if name not in known:
                raise refusal(40415, f"BSON field '{self.name}.{name}' is an unknown field.")

    def require(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.body:
                raise self.missing(name)

    # Refusals.

    def missing(self, name: str) -> Failure:
        return refusal(40414, f"BSON field '{self.name}.{name}' is missing but a required field")

    def _wrong_type(self, name: str, value: Any, expected: str) -> Failure:
        return refusal(
            TYPE_MISMATCH,
            f"BSON field '{self.name}.{name}' is the wrong type '{type_name(value)}', expected type '{expected}'",
        )

    def _types(self, name: str, value: Any, expected: tuple[str, ...]) -> Failure:
        return refusal(
            TYPE_MISMATCH,
            f"BSON field '{self.name}.{name}' is the wrong type '{type_name(value)}', expected types "
            f"'[{', '.join(expected)}]'",
        )

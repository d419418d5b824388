"""Index definitions: their options are checked, and conflicts between the indexes of a collection are found. The
entries of an index are in `model/indexes/field_indexes.py`, building one is in `account/collections/indexes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from bson.int64 import Int64
from bson.regex import Regex

from armillary import limits
from armillary.errors import Failure
from armillary.languages.mongo.collation import parse_collation, whole_collation
from armillary.languages.mongo.errors import TYPE_MISMATCH, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import REFERENCE, compile_filter, is_operators
from armillary.languages.mongo.filters.text_search import language_of
from armillary.languages.mongo.filters.value_types import truth
from armillary.languages.mongo.indexes import planar_indexes, vector_indexes
from armillary.model.bson.bson_values import (
    Document,
    compare,
    is_identical,
    is_number,
    shell_text,
    to_decimal,
    type_name,
    whole,
)
from armillary.model.indexes.field_indexes import WILDCARD

CANNOT_CREATE, INVALID_OPTION, OPTIONS_CONFLICT, KEYS_CONFLICT = 67, 197, 85, 86
ID_NAME: Final = "_id_"
ID_DEFINITION: Final[Document] = {"v": 2, "key": {"_id": 1}, "name": ID_NAME}
_ID_OPTIONS: Final = frozenset(("key", "name", "v", "ns", "collation"))
_KINDS: Final = ("hashed", "text", "2dsphere", planar_indexes.KIND, vector_indexes.KIND)
_FLAGS: Final = ("unique", "sparse", "hidden", "background", "dropDups", "prepareUnique")
_OPTIONS: Final = frozenset(
    (
        *_FLAGS,
        "v",
        "key",
        "name",
        "ns",
        "expireAfterSeconds",
        "partialFilterExpression",
        "collation",
        "weights",
        "default_language",
        "language_override",
        "textIndexVersion",
        "2dsphereIndexVersion",
        *planar_indexes.OPTIONS,
        vector_indexes.OPTION,
        "storageEngine",
        "wildcardProjection",
    )
)
# Options that distinguish indexes on the same fields. The others can be changed, or have no effect.
_TELLING: Final = (
    *("unique", "sparse", "partialFilterExpression", "collation", "expireAfterSeconds", "weights"),
    *("default_language", "language_override"),
    *planar_indexes.OPTIONS,
    vector_indexes.OPTION,
)
_UNSAID: Final = {"default_language": "english", "language_override": "language"}
# Those of them that allow two indexes on the same fields.
_APART: Final = ("partialFilterExpression", "collation", "sparse", "unique")
# Operators that filters of partial indexes may use.
_PARTIAL: Final = frozenset("$eq $in $gt $gte $lt $lte $type $geoWithin $geoIntersects".split())
_PARTIAL_DEPTH_MAX: Final = 4
_FORGOTTEN: Final = ("ns", "dropDups")


def cannot_create(message: str) -> Failure:
    return refusal(CANNOT_CREATE, message)


def default_name(key: Document) -> str:
    return "_".join([f"{path}_{_direction_text(value)}" for path, value in key.items()])


def _direction_text(value: Any) -> str:
    if not is_number(value):
        return str(value)
    number = to_decimal(value)
    if not number.is_finite():
        return str(number)
    return str(int(number)) if number == number.to_integral_value() else str(number.normalize())


def read_definition(given: Any) -> Document:
    """A definition as it is stored and listed; invalid ones are refused."""
    if type(given) is not dict:
        raise refusal(TYPE_MISMATCH, f"The elements of the 'indexes' array must be objects, but got {type_name(given)}")
    for name in given:
        if name not in _OPTIONS:
            raise refusal(
                INVALID_OPTION,
                f"Error in specification {shell_text(given)} :: caused by :: The field '{name}' is not valid for an "
                f"index specification. Specification: {shell_text(given)}",
            )
    key, name = given.get("key"), given.get("name")
    if type(key) is not dict:
        raise refusal(9, "The 'key' field is a required property of an index specification")
    if type(name) is not str:
        raise refusal(9, "The 'name' field is a required property of an index specification")
    if not name or "\x00" in name or name in ("*", "$timeseries_expiry"):
        raise refusal(CANNOT_CREATE, f"The index name '{name}' is not valid.")
    key = _declared_key(key, given.get("weights"))
    _check_key(key)
    if is_identical_key(key, ID_DEFINITION["key"]):
        for option in given:
            if option not in _ID_OPTIONS:
                raise refusal(
                    INVALID_OPTION,
                    f"The field '{option}' is not valid for an _id index specification. Specification: "
                    f"{shell_text(given)}",
                )
    definition: Document = {"v": 2, "key": key, "name": name}
    for option, value in given.items():
        if option in definition or option in _FORGOTTEN:
            continue
        if option in _FLAGS:
            if option == "background":
                definition[option] = truth(value)  # has no effect; shown as given
            elif truth(value):
                definition[option] = True
            continue
        definition[option] = value
    if key == {"_id": 1} and not any(option in definition for option in _TELLING):
        return dict(ID_DEFINITION)
    _check_options(definition)
    return definition


def _declared_key(key: Document, weights: Any) -> Document:
    """The key of a text index as declared, from the form in which it is listed. Tools that restore an index send the
    listed form.
    """
    if key.get("_fts") != "text" or type(weights) is not dict:
        return key
    declared: Document = {}
    for path, kind in key.items():
        if path == "_fts":
            declared |= dict.fromkeys(weights, "text")
        elif path != "_ftsx":
            declared[path] = kind
    return declared


def _is_illegal(part: str) -> bool:
    return part.startswith("$") and part not in REFERENCE


def _check_key(key: Document) -> None:
    if not key:
        raise refusal(CANNOT_CREATE, "Index keys cannot be an empty object")
    if len(key) > limits.INDEX_FIELDS_MAX:
        raise refusal(13103, f"too many index fields: at most {limits.INDEX_FIELDS_MAX}")
    for path, value in key.items():
        if not path or any(not part for part in path.split(".")):
            raise refusal(CANNOT_CREATE, "Index keys cannot be an empty field, or have an empty part.")
        is_wildcard = path == WILDCARD or path.endswith(f".{WILDCARD}")
        if any(_is_illegal(part) for part in path.split(".")) and not is_wildcard:
            raise refusal(CANNOT_CREATE, "Index key contains an illegal field name: field name starts with '$'.")
        if value == "text" and is_wildcard and path != WILDCARD:
            raise refusal(CANNOT_CREATE, f"The text index may index every field by '{WILDCARD}', not by '{path}'.")
        if is_wildcard and len(key) > 1 and value != "text":
            raise refusal(CANNOT_CREATE, "wildcard indexes do not allow compounding")
        if isinstance(value, str):
            if value not in _KINDS:
                raise refusal(CANNOT_CREATE, f"Unknown index plugin '{value}'")
        elif not is_number(value) or not to_decimal(value).is_finite():
            raise refusal(
                CANNOT_CREATE,
                f"Values in v:2 index key pattern cannot be of type {type_name(value)}. Only numbers > 0, numbers < 0, "
                "and strings are allowed.",
            )
        elif to_decimal(value) == 0:
            raise refusal(CANNOT_CREATE, "Values in the index key pattern cannot be 0.")
    if sum(value == "hashed" for value in key.values() if isinstance(value, str)) > 1:
        raise refusal(31303, "A maximum of one index field is allowed to be hashed")


def _check_options(definition: Document) -> None:
    key = definition["key"]
    planar_indexes.check_definition(definition)
    vector_indexes.check_definition(definition)
    is_wildcard = any(path.endswith(WILDCARD) for path in key)
    is_unique = "unique" in definition
    if is_unique and "hashed" in [value for value in key.values() if isinstance(value, str)]:
        raise refusal(16764, "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.")
    if is_wildcard and (is_unique or "expireAfterSeconds" in definition or "sparse" in definition):
        raise refusal(CANNOT_CREATE, "Wildcard indexes can be neither unique nor sparse, nor end lives.")
    if "wildcardProjection" in definition:
        raise refusal(CANNOT_CREATE, "The option wildcardProjection is not supported. Index the paths themselves.")
    if definition.get("prepareUnique"):
        raise refusal(CANNOT_CREATE, "The option prepareUnique is not supported. Make a unique index.")
    if definition.get("storageEngine"):
        raise refusal(CANNOT_CREATE, "The option storageEngine is not supported: there is one.")
    if "partialFilterExpression" in definition:
        if "sparse" in definition:
            raise refusal(CANNOT_CREATE, 'cannot mix "partialFilterExpression" and "sparse" options')
        if type(definition["partialFilterExpression"]) is not dict:
            raise refusal(TYPE_MISMATCH, "The field 'partialFilterExpression' must be an object.")
        partial_filter(definition)
        _check_partial(definition["partialFilterExpression"], 1)
    if "collation" in definition:
        if definition["collation"] == {}:
            raise refusal(40414, "BSON field 'collation.locale' is missing but a required field")
        if parse_collation(definition["collation"]) is None:
            del definition["collation"]
        elif any(isinstance(kind, str) for kind in key.values()):
            raise refusal(CANNOT_CREATE, "Indexes of words, places and hashes have the simple collation only.")
        else:
            definition["collation"] = whole_collation(definition["collation"])
    if "expireAfterSeconds" in definition:
        _check_expiry(definition)
    if "text" in [value for value in key.values() if isinstance(value, str)]:
        _check_text(definition)
    elif "weights" in definition and "_fts" not in key:
        raise refusal(CANNOT_CREATE, "The field 'weights' can only be specified with text indexes.")


def _check_text(definition: Document) -> None:
    weights = definition.get("weights", {})
    if isinstance(weights, str):
        weights = definition["weights"] = {weights: 1}
    if type(weights) is not dict or not all(
        is_number(each) and 0 < to_decimal(each) < 1_000_000_000 for each in weights.values()
    ):
        raise refusal(CANNOT_CREATE, "Text index weights must be numbers from 1 to 1000000000 for each field.")
    language = definition.get("default_language", "english")
    if not isinstance(language, str):
        raise refusal(CANNOT_CREATE, "Text index option 'default_language' must be a string.")
    language_of(language, CANNOT_CREATE)
    if definition.get("unique"):
        raise refusal(CANNOT_CREATE, "Text indexes cannot be unique.")


def _check_expiry(definition: Document) -> None:
    seconds = definition["expireAfterSeconds"]
    if not is_number(seconds):
        raise refusal(TYPE_MISMATCH, "The field 'expireAfterSeconds' must be a number.")
    number = to_decimal(seconds)
    allows_never = list(definition["key"]) == ["_ts"]  # as in Cosmos DB: TTL is on, and each document gives its own
    if not number.is_finite() or not (0 <= number <= limits.TTL_SECONDS_MAX or (allows_never and number == -1)):
        raise refusal(
            CANNOT_CREATE,
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a different number than "
            f"{seconds}.",
        )
    if len(definition["key"]) > 1:
        raise refusal(CANNOT_CREATE, "TTL indexes are single-field indexes, compound indexes do not support TTL.")
    if "_id" in definition["key"]:
        raise refusal(INVALID_OPTION, "The field 'expireAfterSeconds' is not valid for an _id index specification.")
    definition["expireAfterSeconds"] = whole(int(number), is_long=type(seconds) is Int64)


def _check_partial(given: Document, depth: int) -> None:
    """Checks the filter of a partial index: simple operators, nested a few levels."""
    for name, operand in given.items():
        if name in ("$and", "$or"):
            if depth >= _PARTIAL_DEPTH_MAX:
                raise refusal(CANNOT_CREATE, "partialFilterExpression is nested too deeply")
            for each in operand:
                _check_partial(each, depth + 1)
            continue
        operators = operand if is_operators(operand) else {"$eq": operand}
        for operator, value in operators.items():
            is_taken = operator in _PARTIAL and not isinstance(value, Regex)
            if operator == "$exists":
                is_taken = truth(value)
            if name.startswith("$") or not is_taken:
                raise refusal(
                    CANNOT_CREATE,
                    f"Expression not supported in partial index: {name}: {shell_text(operand)}",
                )


def partial_filter(definition: Document) -> Any:
    """The function that tells whether a partial index holds a document; None if it holds all."""
    given = definition.get("partialFilterExpression")
    if given is None:
        return None
    return compile_filter(given, Context.of(0, lambda: 0.0)).matches


def folding(definition: Document) -> Callable[[Document], Document] | None:
    """The function that folds strings which are equal under the collation of a unique index; None if it has none."""
    collation = parse_collation(definition.get("collation")) if "unique" in definition else None
    return collation.folded if collation is not None else None


def added(existing: Sequence[Document], wanted: Iterable[Document]) -> list[Document]:
    """The definitions that do not exist yet; those that conflict with existing ones are refused."""
    known = list(existing)
    new: list[Document] = []
    for each in wanted:
        if _find_same(known, each) is None:
            known.append(each)
            new.append(each)
    if len(known) > limits.INDEXES_MAX:
        raise refusal(CANNOT_CREATE, f"add index fails, too many indexes: at most {limits.INDEXES_MAX}")
    return new


def _find_same(known: Sequence[Document], wanted: Document) -> Document | None:
    for each in known:
        has_same_key = is_identical_key(each["key"], wanted["key"])
        has_same_options = all(is_identical(_option(each, name), _option(wanted, name)) for name in _TELLING)
        if each["name"] == wanted["name"]:
            if has_same_key and has_same_options:
                return each
            raise refusal(
                KEYS_CONFLICT if not has_same_key else OPTIONS_CONFLICT,
                "An existing index has the same name as the requested index. When index names are not specified, they "
                f"are auto generated and can cause conflicts. Requested index: {shell_text(wanted)}, existing index: "
                f"{shell_text(each)}",
            )
        if has_same_key and all(is_identical(each.get(option), wanted.get(option)) for option in _APART):
            if has_same_options:
                raise refusal(OPTIONS_CONFLICT, f"Index already exists with a different name: {each['name']}")
            raise refusal(
                OPTIONS_CONFLICT,
                f"An equivalent index already exists with a different name and options. Requested index: "
                f"{shell_text(wanted)}, existing index: {shell_text(each)}",
            )
        if "text" in each["key"].values() and "text" in wanted["key"].values():
            raise refusal(
                CANNOT_CREATE,
                f'only one text index per collection allowed, found existing text index "{each["name"]}"',
            )
    return None


def _option(definition: Document, name: str) -> Any:
    return definition.get(name, _UNSAID.get(name))


def is_identical_key(left: Document, right: Document) -> bool:
    """Whether two keys have the same fields in the same order and directions, whatever the types of numbers."""
    return [*map(_field, left.items())] == [*map(_field, right.items())]


def _field(entry: tuple[str, Any]) -> tuple[str, str]:
    path, value = entry
    if is_number(value):
        return path, "1" if compare(value, 0) > 0 else "-1"
    return path, str(value)

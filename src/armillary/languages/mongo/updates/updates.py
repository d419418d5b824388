"""Updates: operators on paths, a replacement, or a pipeline, compiled to a function from a document to a new one.

The paths of all operators form one tree, which reveals conflicting paths, and in which new fields are added in the
order of their names, as in MongoDB. A document is never changed in place; if nothing changes, the same object is
returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from bson.dbref import DBRef

from armillary.errors import Failure
from armillary.languages.mongo.errors import (
    CONFLICTING_UPDATES,
    FAILED_TO_PARSE,
    IMMUTABLE_FIELD,
    PATH_NOT_VIABLE,
    bad_value,
    refusal,
)
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.paths import Parts, fields_of, index_of, split
from armillary.languages.mongo.pipeline import compile_transform
from armillary.languages.mongo.updates.array_filters import ArrayFilters, parse_array_filters
from armillary.languages.mongo.updates.update_operators import KEPT, MODIFIERS, Modifier, Place, Reaching
from armillary.model.bson.bson_values import MISSING, Document, equal, is_identical, shell_text, type_name
from armillary.work import paced, sorted_values, spend

_EMPTY_NAME, _DOLLAR_NAME = 56, 52
_PADDING_MAX: Final = 1_500_000  # null elements that one update may add to reach an array index


class Update:
    """`kind` is "operators", "replacement" or "pipeline"."""

    kind: str = "operators"
    needs_position: bool = False  # whether `$` is in a path

    def apply(self, document: Document, matched_index: int | None = None, *, is_insert: bool = False) -> Document:
        """The updated document; the same object if nothing changed. `matched_index` is the element that `$` stands for:
        see `Matcher.first_match` and `positional_array`.
        """
        raise NotImplementedError

    positional_array: str = ""  # the path of the array that `$` refers to


def compile_update(given: Any, context: Context, array_filters: Any = None) -> Update:
    filters = parse_array_filters(array_filters, context)
    if type(given) is list:
        if filters.names:
            raise refusal(FAILED_TO_PARSE, "arrayFilters may not be specified for pipeline-style updates")
        return _PipelineUpdate(given, context)
    if type(given) is not dict:
        raise refusal(FAILED_TO_PARSE, "Update argument must be either an object or an array")
    if next(iter(given), "").startswith("$"):
        return _OperatorUpdate(given, context, filters)
    if filters.names:
        raise refusal(FAILED_TO_PARSE, "arrayFilters may not be specified for replacement-style updates")
    return _Replacement(given)


def is_replacement(given: Any) -> bool:
    return type(given) is dict and not next(iter(given), "").startswith("$")


def check_immutable(before: Document, after: Document, path: str) -> None:
    """Refuses a change of `_id` or of a field of the shard key."""
    old, new = _value_at(before, split(path)), _value_at(after, split(path))
    if old is not MISSING and not equal(old, new):
        raise immutable_refused(path)


def immutable_refused(path: str) -> Failure:
    return refusal(
        IMMUTABLE_FIELD, f"Performing an update on the path '{path}' would modify the immutable field '{path}'"
    )


def check_replacement_names(document: Document) -> None:
    """Refuses names with a dollar in the document that replaces another."""
    if any(name.startswith("$") for name in document):
        raise refusal(_DOLLAR_NAME, "The dollar ($) prefixed field is not allowed in the context of a replacement")


def _value_at(document: Document, parts: Parts) -> Any:
    value: Any = document
    for part in parts:
        if type(value) is not dict:
            return MISSING
        value = value.get(part, MISSING)
    return value


# Replacements and pipelines.


class _Replacement(Update):
    kind = "replacement"

    def __init__(self, given: Document) -> None:
        for name in given:
            if name.startswith("$"):
                raise _dollar_refused(name)
        self._given = given

    def apply(self, document: Document, matched_index: int | None = None, *, is_insert: bool = False) -> Document:
        return _with_id(document, self._given)


def _dollar_refused(path: str) -> Failure:
    return refusal(
        _DOLLAR_NAME,
        f"The dollar ($) prefixed field '{split(path)[0]}' in '{path}' is not allowed in the context of an update's "
        "replacement document. Consider using an aggregation pipeline with $replaceWith.",
    )


def _with_id(before: Document, after: Document) -> Document:
    """The replacement with the `_id` of the document as its first field; another `_id` is refused."""
    if "_id" in before:
        if "_id" in after and not equal(before["_id"], after["_id"]):
            raise refusal(
                IMMUTABLE_FIELD,
                "After applying the update, the (immutable) field '_id' was found to have been altered to _id: "
                f"{shell_text(after['_id'])}",
            )
        after = {"_id": before["_id"], **{name: value for name, value in after.items() if name != "_id"}}
    return before if is_identical(before, after) else after


class _PipelineUpdate(Update):
    kind = "pipeline"

    def __init__(self, given: list[Any], context: Context) -> None:
        self._transform = compile_transform(given, context)

    def apply(self, document: Document, matched_index: int | None = None, *, is_insert: bool = False) -> Document:
        return _with_id(document, self._transform(document))


# Operators.


@dataclass(slots=True)
class _Tree:
    children: dict[str, _Node] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)  # names in the order of application; set when the tree is complete

    def complete(self) -> None:
        self.order = sorted_values(self.children, _name_order)
        for child in self.children.values():
            if isinstance(child, _Tree):
                child.complete()


_Node: TypeAlias = "_Tree | Modifier"


def _name_order(name: str) -> tuple[int, int, str]:
    index = index_of(name)
    return (0, index, "") if index >= 0 else (1, 0, name)


def _add(tree: _Tree, path: str, parts: Sequence[str], modifier: Modifier) -> None:
    node = tree
    for place, part in enumerate(parts):
        child = node.children.get(part)
        is_end = place == len(parts) - 1
        if child is None and node.children and _is_filtered(next(iter(node.children))) is not _is_filtered(part):
            conflict = ".".join(parts[:place])
            raise refusal(CONFLICTING_UPDATES, f"Updating the path '{path}' would create a conflict at '{conflict}'")
        if child is None:
            if is_end:
                node.children[part] = modifier
                return
            child = node.children[part] = _Tree()
        if is_end or not isinstance(child, _Tree):
            conflict = ".".join(parts[: place + 1])
            raise refusal(CONFLICTING_UPDATES, f"Updating the path '{path}' would create a conflict at '{conflict}'")
        node = child


class _OperatorUpdate(Update):
    def __init__(self, given: Document, context: Context, filters: ArrayFilters) -> None:
        self._changes: list[tuple[Parts, Modifier]] = []
        self._filters = filters
        self._dollars: list[str] = []  # paths that are allowed in inserts only
        for name, paths in given.items():
            self._read(name, paths, context)
        self._is_fixed = not any(_is_dynamic(part) for parts, _ in self._changes for part in parts)
        positional = [parts for parts, _ in self._changes if "$" in parts]
        self.needs_position = bool(positional)
        if positional:
            self.positional_array = ".".join(positional[0][: positional[0].index("$")])
        used = {part[2:-1] for parts, _ in self._changes for part in parts if part.startswith("$[")}
        for name in filters.names:
            if name not in used:
                raise refusal(
                    FAILED_TO_PARSE,
                    f"The array filter for identifier '{name}' was not used in the update {shell_text(given)}",
                )
        # Conflicting paths are refused before any document is read.
        self._tree = self._grown([(".".join(parts), parts, modifier) for parts, modifier in paced(self._changes, 5)])

    def _read(self, name: str, paths: Any, context: Context) -> None:
        if name != "$rename" and name not in MODIFIERS:
            raise refusal(
                FAILED_TO_PARSE,
                f"Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an "
                "array",
            )
        if type(paths) is not dict:
            raise refusal(
                FAILED_TO_PARSE,
                f"Modifiers operate on fields but we found type {type_name(paths)} instead. For example: {{$mod: "
                f"{{<field>: ...}}}} not {{{name}: {shell_text(paths)}}}",
            )
        for path, operand in paths.items():
            parts = self._path(path)
            if name == "$rename":
                self._read_rename(path, parts, operand)
            else:
                self._changes.append((parts, MODIFIERS[name](operand, path, context)))

    def _path(self, path: str) -> Parts:
        if not path:
            raise refusal(_EMPTY_NAME, "An empty update path is not valid.")
        parts = split(path)
        if "\0" in path:
            raise bad_value("Paths of updates cannot contain an embedded null byte")
        if "" in parts:
            raise refusal(_EMPTY_NAME, f"The update path '{path}' contains an empty field name, which is not allowed.")
        if parts[0].startswith("$") and (parts[0] == "$" or parts[0].startswith("$[")):
            raise bad_value(f"Cannot have positional (i.e. '$') element in the first position in path '{path}'")
        if parts.count("$") > 1:
            raise bad_value(f"Too many positional (i.e. '$') elements found in path '{path}'")
        for part in parts:
            if part.startswith("$[") and part.endswith("]"):
                identifier = part[2:-1]
                if identifier and identifier not in self._filters.names:
                    raise bad_value(f"No array filter found for identifier '{identifier}' in path '{path}'")
            elif part.startswith("$") and part is parts[0]:
                self._dollars.append(path)
        return parts

    def _read_rename(self, path: str, parts: Parts, operand: Any) -> None:
        if type(operand) is not str:
            raise bad_value(f"The 'to' field for $rename must be a string: {path}: {shell_text(operand)}")
        target = self._path(operand)
        if path == operand:
            raise bad_value(f'The source and target field for $rename must differ: {path}: "{operand}"')
        for what, each in (("source", parts), ("destination", target)):
            if any(_is_dynamic(part) for part in each):
                raise bad_value(f"The {what} field for $rename may not be dynamic: {'.'.join(each)}")

        def taken(value: Any, place: Place) -> Any:
            _check_rename(place.document, parts, "source")
            return KEPT if value is MISSING else MISSING

        def given(value: Any, place: Place) -> Any:
            source = _value_at(place.document, parts)
            if source is MISSING:
                return KEPT
            _check_rename(place.document, target, "destination")
            return source

        self._changes.append((parts, Reaching(taken)))
        self._changes.append((target, given))

    @staticmethod
    def _grown(changes: Sequence[tuple[str, Sequence[str], Modifier]]) -> _Tree:
        tree = _Tree()
        for path, parts, modifier in changes:
            spend(10)
            _add(tree, path, parts, modifier)
        tree.complete()
        return tree

    def apply(self, document: Document, matched_index: int | None = None, *, is_insert: bool = False) -> Document:
        if self._dollars and not is_insert:
            raise _dollar_refused(self._dollars[0])
        if self._is_fixed:
            tree = self._tree
        else:
            concrete: list[tuple[str, Sequence[str], Modifier]] = []
            for parts, modifier in self._changes:
                for found in paced(self._expanded(document, parts, matched_index), 5):
                    concrete.append((".".join(found), found, modifier))
            tree = self._grown(concrete)
        result = _applied(tree, document, document, "", is_insert)
        if result is KEPT:
            return document
        changed: Document = result
        if not is_insert and "_id" in tree.children:
            check_immutable(document, changed, "_id")
        return changed

    def _expanded(self, document: Document, parts: Parts, matched_index: int | None) -> list[list[str]]:
        """The paths in a document that a path with `$`, `$[]` or `$[name]` stands for."""
        found: list[tuple[list[str], Any]] = [([], document)]
        for part in parts:
            if not _is_dynamic(part):
                found = [([*path, part], _member(value, part)) for path, value in paced(found, 5)]
                continue
            following: list[tuple[list[str], Any]] = []
            for path, value in found:
                if part == "$":
                    if matched_index is None:
                        raise bad_value("The positional operator did not find the match needed from the query.")
                    following.append(([*path, str(matched_index)], _member(value, str(matched_index))))
                else:
                    array = _array_for(path, value)
                    matches = self._filters.matches(part[2:-1])
                    places = enumerate(paced(array, 6))
                    following += [([*path, str(place)], each) for place, each in places if matches(each)]
            found = following
        return [path for path, _ in paced(found, 1)]


def _is_dynamic(part: str) -> bool:
    return part == "$" or _is_filtered(part)


def _is_filtered(part: str) -> bool:
    return part.startswith("$[") and part.endswith("]")


def _member(value: Any, name: str) -> Any:
    if type(value) is DBRef:
        value = fields_of(value)
    if type(value) is dict:
        return value.get(name, MISSING)
    if type(value) is list:
        index = index_of(name)
        return value[index] if 0 <= index < len(value) else MISSING
    return MISSING


def _array_for(path: list[str], value: Any) -> list[Any]:
    if type(value) is list:
        return value
    if value is MISSING:
        raise bad_value(f"The path '{'.'.join(path)}' must exist in the document in order to apply array updates.")
    raise bad_value(f"Cannot apply array updates to non-array element {path[-1]}: {shell_text(value)}")


def _check_rename(document: Document, parts: Parts, what: str) -> None:
    value: Any = document
    for place, part in enumerate(parts):
        if type(value) is list:
            raise bad_value(
                f"The {what} field cannot be an array element, '{'.'.join(parts)}' in doc with _id: "
                f"{shell_text(document.get('_id'))} has an array field called '{parts[place - 1]}'"
            )
        if type(value) is not dict:
            return
        value = value.get(part, MISSING)


# Application, from the root down. Unchanged values are shared with the original document.


def _applied(node: _Node, value: Any, document: Document, path: str, is_insert: bool) -> Any:
    if not isinstance(node, _Tree):
        return node(value, Place(document, path, is_insert))
    if type(value) is DBRef:
        value = fields_of(value)
    if type(value) is dict:
        return _applied_to_fields(node, value, document, path, is_insert)
    if type(value) is list:
        return _applied_to_elements(node, value, document, path, is_insert)
    made = _applied_to_fields(node, {}, document, path, is_insert)
    if value is not MISSING:
        if made is not KEPT:
            _refuse_path(next(iter(made)), path, value)
        _check_reach(node, path, value)
    return made


def _check_reach(tree: _Tree, path: str, value: Any) -> None:
    """Refuses a value that blocks the path to a field which must be reachable."""
    for name, below in tree.children.items():
        if isinstance(below, Reaching) or (isinstance(below, _Tree) and _reaches(below)):
            _refuse_path(name, path, value)


def _reaches(tree: _Tree) -> bool:
    return any(
        _reaches(each) if isinstance(each, _Tree) else isinstance(each, Reaching) for each in tree.children.values()
    )


def _applied_to_fields(tree: _Tree, fields: Document, document: Document, path: str, is_insert: bool) -> Any:
    result = fields
    spend(len(fields) // 8)
    for name in paced(tree.order, 8):
        below = f"{path}.{name}" if path else name
        value = _applied(tree.children[name], fields.get(name, MISSING), document, below, is_insert)
        if value is KEPT:
            continue
        if result is fields:
            result = dict(fields)
        if value is MISSING:
            result.pop(name, None)
        else:
            result[name] = value
    return KEPT if result is fields else result


def _applied_to_elements(tree: _Tree, array: list[Any], document: Document, path: str, is_insert: bool) -> Any:
    result = array
    spend(len(array) // 8)
    for name in paced(tree.order, 8):
        node = tree.children[name]
        index = index_of(name)
        if index < 0:
            is_reached = isinstance(node, Reaching) or (isinstance(node, _Tree) and _reaches(node))
            if _applied(node, MISSING, document, f"{path}.{name}", is_insert) is not KEPT or is_reached:
                _refuse_path(name, path, array)
            continue
        old = array[index] if index < len(array) else MISSING
        value = _applied(node, old, document, f"{path}.{name}", is_insert)
        if value is KEPT or (value is MISSING and (old is MISSING or old is None)):
            continue
        if result is array:
            result = list(array)
        if index >= len(result):
            if index - len(array) > _PADDING_MAX:
                raise bad_value(f"Cannot add more than {_PADDING_MAX} elements to reach the index {index} of '{path}'")
            result.extend([None] * (index + 1 - len(result)))
        # `$unset` sets an array element to null, so that the others keep their indexes.
        result[index] = None if value is MISSING else value
    return KEPT if result is array else result


def _refuse_path(name: str, path: str, value: Any) -> None:
    raise refusal(
        PATH_NOT_VIABLE,
        f"Cannot create field '{name}' in element {{{path.rpartition('.')[2]}: {shell_text(value)}}}",
    )

"""Partial document updates: parsing a patch and applying it. All operations succeed or none is applied; the given
document is not modified. The condition is text, evaluated by the query language; size and ttl of the new document are
checked where every write checks them.

Paths are JSON pointers (`/a/b/0`, `~1` for a slash, `~0` for a tilde). What each operation does:

| op      | object member                    | array index                                    | `-`     |
|---------|----------------------------------|------------------------------------------------|---------|
| add     | creates or overwrites            | inserts before; the length appends             | appends |
| set     | creates or overwrites            | overwrites; the length appends                 | appends |
| replace | overwrites, must exist           | overwrites, must exist                         | refused |
| remove  | must exist                       | must exist, later ones move up                 | refused |
| incr    | adds to a number, creates        | adds to a number, must exist                   | refused |
| move    | remove at `from`, then add at `path`; `path` may not lie inside `from`              | appends |

In every case the parent must exist.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from armillary import limits
from armillary.errors import Failure, bad_request
from armillary.model.items import SYSTEM_PROPERTIES, check_depth
from armillary.model.json_members import members, shown

Steps = tuple[str, ...]

_MEMBERS = {
    "add": {"op", "path", "value"},
    "set": {"op", "path", "value"},
    "replace": {"op", "path", "value"},
    "remove": {"op", "path"},
    "incr": {"op", "path", "value"},
    "move": {"op", "path", "from"},
}
_INDEX = re.compile(r"(0|[1-9][0-9]{0,8})\Z", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Operation:
    op: str
    path: Steps
    source: Steps = ()  # `from`, for move
    value: Any = None

    def to_json(self) -> dict[str, Any]:
        members = {"op": self.op, "path": _pointer(self.path), "from": _pointer(self.source), "value": self.value}
        return {name: value for name, value in members.items() if name in _MEMBERS[self.op]}


@dataclass(frozen=True, slots=True)
class Patch:
    condition: str | None
    operations: tuple[Operation, ...]

    def apply(self, document: dict[str, Any], key_paths: Iterable[Steps] = ()) -> dict[str, Any]:
        """The document after all operations. `key_paths`: the steps of each path of the partition-key definition."""
        protected: list[Steps] = [("id",), *((name,) for name in SYSTEM_PROPERTIES), *key_paths]
        for position, operation in enumerate(self.operations):
            try:
                _check_allowed(operation.path, protected)
                if operation.op == "move":
                    _check_allowed(operation.source, protected)
                document = _apply(document, operation)
            except Failure as failure:
                raise bad_request(f"Patch operation {position} ({operation.op}): {failure.message}") from None
        check_depth(document)
        return document

    def to_json(self) -> dict[str, Any]:
        """As in requests."""
        body: dict[str, Any] = {"condition": self.condition} if self.condition is not None else {}
        body["operations"] = [operation.to_json() for operation in self.operations]
        return body


def parse_patch(body: Any) -> Patch:
    """A patch document: `{"condition": text, "operations": [...]}`, or the bare list of operations that JS may send."""
    if type(body) is list:
        body = {"operations": body}
    if type(body) is not dict:
        raise bad_request("A patch must be a JSON object with 'operations', a list.")
    members(body, "a patch", {"condition", "operations"})
    condition = body.get("condition")
    if condition is not None and type(condition) is not str:
        raise bad_request("The 'condition' of a patch must be text such as \"from c where c.n = 3\".")
    operations = body.get("operations")
    if type(operations) is not list or not 1 <= len(operations) <= limits.PATCH_OPERATIONS_MAX:
        found = len(operations) if type(operations) is list else "none"
        raise bad_request(
            f"The 'operations' of a patch must be a list of 1 to {limits.PATCH_OPERATIONS_MAX} operations, not {found}."
        )
    return Patch(condition or None, tuple(_parse_operation(at, given) for at, given in enumerate(operations)))


def _parse_operation(position: int, given: Any) -> Operation:
    what = f"Patch operation {position}"
    if type(given) is not dict:
        raise bad_request(f"{what} must be a JSON object with 'op' and 'path'.")
    op = given.get("op")
    if type(op) is not str or op not in _MEMBERS:
        raise bad_request(f"{what} has the unknown 'op' '{shown(op)}'. Known are {', '.join(_MEMBERS)}.")
    what = f"{what} ({op})"
    if op == "remove" and given.get("value", ...) is None:
        given = {name: value for name, value in given.items() if name != "value"}  # Java's client writes "value": null
    members(given, what, _MEMBERS[op])
    for member in ("path", "value", "from"):
        if member in _MEMBERS[op] and member not in given:
            raise bad_request(f"{what} lacks '{member}'.")
    value = given.get("value")
    if op == "incr" and type(value) is not int and type(value) is not float:
        raise bad_request(f"{what} needs a number as 'value'.")
    source = _parse_pointer(given["from"], f"The 'from' of {what}") if op == "move" else ()
    path = _parse_pointer(given["path"], f"The 'path' of {what}")
    if op == "move" and len(path) > len(source) and path[: len(source)] == source:
        raise bad_request(f"{what} would put {_text(source)} inside itself.")
    return Operation(op, path, source, value)


def _parse_pointer(text: Any, what: str) -> Steps:
    if type(text) is not str or not text.startswith("/"):
        raise bad_request(
            f"{what} must be a JSON pointer that begins with '/', such as '/a/b/0'; found '{shown(text)}'."
        )
    if _BAD_ESCAPE.search(text):
        raise bad_request(f"{what} has a '~' that is not followed by 0 or 1; write '~0' for '~' and '~1' for '/'.")
    steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))
    if len(steps) > limits.ITEM_DEPTH_MAX:
        raise bad_request(f"{what} goes deeper than {limits.ITEM_DEPTH_MAX} levels.")
    return steps


def _check_allowed(path: Steps, protected: list[Steps]) -> None:
    """Refuse a path to a protected property, to an ancestor of one, or into one."""
    for steps in protected:
        shared = min(len(path), len(steps))
        if path[:shared] == steps[:shared]:
            raise bad_request(
                f"{_text(path)} may not be changed by a patch, because {_text(steps)} is the id, a system property or "
                "part of the partition key. Delete the item and create it anew to change those."
            )


def _apply(document: dict[str, Any], operation: Operation) -> dict[str, Any]:
    if operation.op == "move":
        without, moved = _removed(document, operation.source)
        return _placed(without, operation.path, moved, "add")
    if operation.op == "remove":
        return _removed(document, operation.path)[0]
    return _placed(document, operation.path, operation.value, operation.op)


def _removed(document: dict[str, Any], path: Steps) -> tuple[dict[str, Any], Any]:
    root, parent = _opened(document, path)
    last = path[-1]
    if type(parent) is dict:
        if last not in parent:
            raise bad_request(f"{_text(path)} does not exist.")
        return root, parent.pop(last)
    return root, parent.pop(_existing_index(parent, path))


def _placed(document: dict[str, Any], path: Steps, value: Any, op: str) -> dict[str, Any]:
    root, parent = _opened(document, path)
    last = path[-1]
    if type(parent) is dict:
        if op == "incr":
            value = _sum(parent[last], value, path) if last in parent else value
        elif op == "replace" and last not in parent:
            raise bad_request(f"{_text(path)} does not exist. Use 'set' or 'add' to create it.")
        parent[last] = value
    elif op in ("add", "set") and (last == "-" or last == str(len(parent))):
        parent.append(value)
    else:
        index = _existing_index(parent, path)
        if op == "add":
            parent.insert(index, value)
        elif op == "incr":
            parent[index] = _sum(parent[index], value, path)
        else:
            parent[index] = value
    return root


def _opened(document: dict[str, Any], path: Steps) -> tuple[dict[str, Any], Any]:
    """A copy of the document in which everything on the path is new, and the path's parent in it. The rest is shared
    with the original."""
    root = parent = dict(document)
    node: Any = parent
    for depth, step in enumerate(path[:-1], start=1):
        if type(node) is dict:
            if step not in node:
                raise bad_request(f"{_text(path)} cannot be reached: {_text(path[:depth])} does not exist.")
            key: Any = step
        else:
            key = _existing_index(node, path[:depth])
        child = node[key]
        if type(child) is dict:
            child = dict(child)
        elif type(child) is list:
            child = list(child)
        else:
            raise bad_request(f"{_text(path)} cannot be reached: {_text(path[:depth])} is no object and no array.")
        node[key] = child
        node = child
    return root, node


def _existing_index(array: list[Any], path: Steps) -> int:
    found = _INDEX.match(path[-1])
    if not found:
        raise bad_request(f"{_text(path)} points into an array, where only an index such as 0 can stand.")
    index = int(path[-1])
    if index >= len(array):
        raise bad_request(f"{_text(path)} is outside of the array, which has {len(array)} elements.")
    return index


def _sum(old: Any, value: int | float, path: Steps) -> int | float:
    if type(old) is not int and type(old) is not float:
        raise bad_request(f"{_text(path)} is not a number, so it cannot be incremented.")
    try:
        total: int | float = old + value
    except OverflowError:
        total = math.inf
    if type(total) is int:
        if not _INTEGER_MIN <= total <= _INTEGER_MAX:
            raise bad_request(f"{_text(path)} would leave the range of 64-bit integers.")
    elif not math.isfinite(total):
        raise bad_request(f"{_text(path)} would leave the range of numbers.")
    return total


def _text(path: Steps) -> str:
    return f"'{shown(_pointer(path))}'"


def _pointer(path: Steps) -> str:
    return "/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in path)

"""`$out` and `$merge`: their options, and how `$merge` combines a document with an existing one. Reading and writing
the target collection is the door's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from armillary.languages.mongo.errors import TYPE_MISMATCH, bad_value, refusal
from armillary.languages.mongo.expression_context import Context, Values
from armillary.languages.mongo.expressions.compiling import check_path, compile_expression
from armillary.languages.mongo.stages.stage import over
from armillary.model.bson.bson_values import Document, type_name

Transform = Callable[[Document], Document]
CompileTransform = Callable[[list[Any], Context], Transform]

_MERGE: Final = frozenset("into on let whenMatched whenNotMatched".split())
_NOT_MATCHED: Final = ("insert", "discard", "fail")


@dataclass(frozen=True, slots=True)
class Out:
    """`$out`: replaces a collection."""

    database: str | None
    collection: str


@dataclass(frozen=True, slots=True)
class Merge:
    """`$merge`: writes documents to a collection. `when_matched` is replace, keepExisting, merge, fail or pipeline."""

    database: str | None
    collection: str
    on: tuple[str, ...]
    when_matched: str
    when_not_matched: str
    _transform: Transform | None = None
    _context: Context | None = None  # context of the pipeline in `whenMatched`, with `let`
    _outer: Context | None = None
    _let: Mapping[str, Callable[[Document], Any]] = field(default_factory=dict)
    stages: list[Any] | None = None  # the pipeline in `whenMatched`, as given

    def variables(self, incoming: Document, values: Values) -> Document:
        """What the pipeline in `whenMatched` may name, for a document that is merged: the variables of the command and
        its own."""
        if self._outer is None:
            return {}
        self._outer.begin(values)
        own = {name: each(incoming) for name, each in self._let.items()}
        return {**self._outer.given_values(), **own}

    def merged(self, existing: Document, incoming: Document, variables: Document, values: Values) -> Document:
        """The document that replaces an existing one with the same values in the `on` fields. `variables`: made for the
        incoming one."""
        match self.when_matched:
            case "merge":
                return {**existing, **incoming}
            case "keepExisting":
                return existing
            case "pipeline":
                assert self._transform is not None and self._context is not None
                self._context.begin([*values, *[variables[name] for name in self._let]])
                return self._transform(existing)
        return incoming


def target(name: str, given: Any) -> tuple[str | None, str]:
    """Database, if it is another one, and collection of the target."""
    if type(given) is str:
        database, collection = None, given
    elif type(given) is dict:
        for each in given:
            if each not in ("db", "coll"):
                raise refusal(40415, f"BSON field '{name}.{each}' is an unknown field.")
        if "coll" not in given or (name == "$out" and "db" not in given):
            raise refusal(40414, f"BSON field '{name}.coll' is missing but a required field")
        database, collection = given.get("db"), given["coll"]
        for each in (database, collection):
            if each is not None and type(each) is not str:
                raise refusal(TYPE_MISMATCH, f"{name} names its target by strings")
    else:
        code = 16990 if name == "$out" else 51178
        raise refusal(code, f"{name} only supports a string or object argument, but found {type_name(given)}")
    if not collection:
        raise refusal(73, f"Invalid {name} target namespace: the collection has no name")
    return database, collection


def out(name: str, spec: Any) -> Out:
    return Out(*target(name, spec))


def merge(name: str, spec: Any, context: Context, compile_transform: CompileTransform) -> Merge:
    if type(spec) is str:
        spec = {"into": spec}
    if type(spec) is not dict:
        raise refusal(51182, f"$merge requires a string or object argument, but found {type_name(spec)}")
    for each in spec:
        if each not in _MERGE:
            raise refusal(40415, f"BSON field '$merge.{each}' is an unknown field.")
    if "into" not in spec:
        raise refusal(40414, "BSON field '$merge.into' is missing but a required field")
    database, collection = target(name, spec["into"])
    on = _on(spec.get("on", "_id"))
    not_matched = spec.get("whenNotMatched", "insert")
    if not_matched not in _NOT_MATCHED:
        raise bad_value(f"Enumeration value '{not_matched}' for field '$merge.whenNotMatched' is not a valid value.")
    matched = spec.get("whenMatched", "merge")
    if type(matched) is not list:
        if matched not in ("replace", "keepExisting", "merge", "fail"):
            raise bad_value(f"Enumeration value '{matched}' for field '$merge.whenMatched' is not a valid value.")
        if "let" in spec:
            raise refusal(51199, "Cannot use 'let' variables with 'whenMatched: " + matched + "' mode")
        if not_matched != "insert" and matched in ("keepExisting", "fail"):
            raise refusal(
                51181,
                f"Combination of $merge modes 'whenMatched: {matched}' and 'whenNotMatched: {not_matched}' is not "
                "supported",
            )
        return Merge(database, collection, on, matched, not_matched)
    variables = spec.get("let", {})
    if type(variables) is not dict:
        raise refusal(TYPE_MISMATCH, "$merge requires 'let' to be an object")
    variables = {"new": "$$ROOT", **variables}
    if variables["new"] != "$$ROOT":
        raise refusal(51273, "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'")
    inner = context.nested(variables)
    let = {name: over(compile_expression(each, context), context) for name, each in variables.items()}
    transform = compile_transform(matched, inner)
    return Merge(database, collection, on, "pipeline", not_matched, transform, inner, context, let, matched)


def _on(given: Any) -> tuple[str, ...]:
    fields = [given] if type(given) is str else given
    if type(fields) is not list:
        raise refusal(51186, "$merge 'on' field  must be either a string or an array of strings")
    if not fields:
        raise refusal(51187, "If explicitly specifying $merge 'on', must include at least one field")
    if not all(type(each) is str for each in fields):
        raise refusal(51134, "$merge 'on' array elements must be strings")
    if len(set(fields)) != len(fields):
        raise refusal(31465, "Found a duplicate field in $merge 'on'")
    for each in fields:
        check_path(each)
    return tuple(fields)

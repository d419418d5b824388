"""The filter compiler: a filter document to a function of a document, operator by operator. The tests are in
`comparisons`, `value_types`, `geo`, `text_search` and `validation/json_schema`.

The part of a filter that an index can serve is derived by `languages/mongo/indexes/index_conditions.py`; documents
found by an index are tested by the matcher again. Matchers of filters that depend on nothing but the document are
cached by the filter's BSON.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Final

from bson.code import Code
from bson.dbref import DBRef
from bson.regex import Regex

from armillary.languages.mongo.errors import FAILED_TO_PARSE, bad_value, refusal
from armillary.languages.mongo.expression_context import RANDOM, Context
from armillary.languages.mongo.expressions.compiling import compile_over_documents
from armillary.languages.mongo.filters import comparisons, geo, value_types
from armillary.languages.mongo.filters.predicates import (
    AnyOf,
    Both,
    Leaf,
    Node,
    Not,
    ValuePredicate,
    all_of,
    at_path,
    negated,
    of_value,
)
from armillary.languages.mongo.filters.regexes import regex_matcher
from armillary.languages.mongo.filters.text_search import TextIndex, TextQuery
from armillary.languages.mongo.javascript.requests import Scripts, source_of
from armillary.languages.mongo.sort_keys import KeyBounds
from armillary.languages.mongo.validation.json_schema import compile_schema
from armillary.model.bson.bson_values import MISSING, Document, encode, is_number, regex_options
from armillary.query.compiled_cache import CompiledCache
from armillary.work import portions, spend

_NO_TEXT_INDEX = 27
_STRIDE: Final = 256  # elements between two calls that meter work
_MANY_VALUES: Final = 8  # from so many values of `$all` or `$or` on, they are hashed
_LOGICAL: Final = ("$and", "$or", "$nor")
_CACHED_BYTES_MAX: Final = 2048
# Operators whose result depends on more than the document.
_VOLATILE: Final = (b"$expr", b"$sampleRate", b"$text", b"$where")


class Matcher:
    """A compiled filter."""

    def __init__(
        self,
        given: Document,
        context: Context,
        node: Node,
        near: geo.Near | None,
        text: TextQuery | None,
        *,
        has_where: bool = False,
    ) -> None:
        self.given = given
        self.context = context  # it was compiled in
        self.bounds: KeyBounds | None = None  # `min` and `max`, which `matches` looks at too
        self.matches: Callable[[Document], bool] = node.holds
        self._node = node
        self.near = near  # $near and $nearSphere also sort
        self.hint: str | None = None  # the index that the client's hint names
        self.text = text  # $text also gives scores
        self.has_where = has_where  # it runs JavaScript

    def first_match(self, document: Document, array: str = "") -> int | None:
        """The index of the array element that made the filter match, which the positional `$` stands for; of the array
        `array`, if the filter is about several.
        """
        return self._node.position(document, array)

    def between(self, bounds: KeyBounds) -> Matcher:
        """The matcher of documents that are within the bounds too."""
        found = copy(self)
        matches, is_within = self.matches, bounds.test()
        found.matches = lambda document: is_within(document) and matches(document)
        found.bounds = bounds
        return found


REFERENCE: Final = ("$ref", "$id", "$db")  # fields of a DBRef


def compile_filter(given: Any, context: Context, *, text_index: TextIndex | None = None) -> Matcher:
    if type(given) is not dict:
        raise refusal(14, "The filter must be an object.")
    reader = _Reader(context, text_index)
    node = reader.query(given, is_top=True)
    return Matcher(given, context, node, reader.near, reader.text, has_where=reader.has_where)


def compile_test(given: Document, context: Context) -> Callable[[Any], bool]:
    """Compiles operators such as `{$gte: 5}` to a test of a single value."""
    return of_value(_Reader(context, None).operators("", given))


def is_operators(value: Any) -> bool:
    """Whether an object holds operators, by its first name, and is not a value to compare with."""
    if type(value) is not dict or not value:
        return False
    first = next(iter(value))
    return first.startswith("$") and first not in REFERENCE


class _Reader:
    def __init__(self, context: Context, text_index: TextIndex | None) -> None:
        self._context = context
        self._key = context.key
        self._text_index = text_index
        self.near: geo.Near | None = None
        self.text: TextQuery | None = None
        self.has_where = False
        self._arrays = 0  # nesting of $elemMatch

    # Documents.

    def query(self, given: Document, *, is_top: bool = False) -> Node:
        nodes: list[Node] = []
        # JavaScript runs in another process: the rest of the filter is tested first.
        for name, operand in sorted(given.items(), key=_is_where) if "$where" in given else given.items():
            spend(30)
            if name.startswith("$") and name not in REFERENCE:
                node = self._top_level(name, operand, is_top)
                if node is not None:
                    nodes.append(node)
            else:
                nodes.append(self._field(name, operand, is_top))
        return all_of(nodes)

    def _top_level(self, name: str, operand: Any, is_top: bool) -> Node | None:
        match name:
            case "$and" | "$or" | "$nor":
                return self._logical(name, operand, is_top)
            case "$comment":
                return None
            case "$expr" | "$jsonSchema" | "$text" | "$where" if self._arrays:
                raise bad_value(f"{name} can only be applied to the top-level document")
            case "$expr":
                return self._expression(operand)
            case "$jsonSchema":
                return Node(compile_schema(operand))
            case "$text":
                return self._text(operand)
            case "$sampleRate":
                return self._sample(operand)
            case "$alwaysTrue" | "$alwaysFalse":
                if value_types.whole_number(operand) != 1:
                    raise refusal(FAILED_TO_PARSE, f"{name} must be an integer value of 1")
                is_kept = name == "$alwaysTrue"
                return Node(lambda _document: is_kept)
            case "$where":
                return self._where(operand)
        raise bad_value(
            f"unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider "
            "using $getField or $setField."
        )

    def _logical(self, name: str, operand: Any, is_top: bool) -> Node:
        if type(operand) is not list:
            raise bad_value(f"{name} argument must be an array")
        if not operand:
            raise bad_value("$and/$or/$nor must be a nonempty array")
        for portion in portions(operand, 1):
            if not all(type(each) is dict for each in portion):
                raise bad_value("$or/$and/$nor entries need to be full objects")
        if name == "$or" and len(operand) > _MANY_VALUES:
            one_of = self._one_of(operand)
            if one_of is not None:
                return one_of
        has_text = self.text is not None
        nodes = [self.query(each, is_top=is_top and name == "$and") for each in operand]
        if name == "$nor" and self.text is not None and not has_text:
            raise bad_value("$text cannot be negated: it is not allowed in $nor")
        if name == "$and":
            return all_of(nodes)
        return AnyOf(nodes) if name == "$or" else negated(AnyOf(nodes))

    def _one_of(self, branches: list[Document]) -> Node | None:
        """An `$or` of equalities on one field, compiled as `$in`; None if it is not one."""
        path = next(iter(branches[0]), "")
        values: list[Any] = []
        for portion in portions(branches, 5):
            for each in portion:
                value = each.get(path, MISSING)
                if len(each) != 1 or value is None or value is MISSING or isinstance(value, Regex | DBRef | dict):
                    return None
                values.append(value)
        return None if path.startswith("$") else at_path(path, Leaf(comparisons.among(values, self._key)))

    def _expression(self, operand: Any) -> Node:
        evaluate = compile_over_documents(operand, self._context)
        return Node(lambda document: value_types.truth(evaluate(document)))

    def _text(self, operand: Any) -> Node:
        if self._text_index is None:
            raise refusal(_NO_TEXT_INDEX, "text index required for $text query")
        if self.text is not None:
            raise bad_value("Too many text expressions")
        self.text = TextQuery(operand, self._text_index)
        return Node(self.text.matches)

    def _where(self, operand: Any) -> Node:
        if isinstance(operand, Code) and operand.scope is not None:
            raise bad_value("$where no longer supports code with a scope")
        source, scripts = source_of(operand, "$where"), Scripts(self._context)
        self.has_where = True
        return Node(lambda document: scripts.test(source, document))

    def _sample(self, operand: Any) -> Node:
        if not is_number(operand) or not 0 <= value_types.number_of(operand) <= 1:
            raise bad_value("The argument of $sampleRate must be a number between 0 and 1")
        rate, values = float(value_types.number_of(operand)), self._context.values
        return Node(lambda _document: values[RANDOM]() < rate)

    # Fields.

    def _field(self, path: str, operand: Any, is_top: bool) -> Node:
        if is_operators(operand):
            if is_top and geo.is_near(operand):
                return self._near(path, operand)
            return at_path(path, self.operators(path, operand))
        return at_path(path, self._equal(operand))

    def _near(self, path: str, operand: Document) -> Node:
        if self.near is not None:
            raise bad_value("Too many geoNear expressions")
        rest, self.near = geo.read_near(path, operand)
        near = Node(self.near.matches)
        return all_of([near, at_path(path, self.operators(path, rest))]) if rest else near

    def _equal(self, operand: Any) -> Leaf:
        spend(15)
        if isinstance(operand, Regex):
            return Leaf(comparisons.regex_test(operand))
        if isinstance(operand, DBRef):
            operand = dict(operand.as_doc())
        return Leaf(comparisons.equals(operand, self._key))

    def operators(self, path: str, given: Document) -> ValuePredicate:
        parts: list[ValuePredicate] = []
        for name, operand in given.items():
            part = self._operator(path, name, operand, given)
            if part is not None:
                parts.append(part)
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _operator(self, path: str, name: str, operand: Any, beside: Document) -> ValuePredicate | None:
        match name:
            case "$eq":
                return Leaf(comparisons.equals(operand, self._key))
            case "$ne":
                if isinstance(operand, Regex):
                    raise bad_value("Can't have regex as arg to $ne.")
                return Not(Leaf(comparisons.equals(operand, self._key)))
            case "$lt" | "$lte" | "$gt" | "$gte":
                return Leaf(comparisons.ordered(name, operand, self._key, path))
            case "$in":
                return self._among(name, operand)
            case "$nin":
                return Not(self._among(name, operand))
            case "$not":
                return Not(self._negated(path, operand))
            case "$exists":
                found = Leaf(value_types.exists)
                return found if value_types.truth(operand) else Not(found)
            case "$type":
                return Leaf(value_types.type_test(operand))
            case "$size":
                return Leaf(value_types.size_test(operand), unwinds=False)
            case "$mod":
                return Leaf(value_types.mod_test(operand))
            case "$all":
                return self._all(path, operand)
            case "$elemMatch":
                return self._element(operand)
            case "$regex":
                is_options_first = next((each for each in beside if each in ("$regex", "$options")), "") == "$options"
                return self._regex(operand, beside.get("$options"), 51074 if is_options_first else 51075)
            case "$options":
                if "$regex" not in beside:
                    raise bad_value("$options needs a $regex")
                return None
            case "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear":
                return Leaf(value_types.bits_test(name, operand))
            case "$geoWithin" | "$within" | "$geoIntersects":
                # An array may be one point, as a pair of numbers, or an array of points.
                return Leaf(geo.compile_area(name, operand))
            case "$near" | "$nearSphere" | "$geoNear":
                raise bad_value("geo $near must be top-level expr")
            case "$comment":
                return None
        raise bad_value(f"unknown operator: {name}")

    def _among(self, name: str, operand: Any) -> Leaf:
        if type(operand) is not list:
            raise bad_value(f"{name} needs an array")
        for portion in portions(operand, 2):
            if any(is_operators(each) for each in portion):
                raise bad_value(f"cannot nest $ under {name}")
        return Leaf(comparisons.among(operand, self._key))

    def _negated(self, path: str, operand: Any) -> ValuePredicate:
        if isinstance(operand, Regex):
            return Leaf(comparisons.regex_test(operand))
        if type(operand) is not dict:
            raise bad_value("$not needs a regex or a document")
        if not operand:
            raise bad_value("$not cannot be empty")
        return self.operators(path, operand)

    def _all(self, path: str, operand: Any) -> ValuePredicate:
        if type(operand) is not list:
            raise bad_value("$all needs an array")
        if not operand:
            return Leaf(comparisons.never)
        is_elements = [is_operators(each) for each in operand]
        if not any(is_elements):
            parts_of_values = tuple([self._equal(each) for each in operand])
            if len(operand) > _MANY_VALUES and not any(isinstance(each, Regex | DBRef) for each in operand):
                return Both(parts_of_values, operand, self._key)
            return Both(parts_of_values)
        parts: list[ValuePredicate] = []
        for each in operand:
            if not is_operators(each) or set(each) != {"$elemMatch"}:
                raise bad_value(
                    "$all/$elemMatch has to be consistent" if is_elements[0] else "no $ expressions in $all"
                )
            parts.append(self._element(each["$elemMatch"]))
        return Both(tuple(parts))

    def _element(self, operand: Any) -> Leaf:
        if isinstance(operand, DBRef):
            operand = dict(operand.as_doc())
        if type(operand) is not dict:
            raise bad_value("$elemMatch needs an Object")
        if is_operators(operand) and next(iter(operand)) not in (*_LOGICAL, "$expr", "$where", "$text", "$jsonSchema"):
            test = of_value(self.operators("", operand))
        else:
            self._arrays += 1
            test = _of_documents(self.query(operand).holds)
            self._arrays -= 1

        def element(array: Any) -> int | None:
            if type(array) is not list:
                return None
            for index, each in enumerate(array):
                if index % _STRIDE == 0:
                    spend(8 * min(_STRIDE, len(array) - index))
                if test(each):
                    return index
            return None

        return Leaf(lambda array: element(array) is not None, unwinds=False, element=element)

    def _regex(self, operand: Any, options: Any, twice_code: int) -> Leaf:
        if options is not None and type(options) is not str:
            raise bad_value("$options has to be a string")
        if isinstance(operand, Regex):
            if options is None:
                return Leaf(comparisons.regex_test(operand))
            own = regex_options(operand)
            if own:
                raise refusal(twice_code, "options set in both $regex and $options")
            operand = operand.pattern if isinstance(operand.pattern, str) else operand.pattern.decode()
        if type(operand) is not str:
            raise bad_value("$regex has to be a string")
        regex_matcher(operand, options or "")
        return Leaf(comparisons.regex_test(Regex(operand, options or "")))


def _is_where(entry: tuple[str, Any]) -> bool:
    return entry[0] == "$where"


def _of_documents(holds: Callable[[Document], bool]) -> Callable[[Any], bool]:
    """A query on elements: on documents, and on arrays as documents whose field names are the indexes."""

    def test(value: Any) -> bool:
        if type(value) is dict:
            return holds(value)
        if type(value) is list:
            return holds({str(index): each for index, each in enumerate(value)})
        return isinstance(value, DBRef) and holds(dict(value.as_doc()))

    return test


# The cache.

_matchers: CompiledCache[bytes, Matcher] = CompiledCache("mongo-filters")


def cached_matcher(
    given: Document, make_context: Callable[[], Context], context: Context | None, text_index: TextIndex | None
) -> Matcher:
    """The matcher of a filter without collation and variables. `context`: of the command, if there is one."""
    key = encode(given)
    found = _matchers.get(key)
    if found is not None:
        return found
    if len(key) > _CACHED_BYTES_MAX or any(word in key for word in _VOLATILE):
        return compile_filter(given, context or make_context(), text_index=text_index)
    made = compile_filter(given, make_context())
    made.context = Context()  # it depends on none, and must not keep that of a command
    _matchers.keep(key, made)
    return made


def forget() -> None:
    _matchers.clear()

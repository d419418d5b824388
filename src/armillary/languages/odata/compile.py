"""Compiles $filter texts to Python functions over items: parse, emit Python source, compile it, and cache it by text.

`compile_filter(text, within)` returns a Filter: a condition for the index, and the predicate that decides for each
candidate. Reading items and paging are `query/execution.py`'s part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from armillary.errors import Failure, Kind
from armillary.languages.odata.index_conditions import (
    KEY_PATHS,
    OPPOSITES,
    TIMESTAMP,
    condition_of,
    has_high_characters,
)
from armillary.languages.odata.lexer import Literal, filter_error
from armillary.languages.odata.parser import And, Comparison, Expression, Flag, Not, Or, parse_filter
from armillary.model import edm
from armillary.query.compiled_cache import CompiledCache
from armillary.query.conditions import Condition
from armillary.query.selection import Recipe, Selection, Stage
from armillary.work import spend

Predicate = Callable[[Any], bool]

_TEXT_UNITS, _SOURCE_UNITS = 6, 4  # work units for each character of a filter, and of source that Python compiles
_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_NAMESPACE: dict[str, Any] = {
    "number_of": edm.number_of,
    "text_of": edm.text_of,
    "truth_of": edm.truth_of,
    "bytes_of": edm.bytes_of,
    "written_ticks": edm.written_ticks,
}
_KEYS = {"PartitionKey": edm.PARTITION_KEY, "RowKey": edm.ROW_KEY}
_LIST_KEYS = {"TableName": "TableName"}


@dataclass(frozen=True, slots=True)
class FilterSource(Recipe):
    """What a filter is compiled from, here and in other processes."""

    text: str
    within: Expression | None = None

    def recipe(self, selection: Selection) -> Recipe:
        return self


@dataclass(frozen=True, slots=True)
class Filter:
    condition: Condition
    predicate: Predicate
    source: FilterSource
    is_one_key: bool = False  # the filter is PartitionKey eq … alone

    def selection(self) -> Selection:
        # Only that logical partition is read, and every entity in it matches.
        predicate = self.predicate if not self.is_one_key else None
        return Selection(self.condition, (Stage(predicate=predicate),), by_key=KEY_PATHS, origin=self.source)


ALL_ENTITIES = Selection(by_key=KEY_PATHS)


def compile_filter(text: str, within: Expression | None = None) -> Filter:
    """Compile a filter of entities. `within`: a condition that must hold in addition; it is joined with the parsed
    filter, so the text cannot escape it. An empty text matches everything."""
    return _kept(text, within, is_list=False)


def compile_list_filter(text: str) -> Predicate:
    """Compile a filter of tables, over `{"TableName": name}`."""
    return _kept(text, None, is_list=True).predicate


_filters: CompiledCache[tuple[str, Expression | None, bool], Filter] = CompiledCache("table-filters")


def _kept(text: str, within: Expression | None, *, is_list: bool) -> Filter:
    key = (text, within, is_list)
    found = _filters.get(key)
    if found is not None:
        return found
    made = _compile(text, within, is_list=is_list)
    _filters.keep(key, made)
    return made


def _compile(text: str, within: Expression | None, *, is_list: bool) -> Filter:
    try:
        tree = parse_filter(text) if text or within is None else within
        if within is not None and tree is not within:
            tree = And((tree, within))
        spend(len(text) * _TEXT_UNITS)
        emitter = _Emitter(_LIST_KEYS if is_list else _KEYS)
        body = emitter.truth(tree, is_wanted=True)
        names = ", ".join(f"c{place}" for place in range(len(emitter.constants)))
        unpacked = f"    ({names},) = C\n" if names else ""
        source = f"def bind(C):\n{unpacked}    def predicate(d):\n        return {body}\n    return predicate\n"
        namespace = dict(_NAMESPACE)
        spend(len(source) * _SOURCE_UNITS)
        exec(compile(source, "<filter>", "exec"), namespace)  # noqa: S102 (of our own making: names and places only)
        is_one_key = not is_list and _is_one_key(tree)
        predicate = namespace["bind"](emitter.constants)
        return Filter(condition_of(tree), predicate, FilterSource(text, within), is_one_key)
    except (RecursionError, MemoryError):
        raise filter_error("it nests too many expressions", 0) from None


def _is_one_key(tree: Expression) -> bool:
    return (
        isinstance(tree, Comparison)
        and (tree.property, tree.operator) == ("PartitionKey", "eq")
        and tree.literal.kind == edm.STRING
    )


class _Emitter:
    """Generates Python expressions that test whether a node is true, or whether it is false; for a comparison that is
    neither, both tests fail. So no third truth value is needed."""

    def __init__(self, keys: dict[str, str]) -> None:
        self._keys = keys
        self.constants: list[Any] = []

    def truth(self, node: Expression, *, is_wanted: bool) -> str:
        match node:
            case Not():
                return self.truth(node.operand, is_wanted=not is_wanted)
            case And() | Or():
                parts = [self.truth(operand, is_wanted=is_wanted) for operand in node.operands]
                word = " and " if isinstance(node, And) == is_wanted else " or "
                return f"({word.join(parts)})"
            case Flag():
                if node.property in self._keys or node.property == TIMESTAMP:
                    raise Failure(
                        Kind.BAD_REQUEST,
                        f"One of the request inputs is not valid. {node.property} alone is no condition: it is not "
                        "Boolean.",
                    )
                return f"truth_of({self._member(node.property)}) is {is_wanted}"
            case Comparison():
                return self._comparison(node, is_wanted)

    def _comparison(self, node: Comparison, is_wanted: bool) -> str:
        literal = node.literal
        symbol = _SYMBOLS[node.operator if is_wanted else OPPOSITES[node.operator]]
        if node.property in self._keys:
            if literal.kind != edm.STRING:
                return "False"
            return self._text(f"d.get({self._keys[node.property]!r})", ".__class__ is str", symbol, literal)
        if node.property == TIMESTAMP and self._keys is _KEYS:
            return f"written_ticks(d) {symbol} {int(literal.value)}" if literal.kind == edm.DATETIME else "False"
        member = self._member(node.property)
        if literal.is_number:
            # The negated expression, not the opposite operator: NaN is neither less than nor at least another number.
            compared = f"v {_SYMBOLS[node.operator]} {self._constant(literal.value)}"
            return f"((v := number_of({member})) is not None and {'' if is_wanted else 'not '}{compared})"
        match literal.kind:
            case edm.BOOLEAN:
                return f"((v := truth_of({member})) is not None and v {symbol} {literal.value is True})"
            case edm.DATETIME:
                ticks = self._constant(edm.stored_ticks(int(literal.value)))
                return f"((v := text_of({member}, {edm.DATETIME})) is not None and v {symbol} {ticks})"
            case edm.BINARY:
                return f"((v := bytes_of({member})) is not None and v {symbol} {self._constant(literal.value)})"
        return self._text(f"text_of({member}, {literal.kind})", " is not None", symbol, literal)

    def _text(self, read: str, check: str, symbol: str, literal: Literal) -> str:
        """A sort key by UTF-16 code units, the service's order. Python's differs only for characters above U+FFFF."""
        text = str(literal.value)
        if symbol in ("==", "!=") or not has_high_characters(text):
            compared = f"v {symbol} {self._constant(text)}"
        else:
            compared = f"v.encode('utf-16-be') {symbol} {self._constant(text.encode('utf-16-be', 'surrogatepass'))}"
        return f"((v := {read}){check} and {compared})"

    def _member(self, name: str) -> str:
        return f"d.get({self._constant(edm.member_name(name))})"

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"

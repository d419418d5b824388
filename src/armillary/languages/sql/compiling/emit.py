"""Generates Python source for expressions, in three forms: `value`, and the tests `truth` ("is it exactly true?") and
`falsity` ("is it exactly false?"), which filters use: they need no third value, so AND and OR become `and` and `or`.

Generated expressions have no side effects and never raise, so a part that nests too deep for Python's parser is
computed beforehand into a local variable. The source depends only on the query and on the types of its parameters;
constants are bound at execution (`constants.py`). In the generated code `x` is the execution's Context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from armillary.languages.sql.compiling.constants import Code
from armillary.languages.sql.compiling.emit_context import EmitContext
from armillary.languages.sql.compiling.function_table import FUNCTIONS
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.paths import Path, missing_operand, path_uses, rooted_path
from armillary.model.indexes.index_paths import path_text

_HASHED = frozenset(["null", "boolean", "number", "string"])

_OPERATORS = {
    "=": "equals",
    "!=": "differs",
    "<": "less",
    "<=": "at_most",
    ">": "greater",
    ">=": "at_least",
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "%": "remainder",
    "||": "concatenate",
    "&": "bit_and",
    "|": "bit_or",
    "^": "bit_xor",
    "<<": "shift_left",
    ">>": "shift_right",
    ">>>": "shift_right_unsigned",
}
_UNARY_OPERATORS = {"-": "minus", "+": "plus", "~": "bit_not", "NOT": "negate"}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LOGIC = {"AND": "every", "OR": "some", "??": "coalesce"}

_TUPLE_UNITS = 2  # work units for an iteration of a loop, beside those of its body
_DEPTH_MAX = 12  # of brackets in one emitted expression
_STEPS_INLINE_MAX = 3
_ROWS_HASHED_MIN = 4  # an OR of fewer equalities is as fast without hashing
_TABLE_MIN = 64  # from this number of equalities on a table is used: slower to run, but much faster to compile


class Variable(NamedTuple):
    """The variable of an alias in the generated code."""

    source: str
    path: Path | None = None  # of its values in the item; None: they are computed
    is_item: bool = False  # it is the item itself, which is always an object


class Emitter:
    """Emits the expressions of one function. Statements that must precede an expression go to `lines`, indented by the
    current depth of loops. The depth only grows, so local variables stay visible to the code that follows."""

    def __init__(
        self,
        emitting: EmitContext,
        scope: Mapping[str, Variable],
        roots: Iterable[tree.Expression],
        emit_subquery: Callable[[Emitter, tree.Subquery], Code],
    ) -> None:
        self.emitting = emitting
        self.scope = dict(scope)
        self.lines: list[str] = []
        self.depth = 0  # of loops around the next line
        self._constants = emitting.constants
        self._namespace = emitting.namespace
        self._emit_subquery = emit_subquery
        self._loaded: dict[tuple[str, Path], str] = {}
        self._begun = emitting.operators
        self._loops: list[tuple[str, int]] = []
        self._uses = path_uses(roots)

    def enter(self, alias: str, variable: Variable) -> None:
        """Bind an alias to a variable; it shadows an outer alias of the same name."""
        if alias in self.scope:
            self._loaded = {path: name for path, name in self._loaded.items() if path[0] != alias}
        self.scope[alias] = variable

    def loop_units(self) -> str:
        """A name for the work units of an iteration of the loop that begins here; `settle` assigns its value."""
        name = self.emitting.name(1)
        self._loops.append((name, self.emitting.operators))
        return name

    def settle(self) -> int:
        """To be called when the function is complete. Returns its work units without those of its loops."""
        operators = self.emitting.operators
        for name, before in self._loops:
            self._namespace[name] = _TUPLE_UNITS + operators - before
        return operators - self._begun

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # Values.

    def value(self, node: tree.Expression) -> Code:
        place = self._constants.place(node)
        if place is not None:
            return self._constants.code(place)
        self.emitting.count(node)
        match node:
            case tree.Name() | tree.Member() | tree.Index():
                return self._access(node)
            case tree.Binary():
                return self._binary(node)
            case tree.Unary():
                name = _UNARY_OPERATORS[node.operator]
                return self._call(name, [self.value(node.operand)], "trilean" if name == "negate" else "")
            case tree.Logic():
                kind = "" if node.operator == "??" else "trilean"
                return self._call(_LOGIC[node.operator], [self._tuple(node.operands)], kind)
            case tree.In():
                return self._negated(self._in(node), node.is_negated)
            case tree.Between():
                parts = [self.value(part) for part in (node.operand, node.low, node.high)]
                return self._negated(self._call("between", parts, "trilean"), node.is_negated)
            case tree.Conditional():
                condition = self.truth(node.condition)
                then, otherwise = self.value(node.then), self.value(node.otherwise)
                return self._bracket(
                    f"{then.source} if {condition.source} else {otherwise.source}", then, condition, otherwise
                )
            case tree.ArrayLiteral():
                return self._call("make_array", [self._tuple(node.elements)], "array")
            case tree.ObjectLiteral():
                return self.made_object(node)
            case tree.Call():
                return self._function(node)
            case tree.Like():
                return self._negated(self._like(node), node.is_negated)
            case tree.Subquery():
                return self._emit_subquery(self, node)
            case tree.Slot():
                return Code(node.source)
        raise AssertionError(f"not emitted: {node.__class__.__name__}")

    def made_object(self, node: tree.ObjectLiteral) -> Code:
        names = self.emitting.name(tuple([name for name, _ in node.pairs]))
        values = self._tuple([value for _, value in node.pairs])
        return self._call("make_object", [Code(names), values], "object")

    def _binary(self, node: tree.Binary) -> Code:
        # Without recursion: descend a left-associative chain to its first operand and come back up.
        spine = [node]
        while isinstance(spine[-1].left, tree.Binary):
            spine.append(spine[-1].left)
        left = self.value(spine[-1].left)
        for link in reversed(spine):
            self.emitting.count(link)
            kind = "trilean" if link.operator in _FLIPPED else ""
            left = self._call(_OPERATORS[link.operator], [left, self.value(link.right)], kind)
        return left

    def _in(self, node: tree.In) -> Code:
        needle = self.value(node.needle)
        places = [self._constants.place(value) for value in node.values]
        if None not in places:
            members = self.emitting.bound(f"Members([C[i] for i in {self.emitting.name(tuple(places))}])")
            return self._call(f"{members}.find", [needle], "trilean")
        needle = self._named(needle)
        pairs = []
        for value in node.values:
            self.emitting.count(value)
            pairs.append(self._call("equals", [needle, self.value(value)], "trilean"))
        return self._call("some", [self._joined(pairs)], "trilean")

    def _like(self, node: tree.Like) -> Code:
        text, place = self.value(node.operand), self._constants.place(node.pattern)
        if place is not None:
            matcher = self.emitting.bound(f"like_constant(C[{place}], {node.escape!r})")
            return self._call(matcher, [text], "trilean")
        return self._call("like", [text, self.value(node.pattern), Code(repr(node.escape))], "trilean")

    def _function(self, node: tree.Call) -> Code:
        if node.is_user_defined:
            return self._call("M.call_user_function", [Code(repr(node.name)), self._tuple(node.arguments)], "")
        function = FUNCTIONS[node.name]
        place = self._constants.place(node.arguments[0]) if node.arguments else None
        if node.name == "ARRAY_CONTAINS" and place is not None and self._constants.kind(place) == "array":
            array = self.emitting.bound(f"ConstantArray(C[{place}])")
            return self._call(f"{array}.contains", [self.value(each) for each in node.arguments[1:]], "trilean")
        arguments = [self.value(argument) for argument in node.arguments]
        if function.inline:
            source = function.inline.format(arguments[0].source)
            return self._bracket(source, *arguments)._replace(kind="truth")
        name = f"F_{node.name}"
        self._namespace[name] = function.call
        if function.needs_path:
            paths = [path for argument in node.arguments if (path := self._item_path(argument))]
            steps = [step if isinstance(step, str) else None for step in paths[0]] if paths else []
            arguments.insert(0, Code(self.emitting.name(path_text(steps) if steps else "")))
        if function.needs_context:
            arguments.insert(0, Code("x"))
        return self._call(name, arguments, "")

    def _item_path(self, node: tree.Expression) -> Path | None:
        found = rooted_path(node)
        prefix = None if found is None else self.scope[found[0]].path
        return None if found is None or prefix is None else prefix + found[1]

    def _access(self, node: tree.Name | tree.Member | tree.Index) -> Code:
        found = rooted_path(node)
        if found is not None:
            return self._load(*found)
        # Not a constant path: a computed value, or an index known only at run time.
        steps: list[tree.Member | tree.Index] = []
        source: tree.Expression = node
        while isinstance(source, (tree.Member, tree.Index)) and rooted_path(source) is None:
            steps.append(source)
            source = source.source
        code = self.value(source)
        for step in reversed(steps):
            index = (
                self._constants.code(self._constants.keep(step.name))
                if isinstance(step, tree.Member)
                else self.value(step.index)
            )
            code = self._call("element", [code, index], "")
        return code

    def _load(self, alias: str, path: Path) -> Code:
        variable = self.scope[alias]
        if not path:
            return Code(variable.source)
        loaded = self._loaded.get((alias, path))
        if loaded is not None:
            return Code(loaded)
        if len(path) <= _STEPS_INLINE_MAX:
            code = Code(variable.source)
            for step in path:
                code = self._step(code, step, is_object=variable.is_item and code.source == variable.source)
        else:
            code = Code(f"walk({variable.source}, {self.emitting.name(path)})", 1)
        if self._uses.get((alias, path), 0) > 1:
            code = self._spill(code)
            self._loaded[alias, path] = code.source
        return code

    def _step(self, source: Code, step: str | int | None, *, is_object: bool) -> Code:
        if is_object and isinstance(step, str):
            return Code(f"{source.source}.get({step!r}, U)", 1)  # an item is always an object
        part = self.emitting.fresh()
        if isinstance(step, str):
            text = f"{part}.get({step!r}, U) if ({part} := {source.source}).__class__ is dict else U"
        elif step is None or step < 0:
            return Code("U")
        else:
            text = f"{part}[{step}] if ({part} := {source.source}).__class__ is list and len({part}) > {step} else U"
        return self._bracket(text, source)

    # Tests.

    def truth(self, node: tree.Expression) -> Code:
        """Source that is truthy when the expression is exactly true."""
        match node:
            case tree.Logic(operator="AND"):
                tabled, others = self._tabled("all_equal", node.operands)
                return self._all(" and ", tabled + [self.truth(operand) for operand in others])
            case tree.Logic(operator="OR"):
                return self._any_of(node.operands)
            case tree.Unary(operator="NOT"):
                return self.falsity(node.operand)
            case tree.Conditional():
                condition, then, otherwise = (
                    self.truth(node.condition),
                    self.truth(node.then),
                    self.truth(node.otherwise),
                )
                return self._bracket(
                    f"{then.source} if {condition.source} else {otherwise.source}", then, condition, otherwise
                )
            case tree.Binary() if node.operator in _FLIPPED:
                found = self._comparison(node)
                if found is not None:
                    return found
            case tree.In(is_negated=False):
                found = self._membership(node)
                if found is not None:
                    return found
        self.emitting.count(node)
        code = self.value(node)
        return code if code.kind == "truth" else self._bracket(f"{code.source} is True", code)

    def falsity(self, node: tree.Expression) -> Code:
        """Source that is truthy when the expression is exactly false."""
        match node:
            case tree.Logic(operator="AND"):
                return self._all(" or ", [self.falsity(operand) for operand in node.operands])
            case tree.Logic(operator="OR"):
                return self._all(" and ", [self.falsity(operand) for operand in node.operands])
            case tree.Unary(operator="NOT"):
                return self.truth(node.operand)
        code = self.value(node)
        return self._bracket(f"{code.source} is False", code)

    def _comparison(self, node: tree.Binary) -> Code | None:
        """A comparison with a constant of known type as inline code; None if a call is needed."""
        operator, place, other = node.operator, self._constants.place(node.right), node.left
        if place is None:
            place, other, operator = self._constants.place(node.left), node.right, _FLIPPED[operator]
        if place is None or self._constants.place(other) is not None:
            return None
        kind = self._constants.kind(place)
        if kind == "undefined":
            return Code("False")
        if kind in ("array", "object", "big") or (kind == "number" and operator == "!="):
            return None
        if kind in ("null", "boolean") and operator not in ("=", "!="):
            return None
        constant = self._constants.code(place).source
        value = self.value(other)
        if operator == "=" and kind == "string":
            return self._bracket(f"{value.source} == {constant}", value)
        if operator == "=" and kind != "number":
            return self._bracket(f"{value.source} is {constant}", value)
        value, name = self._once(value)
        if operator == "=":
            return self._bracket(f"{value.source} == {constant} and {name}.__class__ is not bool", value)
        if operator == "!=":
            unlike = "!=" if kind == "string" else "is not"
            return self._bracket(f"{value.source} {unlike} {constant} and {name} is not U", value)
        fits = "is str" if kind == "string" else "in NUMBERS"
        return self._bracket(f"{value.source}.__class__ {fits} and {name} {operator} {constant}", value)

    def _membership(self, node: tree.In) -> Code | None:
        places = [self._constants.place(value) for value in node.values]
        kinds = {self._constants.kind(place) for place in places if place is not None}
        if None in places:
            return None
        rows = self.emitting.name(tuple(places))
        value, name = self._once(self.value(node.needle))
        if kinds == {"string"}:
            members = self.emitting.bound(f"frozenset([C[i] for i in {rows}])")
            return self._bracket(f"{value.source}.__class__ is str and {name} in {members}", value)
        members = self.emitting.bound(f"Members([C[i] for i in {rows}])")
        return self._bracket(f"{value.source} is not U and {members}.holds({name})", value)

    def _any_of(self, operands: Sequence[tree.Expression]) -> Code:
        """OR. Many equalities on the same paths, as clients write them to read many items, become one hash lookup."""
        groups: dict[tuple[tuple[str, Path], ...], list[tuple[int, ...]]] = {}
        others: list[tree.Expression] = []
        members: dict[tuple[tuple[str, Path], ...], list[tree.Expression]] = {}
        for operand in operands:
            row = self._row(operand)
            if row is None:
                others.append(operand)
            else:
                paths = tuple(row)
                groups.setdefault(paths, []).append(tuple(row.values()))
                members.setdefault(paths, []).append(operand)
        parts: list[Code] = []
        for paths, rows in groups.items():
            if len(rows) < _ROWS_HASHED_MIN:
                others.extend(members[paths])
                continue
            keys = self.emitting.bound(f"key_set(C, {self.emitting.name(rows)})")
            loads = [self._load(alias, path) for alias, path in paths]
            source = ", ".join(f"hash_key({load.source})" for load in loads)
            parts.append(self._bracket(f"({source},) in {keys}", Code("", 1), *loads))
        tabled, rest = self._tabled("any_equal", others)
        parts += tabled
        parts.extend(self.truth(operand) for operand in rest)
        return self._all(" or ", parts)

    def _tabled(self, name: str, operands: Sequence[tree.Expression]) -> tuple[list[Code], Sequence[tree.Expression]]:
        """Replace very many equalities by a loop over a table. Returns its code and the other operands."""
        if len(operands) < _TABLE_MIN:
            return [], operands
        tables: dict[str, list[tuple[Path, int]]] = {}
        others: list[tree.Expression] = []
        for operand in operands:
            row = None if isinstance(operand, tree.Logic) else self._row(operand)
            if row is None:
                others.append(operand)
                continue
            for (alias, path), place in row.items():
                tables.setdefault(alias, []).append((path, place))
        codes = []
        for alias, rows in tables.items():
            table = self.emitting.bound(f"equality_table(C, {self.emitting.name(rows)})")
            codes.append(self._call(name, [Code(self.scope[alias].source), Code(table)], "truth"))
        return codes, others

    def _row(self, operand: tree.Expression) -> dict[tuple[str, Path], int] | None:
        """The paths of an AND of equalities, and the places of the constants; -1: the path must be undefined."""
        terms = operand.operands if isinstance(operand, tree.Logic) and operand.operator == "AND" else (operand,)
        row: dict[tuple[str, Path], int] = {}
        for term in terms:
            missing = missing_operand(term)
            path = None if missing is None else rooted_path(missing)
            place: int | None = -1
            if path is None:
                if not isinstance(term, tree.Binary) or term.operator != "=":
                    return None
                path, place = rooted_path(term.left), self._constants.place(term.right)
                if path is None:
                    path, place = rooted_path(term.right), self._constants.place(term.left)
                if path is None or place is None or self._constants.kind(place) not in _HASHED:
                    return None
            assert place is not None
            if path in row:
                return None
            row[path] = place
        return dict(sorted(row.items(), key=lambda pair: (pair[0][0], [str(step) for step in pair[0][1]])))

    # Pieces of source.

    def _all(self, joint: str, parts: Sequence[Code]) -> Code:
        if len(parts) == 1:
            return parts[0]
        return self._bracket(joint.join([part.source for part in parts]), *parts)

    def _call(self, name: str, arguments: Sequence[Code], kind: str) -> Code:
        source = f"{name}({', '.join([argument.source for argument in arguments])})"
        return self._shallow(source, arguments, kind)

    def _bracket(self, source: str, *parts: Code) -> Code:
        return self._shallow(f"({source})", parts, "")

    def _tuple(self, nodes: Sequence[tree.Expression]) -> Code:
        return self._joined([self.value(node) for node in nodes])

    def _joined(self, codes: Sequence[Code]) -> Code:
        return self._bracket("".join([f"{code.source}, " for code in codes]), *codes)

    def _negated(self, code: Code, is_negated: bool) -> Code:
        return self._call("negate", [code], "trilean") if is_negated else code

    def _shallow(self, source: str, parts: Sequence[Code], kind: str) -> Code:
        depth = 1 + max([part.depth for part in parts], default=0)
        code = Code(source, depth, kind)
        return code if depth <= _DEPTH_MAX else self._spill(code)

    def _spill(self, code: Code) -> Code:
        name = self.emitting.fresh()
        self.line(f"{name} = {code.source}")
        return Code(name, 0, code.kind)

    def _named(self, code: Code) -> Code:
        return code if code.source.isidentifier() else self._spill(code)

    def _once(self, code: Code) -> tuple[Code, str]:
        """Source for the first use and a name for later uses, so that a value is computed once."""
        if code.source.isidentifier():
            return code, code.source
        name = self.emitting.fresh()
        return Code(f"({name} := {code.source})", code.depth + 1, code.kind), name

"""The parser: Gremlin scripts to instructions, by recursive descent. No part of a script is evaluated as code.

A script is a sequence of statements, each a chain of calls on the source `g`, which may end with a terminal call. Names
are resolved by their position and arguments: `values` alone is a token, `values('x')` an anonymous traversal, `x` a
binding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from armillary import limits
from armillary.errors import Failure
from armillary.languages.gremlin.errors import compilation, syntax
from armillary.languages.gremlin.syntax import tokens
from armillary.languages.gremlin.syntax.instructions import (
    SOURCE_STEPS,
    STEPS,
    STRATEGIES,
    TERMINALS,
    CardinalityValue,
    Instruction,
    Strategy,
    Traversal,
    check_transaction,
)
from armillary.languages.gremlin.syntax.lexer import CALLED, Word, called, constructed, known_words, place
from armillary.languages.gremlin.values import predicates
from armillary.languages.gremlin.values.comparing import map_key, unique
from armillary.languages.gremlin.values.typed_values import Set
from armillary.work import spend


@dataclass(slots=True)
class Statement:
    """One statement of a script: a traversal and its terminal call."""

    traversal: Traversal
    terminal: str = "toList"
    count: int | None = None  # the n of next(n)
    transaction: str | None = None  # g.tx().commit() and so on: nothing to run


_PREDICATES: Final = predicates.NAMES - {"and", "or", "not", "test"}
_LAMBDAS: Final = frozenset({"Lambda", "Function", "Closure"})
_UNBOUND: Final = object()


def parse(text: str, bindings: Mapping[str, Any] | None = None) -> list[Statement]:
    """The statements of a script, at least one; the result of the script is that of the last. Their size is checked
    when they are compiled.
    """
    if len(text.encode("utf-8", "replace")) > limits.GREMLIN_SCRIPT_BYTES_MAX:
        raise syntax(f"A script has at most {limits.GREMLIN_SCRIPT_BYTES_MAX} bytes.")
    return _Parser(text, bindings or {}).script()


class _Parser:
    def __init__(self, text: str, bindings: Mapping[str, Any]) -> None:
        self._text = text
        self._bindings = bindings
        self._words = known_words(text)
        self._at = 0
        self._depth = 0

    # -- words

    @property
    def _next(self) -> Word:
        return self._words[self._at]

    def _peek(self, ahead: int = 1) -> Word:
        return self._words[min(self._at + ahead, len(self._words) - 1)]

    def _is_sign(self, sign: str, ahead: int = 0) -> bool:
        word = self._peek(ahead)
        return word.kind == "sign" and word.value == sign

    def _take(self, sign: str) -> bool:
        if self._is_sign(sign):
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(f"'{sign}' was expected")

    def _name(self) -> str:
        word = self._next
        if word.kind != "name":
            raise self._unexpected("a name was expected")
        self._at += 1
        return str(word.value)

    def _unexpected(self, what: str) -> Exception:
        word = self._next
        if word.kind == "sign" and word.value in ("{", "->"):
            return compilation(f"Lambdas and closures are not supported, at {place(self._text, word.at)}.")
        return syntax(f"Unexpected {word.value!r} at {place(self._text, word.at)}: {what}.")

    # -- statements

    def script(self) -> list[Statement]:
        statements: list[Statement] = []
        while True:
            while self._take(";"):
                pass
            if self._next.kind == "end":
                break
            if statements and not (self._words[self._at - 1].value == ";" or self._next.is_after_line):
                raise self._unexpected("';' or the end of the script was expected")
            if len(statements) == limits.GREMLIN_STATEMENTS_MAX:
                raise syntax(f"A script has at most {limits.GREMLIN_STATEMENTS_MAX} statements.")
            statements.append(self._statement())
        if not statements:
            raise syntax("The script is empty.")
        return statements

    def _statement(self) -> Statement:
        if self._next.kind != "name" or self._next.value != "g":
            raise self._unexpected("a traversal starts with 'g'")
        self._at += 1
        return self._root()

    def _root(self) -> Statement:
        statement = Statement(Traversal([], []))
        source, steps = statement.traversal.source, statement.traversal.steps
        while self._take("."):
            if self._is_sign("("):
                raise self._unexpected("a step was expected")
            at = self._next.at
            name = self._step_name()
            if name == "tx" and not steps:
                return self._transaction(statement)
            if name in TERMINALS and name != "explain":
                self._terminal(statement, name)
                if not self._is_sign("."):
                    return statement
                continue
            if statement.terminal != "toList":
                raise syntax(f"Nothing can follow {statement.terminal}(), at {place(self._text, at)}.")
            arguments = self._arguments(name)
            if name in SOURCE_STEPS and not steps:
                source.append(Instruction(name, arguments))
            else:
                steps.append(Instruction(name, arguments))
        if not steps:
            raise compilation("A traversal has at least one step after its source.")
        return statement

    def _step_name(self) -> str:
        at = self._next.at
        name = self._name()
        known = name[:-1] if name.endswith("_") and name[:-1] in STEPS else name
        if known not in STEPS and known not in SOURCE_STEPS and known not in TERMINALS and known != "tx":
            if self._is_sign("{"):
                raise compilation(f"Lambdas and closures are not supported: {name} {{…}}.")
            raise compilation(f"Unable to find any method '{name}', at {place(self._text, at)}.")
        return known

    def _transaction(self, statement: Statement) -> Statement:
        self._expect("(")
        self._expect(")")
        self._expect(".")
        name = self._name()
        check_transaction(name)
        self._expect("(")
        self._expect(")")
        statement.transaction = name
        return statement

    def _terminal(self, statement: Statement, name: str) -> None:
        arguments = self._arguments(name)
        if name == "next" and len(arguments) == 1:
            statement.count = predicates.count_of(arguments[0], "next")
        elif arguments:
            raise compilation(f"{name}() takes no arguments.")
        if statement.terminal != "toList" and name != "toString":
            raise compilation(f"{name}() cannot follow {statement.terminal}().")
        statement.terminal = name

    def _arguments(self, name: str) -> list[Any]:
        if self._is_sign("{"):
            raise compilation(f"Lambdas and closures are not supported: {name} {{…}}.")
        self._expect("(")
        arguments: list[Any] = []
        if self._take(")"):
            return arguments
        while True:
            arguments.append(self._argument())
            if self._take(")"):
                break
            self._expect(",")
        if self._is_sign("{"):
            raise compilation(f"Lambdas and closures are not supported: {name}(…) {{…}}.")
        return arguments

    # -- arguments

    def _argument(self) -> Any:
        self._depth += 1
        if self._depth > limits.GREMLIN_DEPTH_MAX * 2:
            raise compilation(f"A traversal is nested at most {limits.GREMLIN_DEPTH_MAX} deep.")
        try:
            value = self._single()
            if isinstance(value, predicates.P):
                value = self._joined(value)
            if self._is_sign(".."):
                self._at += 1
                value = self._range(value, self._single())
            return value
        finally:
            self._depth -= 1

    def _joined(self, predicate: predicates.P) -> predicates.P:
        while self._is_sign("."):
            self._at += 1
            name = self._name()
            arguments = self._arguments(name)
            if name == "negate" and not arguments:
                predicate = predicate.negated()
            elif name in ("and", "or") and len(arguments) == 1 and isinstance(arguments[0], predicates.P):
                inner, other = predicate, arguments[0]
                known = inner.value if inner.name == name else [inner]
                predicate = predicates.P(name, [*known, other])
            else:
                raise compilation(f"'{name}' is not a method of a predicate.")
        return predicate

    def _single(self) -> Any:
        spend(30)
        word = self._next
        if word.kind in ("text", "number"):
            self._at += 1
            return word.value
        if word.kind == "sign":
            if word.value in ("-", "+"):
                self._at += 1
                return self._signed(word.value)
            if word.value == "[":
                return self._bracketed()
            if word.value == "{":
                return self._braced()
            if word.value == "(":
                self._at += 1
                value = self._argument()
                self._expect(")")
                return value
        if word.kind == "name":
            return self._named()
        raise self._unexpected("a value was expected")

    def _signed(self, sign: str) -> Any:
        word = self._next
        self._at += 1
        if word.kind == "number":
            if sign == "+":
                return word.value
            # 2147483648 is a long, and -2147483648 an int.
            if word.value == 2**31 and isinstance(word.value, int):
                return -(2**31)
            negative = -word.value
            return negative if isinstance(word.value, Decimal) else type(word.value)(negative)
        if word.kind == "name" and word.value == "Infinity":
            return float("-inf") if sign == "-" else float("inf")
        self._at -= 1
        raise self._unexpected("a number was expected")

    def _bracketed(self) -> Any:
        self._expect("[")
        if self._take(":"):
            self._expect("]")
            return {}
        if self._take("]"):
            return []
        if self._is_entry():
            return self._map("]")
        values = [self._argument()]
        if self._take(":"):
            entries = {map_key(values[0]): self._argument()}
            if self._take(","):
                entries.update(self._map("]"))
            else:
                self._expect("]")
            return entries
        while self._take(","):
            values.append(self._argument())
        self._expect("]")
        return values

    def _is_entry(self) -> bool:
        return self._next.kind == "name" and self._is_sign(":", 1)

    def _map(self, end: str) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        while True:
            key: Any
            if self._is_entry():
                name = self._name()
                key = tokens.BARE[name] if name in ("IN", "OUT", "BOTH") else name
            else:
                key = self._argument()
            self._expect(":")
            entries[map_key(key)] = self._argument()
            if self._take(end):
                return entries
            self._expect(",")

    def _braced(self) -> Set:
        """`{1, 2}`: a set. Closures start with the same brace and are recognised by their arrow or first word."""
        at = self._next.at
        self._expect("{")
        values = Set()
        if self._take("}"):
            return values
        try:
            while True:
                values.append(self._argument())
                if self._take("}"):
                    return unique(values)
                self._expect(",")
        except Failure:
            raise compilation(f"Lambdas and closures are not supported, at {place(self._text, at)}.") from None

    def _range(self, first: Any, last: Any) -> list[Any]:
        if isinstance(first, str) and isinstance(last, str) and len(first) == len(last) == 1:
            return [chr(code) for code in _span(ord(first), ord(last))]
        if type(first) is int and type(last) is int:
            if abs(last - first) >= limits.GREMLIN_RANGE_MAX:
                raise syntax(f"A range has at most {limits.GREMLIN_RANGE_MAX} values.")
            return list(_span(first, last))
        raise syntax("A range lies between two whole numbers or two characters.")

    # -- names

    def _named(self) -> Any:
        word = self._next
        name = str(word.value)
        if self._is_sign("(", 1) or self._is_sign("{", 1):
            return self._called(name)
        if self._is_sign(".", 1) and self._peek(2).kind == "name":
            return self._qualified(name)
        self._at += 1
        if name in ("true", "false"):
            return name == "true"
        if name == "null":
            return None
        if name == "NaN":
            return float("nan")
        if name == "Infinity":
            return float("inf")
        if name == "new":
            return self._new()
        found = self._bindings.get(name, _UNBOUND)
        if found is not _UNBOUND:
            return found
        token = tokens.BARE.get(name)
        if token is not None:
            return token
        if name in STRATEGIES:
            return Strategy(name, {})
        at = place(self._text, word.at)
        raise compilation(f"Unable to resolve symbol '{name}' in the current context: it is not bound, at {at}.")

    def _called(self, name: str) -> Any:
        if name in _PREDICATES:
            self._at += 1
            return predicates.make(name, self._arguments(name))
        if name in ("single", "list", "set"):
            self._at += 1
            return self._cardinality(name)
        if name in CALLED:
            self._at += 1
            return called(name, self._arguments(name))
        if name == "not":
            before = self._at
            self._at += 1
            arguments = self._arguments(name)
            if len(arguments) == 1 and isinstance(arguments[0], predicates.P):
                return predicates.make("not", arguments)
            self._at = before
        if name in STRATEGIES:
            self._at += 1
            return Strategy(name, self._settings())
        return self._anonymous()

    def _cardinality(self, name: str) -> CardinalityValue:
        arguments = self._arguments(name)
        if len(arguments) != 1:
            raise compilation(f"Cardinality.{name}() takes one value.")
        return CardinalityValue(tokens.Cardinality(name), arguments[0])

    def _anonymous(self) -> Traversal:
        """An anonymous traversal: a chain of steps."""
        steps = []
        while True:
            name = self._step_name()
            steps.append(Instruction(name, self._arguments(name)))
            if not self._is_sign("."):
                return Traversal([], steps)
            self._at += 1

    def _qualified(self, name: str) -> Any:
        if name == "__":
            self._at += 2
            return self._anonymous()
        if name == "g":
            self._at += 1
            statement = self._root()
            return statement.traversal
        if name in _LAMBDAS:
            raise compilation(f"Lambdas are not supported: {name}.")
        second = str(self._peek(2).value)
        if name in ("P", "TextP"):
            self._at += 2
            if second not in _PREDICATES and second != "not":
                raise compilation(f"'{name}.{second}' is not a predicate.")
            self._at += 1
            return predicates.make(second, self._arguments(second))
        if name in STRATEGIES:
            self._at += 2
            return self._built_strategy(name)
        if name in ("VertexProperty", "SackFunctions"):
            self._at += 2
            return self._qualified(second)
        token = tokens.find(name, second)
        if token is not None:
            self._at += 3
            if self._is_sign("(") and isinstance(token, tokens.Cardinality):
                return self._cardinality(token.value)
            return token
        constant = tokens.CONSTANTS.get(f"{name}.{second}")
        if constant is not None:
            self._at += 3
            return constant
        if name == "UUID" and second == "fromString":
            self._at += 3
            return called(name, self._arguments(second))
        if name == "Double" and second == "NaN":
            self._at += 3
            return float("nan")
        raise compilation(f"'{name}.{second}' is unknown, at {place(self._text, self._next.at)}.")

    def _built_strategy(self, name: str) -> Strategy:
        """`PartitionStrategy.build().partitionKey('p').create()`, the form in the documentation of Cosmos DB."""
        if self._name() not in ("build", "instance"):
            raise compilation(f"{name} is made by build().….create() or new {name}(…).")
        self._arguments("build")
        settings: dict[str, Any] = {}
        while self._take("."):
            setting = self._name()
            arguments = self._arguments(setting)
            if setting == "create":
                break
            values = arguments[0] if len(arguments) == 1 else arguments
            settings[setting] = values
        return Strategy(name, settings)

    def _new(self) -> Any:
        name = self._name()
        if name in STRATEGIES:
            return Strategy(name, self._settings() if self._is_sign("(") else {})
        return constructed(name, self._arguments(name))

    def _settings(self) -> dict[str, Any]:
        self._expect("(")
        settings: dict[str, Any] = {}
        if self._take(")"):
            return settings
        while True:
            name = self._name()
            self._expect(":")
            settings[name] = self._argument()
            if self._take(")"):
                return settings
            self._expect(",")


def _span(first: int, last: int) -> range:
    return range(first, last + 1) if first <= last else range(first, last - 1, -1)

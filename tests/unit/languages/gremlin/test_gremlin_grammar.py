"""Gremlin text to instructions: literals, names, limits; and what is refused, by name."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.languages.gremlin.errors import STATUS_COMPILATION
from armillary.languages.gremlin.program import compile_traversal
from armillary.languages.gremlin.syntax.grammar import parse
from armillary.languages.gremlin.syntax.instructions import CardinalityValue, Instruction, Strategy, Traversal
from armillary.languages.gremlin.syntax.tokens import Cardinality, Column, Direction, Order, Scope, T
from armillary.languages.gremlin.values.elements import Vertex
from armillary.languages.gremlin.values.predicates import P
from armillary.languages.gremlin.values.typed_values import BigInt, Byte, Float32, Long, Set, Short


def argument(text: str, bindings: dict[str, Any] | None = None) -> Any:
    return parse(f"g.inject({text})", bindings)[0].traversal.steps[0].arguments[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a'", "a"),
        ('"a\'b"', "a'b"),
        (r"'a\'b\n\u00e9\\'", "a'b\né\\"),
        (r"'\ud83d\ude00'", "\U0001f600"),
        ("'''a'b'''", "a'b"),
        ("1", 1),
        ("-1", -1),
        ("1L", Long(1)),
        ("1b", Byte(1)),
        ("1s", Short(1)),
        ("1i", 1),
        ("1n", BigInt(1)),
        ("2147483648", Long(2**31)),
        ("-2147483648", -(2**31)),
        ("0x1F", 31),
        ("010", 8),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1.5f", Float32(1.5)),
        ("1d", 1.0),
        ("1.5m", Decimal("1.5")),
        ("1e3", 1000.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("true", True),
        ("null", None),
        ("[]", []),
        ("[1,'a']", [1, "a"]),
        ("{1,2}", Set([1, 2])),
        ("[:]", {}),
        ("['a':1,(T.id):2]", {"a": 1, T.id: 2}),
        ("[a:1]", {"a": 1}),
        ("[(Direction.OUT):'x']", {Direction.OUT: "x"}),
        ("1..3", [1, 2, 3]),
        ("datetime('2023-08-02T00:00:00Z')", datetime(2023, 8, 2, tzinfo=UTC)),
        ("new Date(0)", datetime(1970, 1, 1, tzinfo=UTC)),
        ("new Vertex('1','person')", Vertex("1", "person")),
        ("desc", Order.desc),
        ("Order.decr", Order.desc),
        ("Scope.local", Scope.local),
        ("keys", Column.keys),
        ("list('x')", CardinalityValue(Cardinality.list, "x")),
        ("WithOptions.tokens", "~tinkerpop.valueMap.tokens"),
        ("ReadOnlyStrategy", Strategy("ReadOnlyStrategy", {})),
        ("new SeedStrategy(seed:1)", Strategy("SeedStrategy", {"seed": 1})),
        (
            "PartitionStrategy.build().partitionKey('p').create()",
            Strategy("PartitionStrategy", {"partitionKey": "p"}),
        ),
        ("__.out('a')", Traversal([], [Instruction("out", ["a"])])),
        ("values('a').in_()", Traversal([], [Instruction("values", ["a"]), Instruction("in", [])])),
    ],
)
def test_arguments(text: str, expected: Any) -> None:
    found = argument(text)
    assert found == expected and type(found) is type(expected)


def test_nan() -> None:
    assert math.isnan(argument("NaN"))


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("gt(1).and(lt(3))", 2, True),
        ("gt(1).and(lt(3))", 3, False),
        ("P.not(within(1,2))", 2, False),
        ("not(eq(1))", 2, True),
        ("between(1,3)", 1, True),
        ("inside(1,3)", 1, False),
        ("outside(1,3)", 0, True),
        ("within()", 1, False),
        ("within([1,2])", 2, True),
        ("TextP.regex('^a')", "ab", True),
        ("startingWith('a')", 1, None),
        ("notStartingWith('a')", 1, None),
        ("gt('a')", 1, None),
        ("eq('a')", 1, False),
        ("lt(NaN)", 1, None),
        ("P.not(P.lt(NaN))", 1, None),
        ("lt(1).negate()", 1, True),
    ],
)
def test_predicates(text: str, value: Any, expected: bool | None) -> None:
    predicate = argument(text)
    assert isinstance(predicate, P)
    assert predicate.test(value) is expected


def test_bindings_come_before_tokens() -> None:
    assert argument("id", {"id": 7}) == 7
    assert argument("id") is T.id


def test_statements_and_terminals() -> None:
    first, second, third = parse("g.V().iterate(); g.V().next(2)\n g.tx().commit()")
    assert (first.terminal, second.terminal, second.count, third.transaction) == ("iterate", "next", 2, "commit")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("g.V().map{it.get()}", "Lambdas"),
        ("g.V().map({it.get()})", "Lambdas"),
        ("g.V().filter(Lambda.predicate('it'))", "Lambdas"),
        ("g.V().noSuchStep()", "noSuchStep"),
        ("g.V(x)", "Unable to resolve symbol 'x' in the current context"),
        ("g.V(", "a value was expected"),
        ("g.V('a", "Unexpected"),
        ("g.V() g.E()", "';'"),
        ("", "empty"),
        ("x.V()", "starts with 'g'"),
        ("g", "at least one step"),
        ("g.V().has('a',gt(1).xor(2))", "xor"),
        ("g.V(T.nothing)", "T.nothing"),
        ("g.V('\\q')", "escape"),
        ("g.V(1..'a')", "range"),
        ("g.V().next().out()", "next"),
        ("g.V(new File('x'))", "new File"),
        ("g.inject(System.exit(0))", "System.exit"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(Failure, match=words) as caught:
        parse(text)
    assert caught.value.kind is Kind.BAD_REQUEST
    assert caught.value.details["status"] == STATUS_COMPILATION


def nested(depth: int) -> str:
    return "g.V()" + ".where(__.out()" * (depth - 1) + ")" * (depth - 1)


@pytest.mark.parametrize(
    ("fits", "exceeds"),
    [
        (nested(limits.GREMLIN_DEPTH_MAX), nested(limits.GREMLIN_DEPTH_MAX + 1)),
        ("g.V()" + ".out()" * (limits.GREMLIN_STEPS_MAX - 1), "g.V()" + ".out()" * limits.GREMLIN_STEPS_MAX),
        ("g.V();" * limits.GREMLIN_STATEMENTS_MAX, "g.V();" * (limits.GREMLIN_STATEMENTS_MAX + 1)),
        (f"g.inject(1..{limits.GREMLIN_RANGE_MAX})", f"g.inject(1..{limits.GREMLIN_RANGE_MAX + 1})"),
        (f"g.inject({'1' * limits.GREMLIN_DIGITS_MAX})", f"g.inject({'1' * (limits.GREMLIN_DIGITS_MAX + 1)})"),
        (
            f"g.V('{'x' * (limits.GREMLIN_SCRIPT_BYTES_MAX - 7)}')",
            f"g.V('{'x' * (limits.GREMLIN_SCRIPT_BYTES_MAX - 6)}')",
        ),
    ],
)
def test_limits(fits: str, exceeds: str) -> None:
    _compile(fits)
    with pytest.raises(Failure, match="at most"):
        _compile(exceeds)


def _compile(text: str) -> None:
    for statement in parse(text):
        compile_traversal(statement.traversal)

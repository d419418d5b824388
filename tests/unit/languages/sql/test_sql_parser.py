"""Lexer, parser and checker: what is a query, what is refused, and with which code and place."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import orjson
import pytest
from support.portions import Amount

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_filter, compile_query, parse_parameters
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.parser import parse_query
from armillary.model.values import UNDEFINED


def refusal(text: str) -> dict[str, Any]:
    with pytest.raises(Failure) as caught:
        compile_query(text).bind({})
    assert caught.value.kind is Kind.BAD_REQUEST, caught.value
    (error,) = orjson.loads(caught.value.message)["errors"]
    assert error["severity"] == "Error"
    return error  # type: ignore[no-any-return]


def shape(node: tree.Expression) -> Any:
    """An expression as nested tuples, for comparison."""
    match node:
        case tree.Literal():
            return node.value
        case tree.Name() | tree.Parameter():
            return node.name
        case tree.Member():
            return (".", shape(node.source), node.name)
        case tree.Index():
            return ("[]", shape(node.source), shape(node.index))
        case tree.Unary():
            return (node.operator, shape(node.operand))
        case tree.Binary():
            return (node.operator, shape(node.left), shape(node.right))
        case tree.Logic():
            return (node.operator, *map(shape, node.operands))
        case tree.Conditional():
            return ("?:", shape(node.condition), shape(node.then), shape(node.otherwise))
        case tree.In():
            return ("NOT IN" if node.is_negated else "IN", shape(node.needle), *map(shape, node.values))
        case tree.Between():
            return ("BETWEEN", shape(node.operand), shape(node.low), shape(node.high), node.is_negated)
        case tree.Call():
            return (node.name, *map(shape, node.arguments))
    raise AssertionError(node)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", ("+", 1, ("*", 2, 3))),
        ("1 - 2 - 3", ("-", ("-", 1, 2), 3)),
        ("(1 + 2) * 3", ("*", ("+", 1, 2), 3)),
        ("a = 1 AND b = 2 AND c = 3", ("AND", ("=", "a", 1), ("=", "b", 2), ("=", "c", 3))),
        ("a OR b AND c OR d", ("OR", "a", ("AND", "b", "c"), "d")),
        ("a AND b OR c AND d", ("OR", ("AND", "a", "b"), ("AND", "c", "d"))),
        ("NOT a = b", ("=", ("NOT", "a"), "b")),
        ("NOT (a = b)", ("NOT", ("=", "a", "b"))),
        ("a ?? b OR c ?? d", ("??", "a", ("OR", "b", "c"), "d")),
        ("a ? b : c ? d : e", ("?:", "a", "b", ("?:", "c", "d", "e"))),
        ("a BETWEEN 1 AND 2 AND b", ("AND", ("BETWEEN", "a", 1, 2, False), "b")),
        ("a NOT BETWEEN 1 AND 2 + 3", ("BETWEEN", "a", 1, ("+", 2, 3), True)),
        ("a NOT IN (1, 'x') OR b", ("OR", ("NOT IN", "a", 1, "x"), "b")),
        ("a || b = c", ("||", "a", ("=", "b", "c"))),
        ("a | b ^ c & d", ("|", "a", ("^", "b", ("&", "c", "d")))),
        ("a < b = c > d", ("=", ("<", "a", "b"), (">", "c", "d"))),
        ("a << 1 + 2 >>> 3", (">>>", ("<<", "a", ("+", 1, 2)), 3)),
        ("- - 1", 1),
        ("-a * ~b", ("*", ("-", "a"), ("~", "b"))),
        ("a.b[\"c d\"][0]['e'].f", (".", (".", ("[]", (".", (".", "a", "b"), "c d"), 0), "e"), "f")),
        ("a[@p].b", (".", ("[]", "a", "@p"), "b")),
        ("a <> 1", ("!=", "a", 1)),
        ("abs(left('x', 2))", ("ABS", ("LEFT", "x", 2))),
        ("a.rank", (".", "a", "rank")),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_precedence(text: str, expected: Any) -> None:
    assert shape(parse_query(f"SELECT VALUE {text}").select.items[0].expression) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("12.", 12),
        (".5", 0.5),
        ("1e3", 1000),
        ("0x1F", 31),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2.0**63),
        ("99999999999999999999999", 1e23),
        ("0xFFFFFFFFFFFFFFFFFF", float(2**72 - 1)),
        (r"'it\'s'", "it's"),
        (r'"\u00e9\ud83d\ude00\/\t"', "é😀/\t"),
        ("null", None),
        ("undefined", UNDEFINED),
    ],
)
def test_literals(text: str, value: Any) -> None:
    found = parse_query(f"SELECT VALUE {text}").select.items[0].expression
    assert isinstance(found, tree.Literal)
    assert found.value == value and type(found.value) is type(value)


def test_comments_and_case() -> None:
    query = parse_query("sElEcT * -- all\n/* of \n them */ from Root As r whERE r.a >= @p")
    assert query.select.kind == "*"
    assert query.sources[0].alias == "r"


@pytest.mark.parametrize(
    ("text", "code", "start", "end"),
    [
        ("SELECT BADFUNC(r.age) FROM Root r", "SC2005", 7, 14),
        ("SELECT * FROM r WHERE STARTSWITH(r.key,'a','b','c')", "SC2050", 22, 51),
        ("SELEC * FROM c", "SC1001", 0, 5),
        ("SELECT c.value FROM c", "SC1001", 9, 14),
        ("SELECT c.id, FROM c", "SC1001", 13, 17),
        ("SELECT * FROM c WHERE a = 1", "SC2001", 22, 23),
        ("SELECT * FROM c WHERE c.a = TRUE", "SC1001", 28, 32),
        ("SELECT 'unterminated FROM c", "SC1010", 7, 27),
        ("SELECT VALUE 'a\nb'", "SC1010", 13, 18),
        (r"SELECT VALUE '\x41'", "SC1010", 13, 19),
        (r"SELECT VALUE '\ud800'", "SC1010", 13, 21),
        ("SELECT VALUE 1e999", "SC1010", 13, 18),
        ("SELECT VALUE 12abc", "SC1010", 13, 18),
        ("SELECT *", "SC2040", 0, 8),
        ("SELECT * FROM c JOIN d IN c.e", "SC2040", 0, 8),
        ("SELECT * FROM c GROUP BY c.id", "SC2041", 0, 8),
        ("SELECT TOP 1.5 * FROM c", "SC2060", 11, 14),
        ("SELECT TOP -1 * FROM c", "SC1001", 11, 12),
        ("SELECT * FROM c OFFSET 5", "SC1001", 24, 24),
        ("SELECT VALUE 1 FROM c WHERE c.a IN (1) IN (2)", "SC1001", 39, 41),
        ("SELECT VALUE {a: 1,} FROM c", "SC1001", 19, 20),
        ("SELECT * FROM c WHERE c.a = @p", "SC2001", 0, 0),
        ("", "SC1001", 0, 0),
        ("SELECT VALUE 1 FROM v JOIN m IN v.crew JOIN m IN v.route", "SC2021", 44, 45),
        ("SELECT VALUE 1 FROM v JOIN (SELECT VALUE 1) AS v", "SC2021", 47, 48),
        ("SELECT VALUE t FROM c JOIN t IN d.tags", "SC2001", 32, 33),
        ("SELECT VALUE c FROM t IN c.tags", "SC2001", 13, 14),
        ("SELECT VALUE c FROM c.origin o", "SC2001", 13, 14),
        ("SELECT VALUE EXISTS(SELECT VALUE t FROM t IN x.y) FROM c", "SC2001", 45, 46),
        ("SELECT VALUE 1 FROM c" + "".join(f" JOIN j{n} IN c.a" for n in range(11)), "SC2020", 177, 187),
        ("SELECT VALUE MAX(MIN(c.x)) FROM c", "SC2101", 13, 26),
        ("SELECT VALUE SUM((SELECT VALUE 1)) FROM c", "SC2101", 13, 34),
        ("SELECT VALUE SUM(1, 2) FROM c", "SC2050", 13, 22),
        ("SELECT VALUE 1 FROM c WHERE COUNT(1) > 1", "SC2104", 28, 36),
        ("SELECT c.a, COUNT(1) FROM c GROUP BY c.b", "SC2102", 7, 10),
        ("SELECT c.a.b, COUNT(1) FROM c", "SC2102", 7, 12),
        ("SELECT VALUE {x: [c.y], n: COUNT(1)} FROM c GROUP BY c.b", "SC2102", 18, 21),
        ("SELECT VALUE c FROM c GROUP BY c.a", "SC2102", 13, 14),
        ("SELECT VALUE (SELECT VALUE c.z) FROM c GROUP BY c.a", "SC2102", 27, 28),
        ("SELECT c.a FROM c GROUP BY c.a ORDER BY c.a", "SC2105", 40, 43),
        ("SELECT VALUE ARRAY(SELECT VALUE r FROM r IN c.r ORDER BY r.n, r.m) FROM c", "SC2202", 57, 65),
        ("SELECT VALUE ARRAY(SELECT TOP 1 VALUE r FROM r IN c.r) FROM c", "SC2203", 30, 31),
        ("SELECT VALUE ARRAY(SELECT VALUE r FROM r IN c.r OFFSET 0 LIMIT 1) FROM c", "SC2204", 55, 64),
        ("SELECT VALUE r FROM c JOIN r IN (SELECT TOP 1 VALUE c.r)", "SC2203", 44, 45),
        ("SELECT TOP 2 * FROM c OFFSET 0 LIMIT 1", "SC2065", 29, 38),
        ("SELECT * FROM c OFFSET 0 LIMIT 2147483648", "SC2061", 31, 41),
        ("SELECT * FROM c OFFSET 2147483648 LIMIT 1", "SC2062", 23, 33),
        ("SELECT VALUE c.a LIKE 'x' ESCAPE 'ab' FROM c", "SC1001", 13, 37),
        ("SELECT VALUE FullTextScore(c.a, 'x') FROM c", "SC2240", 13, 36),
        ("SELECT VALUE t FROM c JOIN t IN c[@p]", "SC1001", 34, 36),
        ("SELECT * FROM c ORDER BY RANK LOWER(c.a)", "SC2221", 30, 40),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 'x') DESC", "SC2222", 30, 58),
        ("SELECT * FROM c ORDER BY VectorDistance(c.a, [1]) ASC", "SC2213", 25, 53),
        ("SELECT * FROM c ORDER BY VectorDistance(c.a, [1], true, {searchListSizeMultiplier: 101})", "SC2213", 83, 86),
        ("SELECT * FROM t IN c.t ORDER BY RANK FullTextScore(t.a, 'x')", "SC2223", 14, 22),
        ("SELECT c.a FROM c JOIN t IN c.t ORDER BY RANK FullTextScore(c.a, 'x')", "SC2224", 23, 31),
        ("SELECT * FROM (SELECT VALUE c FROM c) s ORDER BY RANK FullTextScore(s.a, 'x')", "SC2225", 14, 39),
        ("SELECT VALUE ARRAY(SELECT VALUE c ORDER BY RANK FullTextScore(c.a, 'x')) FROM c", "SC2228", 48, 71),
        ("SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.a, 'x'))", "SC2221", 30, 58),
        ("SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.a, 'x'), VectorDistance(c.v, [1]), [1])", "SC2229", 85, 88),
        ("SELECT VALUE RRF(1, 2) FROM c", "SC2005", 13, 16),
        ("SELECT * FROM c ORDER BY RANK RRF(RRF(1, 2), FullTextScore(c.a, 'x'))", "SC2005", 34, 37),
        ("SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.a, 'x'), 20.5)", "SC2221", 59, 63),
        ("SELECT * FROM c ORDER BY RANK c.a", "SC2221", 30, 33),
        (
            "SELECT * FROM c ORDER BY RANK RRF(VectorDistance(c.v, [1]), FullTextScore(c.a, 'x'), ['1', 1])",
            "SC2229",
            85,
            93,
        ),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a)", "SC2050", 30, 48),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a, c.b)", "SC2226", 49, 52),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a, [])", "SC2226", 49, 51),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 'x', ['y'])", "SC2226", 54, 59),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 5)", "SC2226", 49, 50),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(d.a, 'x')", "SC2001", 44, 45),
        ("SELECT * FROM c ORDER BY RANK VectorDistance(c.a, (SELECT VALUE [1]))", "SC2228", 50, 68),
        ("SELECT DISTINCT c.a FROM c ORDER BY RANK FullTextScore(c.a, 'x')", "SC2227", 0, 19),
        ("SELECT VALUE COUNT(1) FROM c ORDER BY RANK FullTextScore(c.a, 'x')", "SC2102", 43, 66),
    ],
)
def test_refused_with_place(text: str, code: str, start: int, end: int) -> None:
    error = refusal(text)
    assert (error["code"], error["location"]) == (code, {"start": start, "end": end})


@pytest.mark.parametrize(
    "key",
    [
        *(
            "LOWER(c.a)",
            "c",
            "c[0]",
            "c.a + 1",
            "t.x",
            "t[0]",
            "1",
            "c[@p]",
            "c.a[@p]",
            "c.a, VectorDistance(c.v, [1])",
        ),
        *("VectorDistance(c.v, [1]), c.a", "VectorDistance([1], [1])", "VectorDistance(t.v, [1])"),
        *("VectorDistance(c.v, t.v)", "VectorDistance(c, [1])", "VectorDistance(c.v, (SELECT VALUE [1]))"),
    ],
)
def test_only_paths_are_ordered_by(key: str) -> None:
    with pytest.raises(Failure) as caught:
        compile_query(f"SELECT c.a FROM c JOIN t IN c.t ORDER BY {key}")
    (error,) = orjson.loads(caught.value.message)["errors"]
    assert error["code"] == 2206 and "location" not in error


@pytest.mark.parametrize(("text", "value"), [("TOP @n", 1.5), ("TOP @n", "1"), ("TOP @n", -1), ("TOP @n", True)])
def test_counts_given_as_parameters(text: str, value: Any) -> None:
    with pytest.raises(Failure) as caught:
        compile_query(f"SELECT {text} * FROM c").bind({"@n": value})
    assert "SC2060" in caught.value.message
    assert compile_query(f"SELECT {text} * FROM c").bind({"@n": 3.0}).selection.take == 3


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT VALUE udf.mine(c.a) FROM c", "udf.mine"),
    ],
)
def test_not_yet_is_named(text: str, name: str) -> None:
    with pytest.raises(Failure) as caught:
        compile_query(text).bind({})
    assert caught.value.kind is Kind.UNSUPPORTED
    assert name in caught.value.message and "not supported yet" in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "SELECT VALUE " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT VALUE " + "[" * 5000,
        "SELECT VALUE " + "{a:" * 5000,
        "SELECT VALUE " + "ABS(" * 5000,
        "SELECT VALUE " + "- -" * 5000 + "c.a FROM c",
        "SELECT VALUE " + "NOT " * 5000 + "true",
        "SELECT VALUE " + "true?1:" * 5000 + "2",
        "SELECT VALUE " + "true?" * 5000,
        "SELECT VALUE c" + ".a" * 5000 + " FROM c",
        "SELECT VALUE c" + "[0]" * 5000 + " FROM c",
        "SELECT VALUE c" + "[c" * 5000 + " FROM c",
        "SELECT VALUE " + "(SELECT VALUE " * 5000,
        "SELECT VALUE 1 FROM c" + ".a" * 5000,
        "SELECT VALUE " + "+".join(["c.a"] * 15000) + " FROM c",
        "SELECT VALUE " + "(((1 IN (1)) AND 1) OR 1) ?? " * 120 + "1",
        "SELECT VALUE " + "((((" * 30 + "1" + " IN (1)) AND 1) OR 1) ?? 1) ? 1 : 2" * 30,
    ],
)
def test_too_much_is_refused_cleanly(text: str) -> None:
    with suppress(Failure):  # nothing else
        compile_query(text).bind({})


def test_depth_limit_is_exact() -> None:
    levels = limits.QUERY_DEPTH_MAX - 1
    assert compile_query(f"SELECT VALUE {'(' * levels}7{')' * levels}").bind({}).evaluate_over([]) == [7]
    refusal(f"SELECT VALUE {'(' * (levels + 1)}7{')' * (levels + 1)}")


def test_text_limit() -> None:
    text = "SELECT VALUE 1 --" + "x" * (limits.QUERY_TEXT_BYTES_MAX - 17)
    assert compile_query(text).bind({}).evaluate_over([]) == [1]
    with pytest.raises(Failure, match="longer than"):
        compile_query(text + "x")
    with pytest.raises(Failure, match="longer than"):
        compile_query("SELECT VALUE 1 --" + "é" * (limits.QUERY_TEXT_BYTES_MAX // 2))


def test_parameters() -> None:
    assert parse_parameters(None) == parse_parameters([]) == {}
    assert parse_parameters([{"name": "@a", "value": [1]}, {"name": "@b"}]) == {"@a": [1], "@b": UNDEFINED}
    deep: Any = 1
    for _ in range(limits.QUERY_PARAMETER_DEPTH_MAX):
        deep = [deep]
    assert parse_parameters([{"name": "@a", "value": deep}]) == {"@a": deep}
    mistakes: list[Any] = [{}, [1], [{"name": "a", "value": 1}], [{"name": 1}], [{"name": "@a", "other": 1}]]
    for wrong in mistakes:
        with pytest.raises(Failure):
            parse_parameters(wrong)
    with pytest.raises(Failure, match="more than once"):
        parse_parameters([{"name": "@a", "value": 1}, {"name": "@a", "value": 1}])
    with pytest.raises(Failure, match="levels"):
        parse_parameters([{"name": "@a", "value": {"x": deep}}])


def test_filter_of_a_patch() -> None:
    predicate = compile_filter("from c where c.n = 3").bind({}).predicate
    assert predicate is not None
    assert predicate({"n": 3}) and not predicate({"n": 4})
    assert compile_filter("WHERE true").bind({}).predicate is not None
    for text in ("", "c.n = 3", "from c", "SELECT * FROM c", "from c where c.n = 3 ORDER BY c.n"):
        with pytest.raises(Failure):
            compile_filter(text)


_PIECES = (
    "SELECT * FROM c WHERE c . a [ 0 ] = @p AND OR NOT IN ( ) , 'x' \"y\" 1 2.5 -1 ?? ? : { } || + - * / % < <= > >= "
    "!= <> & | ^ ~ << >> >>> VALUE TOP DISTINCT ORDER BY GROUP JOIN BETWEEN LIKE ESCAPE EXISTS ARRAY ALL FIRST udf "
    "true null undefined ABS STARTSWITH IS_DEFINED ROUND COUNT LEFT AS x 0x1 1e5 ' \" \\ -- /* \u00e9 \x00 @ # ;"
    " c.a c.b"
).split(" ")


def test_fuzz_only_failures(amount: Amount) -> None:
    seed = 20260215
    dice = random.Random(seed)
    good = [
        "SELECT * FROM c WHERE c.id = @p AND (c.a > 5 OR c['b c'] IN (1, 'x', null)) AND NOT IS_DEFINED(c.z)",
        "SELECT c.a, c.b AS x, {n: c.a + 1, m: [c.b, -2]} FROM root c WHERE c.a BETWEEN 1 AND 2 ?? c.b ? true : false",
        "SELECT VALUE STARTSWITH(c.name, 'x', true) FROM c WHERE ARRAY_CONTAINS(c.tags, {a: 1}, true)",
    ]
    for number in range(amount(20_000)):
        if number % 3 == 0:
            text = " ".join(dice.choices(_PIECES, k=dice.randrange(1, 30)))
        else:
            characters = list(dice.choice(good))
            for _ in range(dice.randrange(1, 6)):
                at = dice.randrange(len(characters) + 1)
                match dice.randrange(3):
                    case 0:
                        characters[at : at + dice.randrange(1, 8)] = []
                    case 1:
                        characters.insert(at, dice.choice(_PIECES))
                    case _:
                        characters.insert(at, chr(dice.choice([dice.randrange(128), dice.randrange(0xD7FF)])))
            text = "".join(characters)
        try:
            bound = compile_query(text).bind({"@p": dice.choice([1, "x", None, [1], {"a": 1}, 2**60, True, UNDEFINED])})
            for row in bound.evaluate_over([{"id": "1", "a": 5, "b": {"c": [1]}, "tags": [{"a": 1}], "name": "X"}, {}]):
                orjson.dumps(row)
        except Exception as error:
            if not isinstance(error, Failure) or error.kind not in (Kind.BAD_REQUEST, Kind.UNSUPPORTED):
                raise AssertionError(f"seed {seed}, number {number}, text {text!r}") from error


def test_long_lists_of_constants_are_no_operators() -> None:
    """What clients write to read many items, and long IN lists, however many operators that looks like."""
    keys = " OR ".join([f"(c.id = @i{n} AND c.a = 'a{n}' AND c['b'] = {n} AND c.d = null)" for n in range(1000)])
    bound = compile_query(f"SELECT * FROM c WHERE {keys}").bind({f"@i{n}": f"i{n}" for n in range(1000)})
    assert bound.predicate is not None
    assert bound.predicate({"id": "i7", "a": "a7", "b": 7, "d": None})
    assert not bound.predicate({"id": "i7", "a": "a7", "b": 8, "d": None})
    numbers = ", ".join(map(str, range(10_000)))
    bound = compile_query(f"SELECT * FROM c WHERE c.n IN ({numbers})").bind({})
    assert bound.predicate is not None
    assert bound.predicate({"n": 9999}) and not bound.predicate({"n": 10_000})


@pytest.mark.parametrize("joint", ["AND", "OR"])
def test_many_equalities_of_different_paths(joint: str) -> None:
    names = [f"p{n}" for n in range(100)]
    terms = [f"c.{name} = {n}" for n, name in enumerate(names)]
    terms += ["c.deep.x = true", "NOT IS_DEFINED(c.gone)", "c.t > 1"]
    bound = compile_query(f"SELECT * FROM c WHERE {f' {joint} '.join(terms)}").bind({})
    assert bound.predicate is not None
    item: dict[str, Any] = {name: n for n, name in enumerate(names)} | {"deep": {"x": True}, "t": 2}
    wrong: dict[str, Any] = dict.fromkeys(names) | {"gone": 1, "deep": {"x": 1}, "t": 1}
    for document, is_met in ((item, True), (wrong, False)):
        assert bool(bound.predicate(document)) is is_met
    for name, other in (("p0", False), ("p1", True), ("p5", "5"), ("gone", 1), ("t", "2"), ("deep", {"x": 1})):
        assert bool(bound.predicate(item | {name: other})) is (joint == "OR"), name
    for name, right in (("p7", 7), ("p7", 7.0), ("t", 1.5), ("deep", {"x": True})):
        assert bool(bound.predicate(wrong | {name: right})) is (joint == "OR"), name


@pytest.mark.parametrize(
    ("count", "is_taken"), [(limits.QUERY_OPERATORS_MAX, True), (limits.QUERY_OPERATORS_MAX + 1, False)]
)
def test_operators_are_counted_before_anything_is_compiled(count: int, is_taken: bool) -> None:
    text = "SELECT * FROM c WHERE " + "c.a + " * (count - 1) + "1"  # FROM is counted too
    if is_taken:
        parse_query(text)
        return
    with pytest.raises(Failure, match="too many operators"):
        parse_query(text)


def test_results_and_patterns_have_limits() -> None:
    def value(expression: str, **parameters: Any) -> Any:
        given = {f"@{name}": each for name, each in parameters.items()}
        (row,) = compile_query(f"SELECT {expression} AS x").bind(given).evaluate_over([])
        return row.get("x", UNDEFINED)  # type: ignore[union-attr]

    half = "h" * (limits.ITEM_BYTES_MAX // 2)
    for text in ("@a || @b", "CONCAT(@a, @b)"):
        assert value(text, a=half, b=half) == half + half
        assert value(text, a=half, b=half + "h") is UNDEFINED
    most = limits.PATTERN_CHARACTERS_MAX
    long = "a" * most
    for text, pattern, found in (
        (long, "a" * (most - 1) + "_", True),
        (long, long + "%", UNDEFINED),
        (long + "b", long + "b", True),
        (long + "c", long + "b", False),
    ):
        assert value("@text LIKE @pattern", text=text, pattern=pattern) is found
        assert value(f"@text LIKE '{pattern}'", text=text) is found
    document = {"id": long + "x"}
    bound = compile_query(f"SELECT * FROM c WHERE c.id LIKE '{long}%'").bind({})
    assert bound.evaluate_over([document]) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "near 'end of text'. Expected 'SELECT'."),
        ("SELECT * FROM c WHERE c.n = = 1", "near '='. Expected an expression."),
        ("SELECT * FROM c ORDER c.n", "near 'c'. Expected 'BY'."),
        ("SELECT c.id AS 5 FROM c", "near '5'. Expected a name."),
        ("SELECT * FROM c OFFSET 5", "near 'end of text'. Expected 'LIMIT'."),
        ("SELECT * FROM 5", "near '5'. Expected the name of a collection, or a subquery in brackets."),
        ("SELECT * FROM c WHERE (c.n = 1", "near 'end of text'. Expected ')'."),
        ("SELECT * FROM c LIMIT 5", "near 'LIMIT'. Expected an operator, a clause or the end of the query."),
        ("SELECT VALUE {1: 2}", "near '1'. Expected the name of a property."),
        ("SELECT * FROM c /* here", "near '*'. Expected '*/' at the end of the comment."),
    ],
)
def test_syntax_errors_say_what_was_expected(text: str, said: str) -> None:
    assert refusal(text)["message"] == f"Syntax error, incorrect syntax {said}"

"""Query texts with something wrong: made from the cases of the corpus by changing words as the grammar knows them, or
bytes; and long texts of the kinds that make a parser or a compiler take its time.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.mutation import mutated_bytes, nasty_value

from armillary import limits
from armillary.errors import Failure
from armillary.languages.sql.compiling.function_table import FUNCTIONS
from armillary.languages.sql.syntax.lexer import tokens_of

CORPUS = Path(__file__).parent.parent / "conformance/sql"
_CLAUSES = (
    *("WHERE c.id = 'i01'", "GROUP BY c.kind", "ORDER BY c.year DESC", "OFFSET 1 LIMIT 2", "JOIN t IN c.tags"),
    *("DISTINCT", "TOP 3", "VALUE", "FROM c", "AND true", "OR c.price > 1", "ORDER BY c.a, c.b", "IN (1, 2)", "ASC"),
    *("LIKE '%a_'", "BETWEEN 1 AND 2", "? 1 : 2", "?? 1", "|| 'x'", "AS x", "ORDER BY RANK", "LIMIT 0", "ESCAPE '!'"),
)
_ATOMS = (
    *("c", "c.id", "c.tags[0]", "c['a b']", "@p", "@q", "1", "0", "-1", "1e308", "9223372036854775807", "0x1F", ".5"),
    *("''", "'a'", '"\\u0041"', "null", "undefined", "true", "[]", "{}", "[1, c.id]", "{a: c.b}", "udf.f(c)", "1 / 0"),
    *("COUNT(1)", "SUM(c.price)", "MAKELIST(c.id)", "(SELECT VALUE 1)", "ARRAY(SELECT t FROM t IN c.tags)", "*"),
    *("EXISTS(SELECT VALUE t FROM t IN c.tags)", "FIRST(SELECT VALUE t FROM t IN c.tags)", "RAND()", "c.a.b.c.d.e"),
    *("REGEXMATCH(c.id, '(a+)+$')", "REPLICATE('ab', 10000)", "VectorDistance(c.v, [1, 2])", "c[c.id]", "c[@p]"),
    *("FullTextScore(c.body, 'x')", "RRF(FullTextScore(c.body, 'x'))", "ST_DISTANCE(c.at, c.at)", "NUMBERBIN(c.x)"),
)


@cache
def cases() -> list[dict[str, Any]]:
    """The queries of the corpus, with parameters, without those that are refused."""
    lines = (CORPUS / "cases.jsonl").read_text("utf-8").splitlines()
    return [case for case in map(json.loads, lines) if "error" not in case]


@cache
def words() -> list[list[str]]:
    """Each case as its words and symbols."""
    found = []
    for case in cases():
        text = case["query"]
        found.append([text[token.start : token.end] for token in tokens_of(text)[:-1]])
    return found


def mutated_query(dice: random.Random) -> tuple[str, dict[str, Any]]:
    """A text and its parameters."""
    number = dice.randrange(len(cases()))
    case = cases()[number]
    parameters = {name: value if dice.random() < 0.7 else nasty_value(dice) for name, value in _parameters(case)}
    if dice.random() < 0.2:
        return mutated_bytes(dice, case["query"].encode()).decode("utf-8", "replace"), parameters
    text = list(words()[number])
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3, 5))):
        _MUTATIONS[dice.randrange(len(_MUTATIONS))](dice, text)
    return " ".join(text), parameters


def _parameters(case: dict[str, Any]) -> list[tuple[str, Any]]:
    return [*case.get("params", {}).items(), ("@p", 1)]


def _drop(dice: random.Random, text: list[str]) -> None:
    at = dice.randrange(len(text) + 1)
    del text[at : at + dice.choice((1, 1, 2, 5))]


def _double(dice: random.Random, text: list[str]) -> None:
    at = dice.randrange(len(text) + 1)
    text[at:at] = text[at : at + dice.choice((1, 2, 4, 8))] * dice.choice((1, 1, 2, 20))


def _swap(dice: random.Random, text: list[str]) -> None:
    if text:
        first, second = dice.randrange(len(text)), dice.randrange(len(text))
        text[first], text[second] = text[second], text[first]


def _insert(dice: random.Random, text: list[str]) -> None:
    at = dice.randrange(len(text) + 1)
    text[at:at] = [dice.choice(_CLAUSES if dice.random() < 0.4 else _ATOMS)]


def _replace(dice: random.Random, text: list[str]) -> None:
    """A word by another atom, or by a word of another case."""
    if text:
        other = dice.choice(words())
        text[dice.randrange(len(text))] = dice.choice(_ATOMS) if dice.random() < 0.5 else dice.choice(other)


def _graft(dice: random.Random, text: list[str]) -> None:
    """A stretch of another case in the place of one of this."""
    other = dice.choice(words())
    at, begin = dice.randrange(len(text) + 1), dice.randrange(len(other))
    text[at : at + dice.randrange(6)] = other[begin : begin + dice.choice((1, 3, 6, 12))]


def _rename(dice: random.Random, text: list[str]) -> None:
    """Another function where one is called."""
    calls = [at for at in range(len(text) - 1) if text[at + 1] == "(" and text[at].isidentifier()]
    if calls:
        text[dice.choice(calls)] = dice.choice(sorted(FUNCTIONS))


def _wrap(dice: random.Random, text: list[str]) -> None:
    """Something around an expression."""
    if text:
        at = dice.randrange(len(text))
        opening = dice.choice(("(", "NOT (", "-(", "[", "ABS(", "COUNT(", "UPPER(", "ARRAY_LENGTH(", "IIF(true, 1, "))
        times = dice.choice((1, 1, 1, 3, 40, 200))
        text[at] = opening * times + text[at] + ("]" if opening == "[" else ")") * times


def _subquery(dice: random.Random, text: list[str]) -> None:
    """A whole case inside this one."""
    at = dice.randrange(len(text) + 1)
    kind = dice.choice(("", "EXISTS", "ARRAY", "ALL", "FIRST", "LAST"))
    text[at : at + 1] = [f"{kind}({' '.join(dice.choice(words()))})"]


_MUTATIONS = (_drop, _double, _swap, _insert, _insert, _replace, _replace, _graft, _rename, _wrap, _subquery)


# Long texts. Each is `begin`, then `piece` as often as it goes, then `end`; a % in a piece is a number.

_W = "SELECT * FROM c WHERE "
_SPARE = 16  # characters, for callers that vary the text
LONG_TEXTS: dict[str, tuple[str, str, str]] = {
    "comments without an end": ("", "/* ", ""),
    "comment signs": ("", "/*", ""),
    "digits before a letter": ("SELECT ", "1", "a"),
    "decimals before a letter": ("SELECT 1.", "1", "a"),
    "digits": ("SELECT ", "1", ""),
    "hexadecimal digits": ("SELECT 0x", "f", "g"),
    "a long exponent": ("SELECT 1e", "9", ""),
    "a string without an end": ("SELECT '", "x", ""),
    "escapes without an end": ("SELECT '", "\\n", ""),
    "escapes": ("SELECT '", "\\n", "'"),
    "half surrogates": ("SELECT '", "\\ud83d", "'"),
    "blanks": ("SELECT", " ", ""),
    "a long name": (_W, "a", ""),
    "names": ("", "a ", ""),
    "IN of numbers": (_W + "c.a IN (", "%,", "1)"),
    "IN without an end": (_W + "c.a IN (", "%,", ""),
    "IN of strings": (_W + "c.a IN (", "'some text %',", "1)"),
    "IN of paths": (_W + "c.a IN (", "c.b%,", "1)"),
    "IN of IN": (_W + "c.a IN (", "c.a IN (1),", "1)"),
    "OR of equalities": (_W, "c.a = % OR ", "true"),
    "OR of paths": (_W, "c.a% = 1 OR ", "true"),
    "OR of ranges": (_W, "c.a > % OR ", "true"),
    "OR of IN": (_W, "c.a IN (1, %) OR ", "true"),
    "OR without an end": (_W, "c.a = % OR ", ")"),
    "AND of equalities": (_W, "c.a = % AND ", "true"),
    "AND of IN": (_W, "c.a IN (1, %) AND ", "true"),
    "AND and OR": (_W, "c.a = 1 OR c.b = % AND ", "true"),
    "a long sum": (_W, "c.a + ", "1"),
    "a long sum of numbers": (_W, "% + ", "1"),
    "a chain of comparisons": (_W, "1 = ", "1"),
    "concatenation": (_W, "'a' || ", "'a'"),
    "coalescence": (_W, "c.a ?? ", "1"),
    "conditionals": (_W, "1 ? 1 : ", "1"),
    "negations": (_W, "NOT ", "1"),
    "signs": (_W, "- ", "1"),
    "brackets": (_W, "(", "1"),
    "arrays": (_W, "[", "1"),
    "objects": (_W, "{a:", "1"),
    "calls": (_W, "ABS(", "1"),
    "a long path": (_W + "c", ".a", ""),
    "long paths": (_W, "c" + ".a" * 120 + " = c.b OR ", "true"),
    "a large array": (_W + "c.a = [", "%,", "1]"),
    "a large object": (_W + "c.a = {", "a%: c.b,", "z: 1}"),
    "many columns": ("SELECT ", "c.a%,", "c.a FROM c"),
    "many constant columns": ("SELECT ", "%,", "1"),
    "many aggregates": ("SELECT ", "SUM(c.a),", "1 FROM c"),
    "many groups": ("SELECT c.a1 FROM c GROUP BY ", "c.a%,", "c.a1"),
    "groups and a sum": ("SELECT ", "c.a+", "c.a FROM c GROUP BY c.a + 1, c.a"),
    "groups and columns": ("SELECT ", "c.a.b.c.d.e.f,", "c.a FROM c GROUP BY c.a"),
    "many orders": ("SELECT * FROM c ORDER BY ", "c.a,", "c.a"),
    "many joins": ("SELECT 1 FROM c", " JOIN x% IN c.a", ""),
    "many subqueries": (_W, "EXISTS(SELECT 1) AND ", "true"),
    "filters in nested subqueries": (
        _W + "EXISTS(SELECT VALUE 1 FROM x IN c.a WHERE " * 30,
        "c.a = c.b AND ",
        "true" + ")" * 30,
    ),
    "subqueries that nest too deep": (
        _W + "EXISTS(SELECT VALUE 1 FROM x IN c.a WHERE " * 60,
        "c.a = c.b AND ",
        "true" + ")" * 60,
    ),
    "many patterns": (_W, "c.a LIKE '%_%_%a' OR ", "true"),
    "a long pattern": (_W + "c.a LIKE '", "_%a", "'"),
    "many expressions": (_W, "RegexMatch(c.a, '(a+)+$') OR ", "true"),
    "a long expression": (_W + "RegexMatch(c.a, '", "a*", "')"),
    "many functions of users": (_W, "udf.f(1) + ", "1"),
    "many parameters": (_W, "@p% OR ", "true"),
    "searches in arrays": (_W, "ARRAY_CONTAINS([1, 2, 3], c.a) OR ", "true"),
}


def long_text(name: str, size: int) -> str:
    begin, piece, end = LONG_TEXTS[name]
    room = size - len(begin) - len(end) - _SPARE
    is_numbered = "%" in piece and "LIKE" not in begin + piece
    pieces: list[str] = []
    while room > 0:
        made = piece.replace("%", str(len(pieces))) if is_numbered else piece
        room -= len(made)
        if room >= 0:
            pieces.append(made)
    return begin + "".join(pieces) + end


def dense_text(name: str) -> str:
    """As long as it can be without having too many words and symbols, or too many bytes."""
    low, high = 1024, limits.QUERY_TEXT_BYTES_MAX
    if _is_short(long_text(name, high)):
        return long_text(name, high)
    while high - low > 256:
        middle = (low + high) // 2
        low, high = (middle, high) if _is_short(long_text(name, middle)) else (low, middle)
    return long_text(name, low)


def _is_short(text: str) -> bool:
    try:
        tokens_of(text)
    except Failure as failure:
        return "words and symbols" not in failure.message
    return True

"""Hostile requests to the SQL door: legal queries whose cost grows with the square of an item, or whose values grow
while they are computed. Named ones, and a generator of more from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty")


class Query(NamedTuple):
    name: str
    text: str
    parameters: dict[str, Any] | None = None


def items(size: int) -> list[dict[str, Any]]:
    """The stored items, each of about `size` bytes at most."""
    numbers = list(range(size // 7))
    dice = random.Random(7)
    ring = [[round(10 + i / 1000, 6), round(10 + (i % 7) / 1000, 6)] for i in range(min(size // 30, 1_500))]
    ring = [*ring, [ring[-1][0], 9.0], [10.0, 9.0], ring[0]]
    tree: Any = 1
    while len(str(tree)) < size // 40:
        tree = [tree] * 20
    return [
        {"id": "arr", "a": numbers, "b": [str(n) for n in numbers[: size // 20]]},
        {"id": "objs", "a": [{"k": n, "t": [n % 5, True], "v": WORDS[n % 10]} for n in range(size // 45)]},
        {"id": "tiny", "a": numbers[:1000], "n": 1},
        {"id": "text", "s": " ".join(dice.choices(WORDS, k=size // 7)), "p": "a" * 9_000},
        {"id": "wide", "s": "".join(dice.choices("aé\U0001f600ß", k=size // 5)), "u": "\U0001f600" * (size // 10)},
        {"id": "blank", "s": " " * (size - 200)},
        {"id": "many", "o": {f"p{n}": n for n in range(size // 20)}},
        {"id": "tree", "a": tree, "b": [*tree, 1]},
        {"id": "json", "s": "[" + "1," * (size // 2 - 100) + "1]", "d": "1" * (size // 2 - 100)},
        {"id": "ring", "g": {"type": "Polygon", "coordinates": [ring]}},
        {"id": "line", "g": {"type": "LineString", "coordinates": [[n / 1e5, n % 9] for n in range(size // 15)]}},
        {"id": "vectors", "a": [[round(dice.random(), 3) for _ in range(100)] for _ in range(size // 700)]},
        *[{"id": f"i{n}", "n": n % 97, "s": WORDS[n % 10] * 9, "a": numbers[:50]} for n in range(300)],
    ]


_ONE = "FROM c WHERE c.id = "


def named(size: int) -> list[Query]:
    """Those that stopped the server once, and shapes of their kind."""
    big = "x" * (size // 4)
    many = ", ".join(map(str, range(size // 70)))
    return [
        Query(
            "JOIN with ARRAY_CONTAINS",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE ARRAY_CONTAINS(c.a, x + 1000000) AND c.id = 'arr'",
        ),
        Query(
            "200 x ARRAY_CONTAINS",
            f"SELECT VALUE 1 {_ONE}'arr' AND ("
            + " OR ".join(f"ARRAY_CONTAINS(c.a, {-1 - n})" for n in range(200))
            + ")",
        ),
        Query("20 x SetUnion", f"SELECT VALUE ARRAY_LENGTH({'SetUnion(' * 20}c.a{', c.a)' * 20}) {_ONE}'arr'"),
        Query(
            "ARRAY of long strings",
            "SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE CONCAT(REPLICATE('x', 9000), "
            f"ToString(x)) FROM x IN c.a JOIN y IN c.a)) {_ONE}'tiny'",
        ),
        Query(
            "three loops of 1,000",
            f"SELECT VALUE (SELECT VALUE COUNT(1) FROM x IN c.a JOIN y IN c.a JOIN z IN c.a) {_ONE}'tiny'",
        ),
        Query("two loops of 1,000", f"SELECT VALUE (SELECT VALUE COUNT(1) FROM x IN c.a JOIN y IN c.a) {_ONE}'tiny'"),
        Query(
            "partial match in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a "
            "WHERE ARRAY_CONTAINS(c.a, {'k': x.k + 1, 'v': 'delta'}, true) AND c.id = 'objs'",
        ),
        Query(
            "objects in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE ARRAY_CONTAINS(c.a, x) AND c.id = 'objs'",
        ),
        Query(
            "SetIntersect in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN ARRAY_SLICE(c.a, 0, 50) "
            "WHERE ARRAY_LENGTH(SetIntersect(c.a, c.a)) = x AND c.id = 'arr'",
        ),
        Query(
            "ARRAY_CONTAINS_ANY of 1,000",
            f"SELECT VALUE 1 {_ONE}'arr' AND ARRAY_CONTAINS_ANY(c.a, "
            + ", ".join(f"{-1 - n}" for n in range(1_000))
            + ")",
        ),
        Query(
            "IN of arrays", f"SELECT VALUE 1 {_ONE}'tree' AND c.a IN (" + ", ".join(f"[{n}]" for n in range(500)) + ")"
        ),
        Query("deep equality in JOIN", "SELECT VALUE COUNT(1) FROM c JOIN x IN c.b WHERE c.a = c.b AND c.id = 'tree'"),
        Query("DISTINCT of large values", "SELECT DISTINCT VALUE c.a FROM c"),
        Query(
            "DISTINCT in a subquery",
            f"SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT DISTINCT VALUE x FROM x IN c.a)) {_ONE}'objs'",
        ),
        Query("GROUP BY of large values", "SELECT COUNT(1) AS n, c.o FROM c GROUP BY c.o"),
        Query(
            "GROUP BY in a subquery",
            f"SELECT VALUE ARRAY(SELECT x.k, COUNT(1) AS n FROM x IN c.a GROUP BY x.k) {_ONE}'objs'",
        ),
        Query("MAKELIST of everything", "SELECT VALUE MAKELIST(c) FROM c"),
        Query("the item 300 times in a row", "SELECT " + ", ".join(f"c AS p{n}" for n in range(300)) + f" {_ONE}'arr'"),
        Query("the item in an ARRAY", f"SELECT VALUE ARRAY(SELECT VALUE c FROM x IN c.a) {_ONE}'tiny'"),
        Query(
            "CONCAT of 10 nested",
            "SELECT VALUE LENGTH(" + "CONCAT(" * 6 + "c.p" + f"{', c.p, c.p, c.p)' * 6}) {_ONE}'text'",
        ),
        Query("REPLACE that grows", f"SELECT VALUE LENGTH(REPLACE(c.p, 'a', REPLICATE('b', 100))) {_ONE}'text'"),
        Query(
            "200 x REPLACE", "SELECT VALUE [" + ", ".join(["REPLACE(c.p, 'a', 'bbbbbbbbbb')"] * 200) + f"] {_ONE}'text'"
        ),
        Query("LIKE with many wildcards", f"SELECT VALUE 1 {_ONE}'text' AND c.s LIKE '%a{'_' * 2_000}z%'"),
        Query("RegexMatch with repetitions", f"SELECT VALUE RegexMatch(c.s, '(a|b|ab)*cd(e|f)*g$') {_ONE}'text'"),
        Query(
            "RegexMatch in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN c.b WHERE RegexMatch(x, '^(1|2|12)*3$') AND c.id = 'arr'",
        ),
        Query(
            "RegexMatch with as many patterns",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN ARRAY_SLICE(c.b, 0, 500) "
            "WHERE RegexMatch('abc', CONCAT(x, '(a+)+$')) AND c.id = 'arr'",
        ),
        Query("UPPER of wide letters", f"SELECT VALUE LENGTH(UPPER(LOWER(c.s))) {_ONE}'wide'"),
        Query("INDEX_OF in wide letters", f"SELECT VALUE INDEX_OF(c.u, 'x') {_ONE}'wide'"),
        Query(
            "SUBSTRING in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN (SELECT VALUE ['a', 'b', 'c', 'd']) "
            "WHERE SUBSTRING(c.s, 5, 1000000) = x AND c.id = 'wide'",
        ),
        Query(
            "TRIM of many characters",
            f"SELECT VALUE LENGTH(TRIM(c.s, @all)) {_ONE}'blank'",
            {"@all": "".join(map(chr, range(32, 32 + size // 40)))},
        ),
        Query("StringToArray", f"SELECT VALUE ARRAY_LENGTH(StringToArray(c.s)) {_ONE}'json'"),
        Query("StringToNumber", f"SELECT VALUE StringToNumber(c.d) {_ONE}'json'"),
        Query("ToString of everything", "SELECT VALUE LENGTH(ToString(c)) FROM c"),
        Query(
            "STRINGSPLIT and STRINGJOIN", f"SELECT VALUE LENGTH(StringJoin(StringSplit(c.s, ' '), '--')) {_ONE}'text'"
        ),
        Query(
            "ObjectToArray in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN ObjectToArray(c.o) WHERE x.v = 5 AND c.id = 'many'",
        ),
        Query(
            "objects compared in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN ARRAY_SLICE(ObjectToArray(c.o), 0, 300) "
            "WHERE c.o = c.o AND {'a': c.o} = {'a': c.o, 'b': x} AND c.id = 'many'",
        ),
        Query(
            "ARRAY_MAX and ARRAY_MEDIAN",
            f"SELECT ARRAY_MAX(c.a) AS a, ARRAY_MIN(c.b) AS b, ARRAY_MEDIAN(c.a) AS m, ARRAY_AVG(c.a) AS v {_ONE}'arr'",
        ),
        Query("ARRAY_CONCAT nested", f"SELECT VALUE ARRAY_LENGTH({'ARRAY_CONCAT(' * 6}c.a{', c.a)' * 6}) {_ONE}'arr'"),
        Query("ST_WITHIN of rings", f"SELECT VALUE ST_WITHIN(c.g, c.g) {_ONE}'ring'"),
        Query(
            "ST_DISTANCE of lines",
            f"SELECT VALUE ST_DISTANCE(c.g, {{'type': 'Point', 'coordinates': [50, 5]}}) {_ONE}'line'",
        ),
        Query("ST_ISVALID of everything", "SELECT VALUE ST_ISVALID(c.g) FROM c"),
        Query(
            "FullTextContains with errors",
            f"SELECT VALUE FullTextContains(c.s, {{'term': 'hazel groves', 'distance': 2}}) {_ONE}'text'",
        ),
        Query(
            "50 x FullTextContains",
            "SELECT VALUE [" + ", ".join(f"FullTextContains(c.s, 'w{n}')" for n in range(50)) + f"] {_ONE}'text'",
        ),
        Query(
            "VectorDistance in JOIN",
            "SELECT TOP 10 VectorDistance(x, y) AS d FROM c JOIN x IN c.a "
            "JOIN y IN c.a WHERE VectorDistance(x, y) > 2 AND c.id = 'vectors'",
        ),
        Query("ORDER BY a computed value", "SELECT c.id FROM c ORDER BY c.n"),
        Query("ORDER BY RANK", "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.s, 'cedar', 'fjord')"),
        Query(
            "a long OR",
            "SELECT VALUE c.id FROM c WHERE "
            + " OR ".join(f"(c.n = {n} AND c.s = '{n}')" for n in range(min(size // 60, 4_000))),
        ),
        Query(
            "a long OR of functions",
            "SELECT VALUE c.id FROM c WHERE " + " OR ".join(f"STARTSWITH(c.s, '{n}')" for n in range(900)),
        ),
        Query("a long IN list", f"SELECT VALUE c.id FROM c WHERE c.n IN ({many})"),
        Query("a long text", f"SELECT VALUE '{big}' FROM c WHERE c.s != '{big}'"),
        Query(
            "many parameters",
            "SELECT VALUE 1 FROM c WHERE c.n IN (" + ", ".join(f"@p{n}" for n in range(2_000)) + ")",
            {f"@p{n}": n for n in range(2_000)},
        ),
        Query(
            "a large parameter",
            "SELECT VALUE COUNT(1) FROM c WHERE ARRAY_CONTAINS(@a, c.n)",
            {"@a": list(range(size // 7))},
        ),
        Query(
            "a large parameter compared",
            "SELECT VALUE COUNT(1) FROM c WHERE c.a = @a OR c.s = @s",
            {"@a": list(range(size // 14)), "@s": big},
        ),
        Query(
            "a large array of objects",
            "SELECT VALUE COUNT(1) FROM c WHERE ARRAY_CONTAINS(@a, {'n': c.n}, true)",
            {"@a": [{"n": -n} for n in range(size // 20)]},
        ),
        Query("an array written out", f"SELECT VALUE ARRAY_LENGTH([{many}]) FROM c"),
        Query(
            "scalar subqueries in one another",
            "SELECT VALUE " + "(SELECT VALUE " * 10 + "ARRAY_LENGTH(c.a)" + ")" * 10 + " FROM c",
        ),
        Query(
            "EXISTS in EXISTS",
            "SELECT VALUE COUNT(1) FROM c WHERE EXISTS(SELECT VALUE x FROM x IN c.a WHERE "
            "NOT EXISTS(SELECT VALUE y FROM y IN c.a WHERE y = x))",
        ),
        Query("rows of a JOIN", "SELECT VALUE {'x': x, 'y': y} FROM c JOIN x IN c.a JOIN y IN c.a WHERE c.id = 'tiny'"),
        Query("long rows of a JOIN", "SELECT VALUE c FROM c JOIN x IN c.a WHERE c.id = 'tiny'"),
        Query("no row of a JOIN", "SELECT VALUE 1 FROM c JOIN x IN c.a JOIN y IN c.a WHERE x + y < 0"),
        Query(
            "udf in JOIN",
            "SELECT VALUE COUNT(1) FROM c JOIN x IN ARRAY_SLICE(c.a, 0, 200) WHERE udf.busy(x) = 1 AND c.id = 'tiny'",
        ),
        Query("udf of a large value", f"SELECT VALUE udf.length(c) {_ONE}'arr'"),
        Query(
            "udf that gives a long value",
            "SELECT VALUE LENGTH(udf.long(x)) FROM c JOIN x IN ARRAY_SLICE(c.a, 0, 5) WHERE c.id = 'tiny'",
        ),
    ]


FUNCTIONS = {
    "busy": "function (x) { for (var i = 0, n = 0; i < 2e4; i++) { n += i } return n }",
    "length": "function (x) { return JSON.stringify(x).length }",
    "long": "function (x) { return 'x'.repeat(1000000) }",
}


# The generator.


def generated(seed: int, count: int) -> Iterator[Query]:
    dice = random.Random(seed)
    for number in range(count):
        yield Query(f"generated {seed}/{number}", _Author(dice).query())


class _Author:
    """Writes expressions of the types that make them legal, over the large values of the stored items."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._fresh = 0

    def _one(self, *choices: str) -> str:
        return self._dice.choice(choices)

    def _name(self) -> str:
        self._fresh += 1
        return f"v{self._fresh}"

    def query(self) -> str:
        where = self._one(
            "", "", f"c.id = '{self._one('arr', 'objs', 'tiny', 'text', 'wide', 'many', 'tree', 'json')}'"
        )
        match self._dice.randrange(6):
            case 0:
                text = f"SELECT VALUE {self.number(3)} FROM c"
            case 1:
                where = f"{self.truth(3)}{' AND ' + where if where else ''}"
                text = "SELECT VALUE c.id FROM c"
            case 2:
                name = self._name()
                where = f"{self.truth(2, name)}{' AND ' + where if where else ''}"
                text = f"SELECT VALUE COUNT(1) FROM c JOIN {name} IN {self.array(2)}"
            case 3:
                text = f"SELECT DISTINCT VALUE {self.any(2)} FROM c"
            case 4:
                name = self._name()
                text = (
                    f"SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE {self.any(2, name)} FROM {name} IN {self.array(1)}))"
                )
                text += " FROM c"
            case _:
                key = self.any(2)
                return f"SELECT COUNT(1) AS n, MAX({self.number(1)}) AS m FROM c GROUP BY {key}"
        return f"{text} WHERE {where}" if where else text

    def any(self, depth: int, name: str = "") -> str:
        return self._dice.choice((self.array, self.string, self.number, self.truth))(depth, name)

    def array(self, depth: int, name: str = "") -> str:
        if depth <= 0:
            return self._one("c.a", "c.b", "c.a", "ARRAY_SLICE(c.a, 10, 2000)", "ObjectToArray(c.o)")
        down = depth - 1
        element = self._name()
        return self._one(
            f"ARRAY_CONCAT({self.array(down)}, {self.array(down)})",
            f"SetUnion({self.array(down)}, {self.array(down)})",
            f"SetIntersect({self.array(down)}, {self.array(down)})",
            f"SetDifference({self.array(down)}, {self.array(down)})",
            f"ARRAY_SLICE({self.array(down)}, {self._dice.randrange(-9, 9)})",
            f"ARRAY(SELECT VALUE {self.any(down, element)} FROM {element} IN {self.array(0)})",
            f"ARRAY(SELECT DISTINCT VALUE {element} FROM {element} IN {self.array(down)})",
            f"StringToArray(ToString({self.array(down)}))",
            f"StringSplit({self.string(down)}, '{self._one('a', ' ', ',')}')",
            f"ObjectToArray({{'a': {self.any(down)}, 'b': {self.any(down)}}})",
        )

    def string(self, depth: int, name: str = "") -> str:
        if depth <= 0:
            return self._one("c.s", "c.u", "c.p", "c.id", f"ToString({name or 'c'})", "REPLICATE('xy', 900)")
        down = depth - 1
        return self._one(
            f"CONCAT({self.string(down, name)}, {self.string(down)})",
            f"REPLACE({self.string(down)}, '{self._one('a', ' ', 'xy')}', {self.string(0, name)})",
            f"REPLICATE({self.string(down)}, {self._dice.randrange(1, 9)})",
            f"UPPER({self.string(down, name)})",
            f"LOWER({self.string(down)})",
            f"REVERSE({self.string(down)})",
            f"SUBSTRING({self.string(down)}, {self._dice.randrange(50)}, 5000)",
            f"TRIM({self.string(down)})",
            f"ToString({self.any(down, name)})",
            f"StringJoin({self.array(down)}, '--')",
            f"({self.string(down)} || {self.string(0)})",
        )

    def number(self, depth: int, name: str = "") -> str:
        if depth <= 0:
            return self._one("c.n", "1", "0.5", name or "c.n", "ARRAY_LENGTH(c.a)")
        down = depth - 1
        element = self._name()
        return self._one(
            f"LENGTH({self.string(down, name)})",
            f"ARRAY_LENGTH({self.array(down)})",
            f"INDEX_OF({self.string(down)}, '{self._one('zz', 'fjord', 'e')}')",
            f"ARRAY_{self._one('SUM', 'AVG', 'MEDIAN', 'MAX', 'MIN')}({self.array(down)})",
            f"(SELECT VALUE {self._one('COUNT', 'MAX', 'MIN', 'SUM')}({self.any(down, element)}) FROM {element} IN "
            f"{self.array(down)})",
            f"StringToNumber({self.string(down)})",
            f"({self.number(down, name)} + {self.number(down)})",
            f"IIF({self.truth(down, name)}, {self.number(down)}, 1)",
        )

    def truth(self, depth: int, name: str = "") -> str:
        if depth <= 0:
            return self._one("true", "c.n > 3", f"IS_STRING({name or 'c.s'})", "ARRAY_CONTAINS(c.a, -1)")
        down = depth - 1
        element = self._name()
        return self._one(
            f"ARRAY_CONTAINS({self.array(down)}, {self.any(0, name)})",
            f"ARRAY_CONTAINS(c.a, {{'k': {name or 1}}}, true)",
            f"ARRAY_CONTAINS_ANY(c.a, {', '.join([self.any(0, name) for _ in range(6)])})",
            f"{self.array(down)} = {self.array(down)}",
            f"{self.any(down, name)} IN ({self.any(0)}, {self.any(0)}, [1], 'x')",
            f"CONTAINS({self.string(down, name)}, {self.string(0)}, true)",
            f"RegexMatch({self.string(down, name)}, '{self._one('(a|b)*c', '^.*z$', 'a{2,30}b', '[a-f]+ [g-z]+$')}')",
            f"{self.string(down)} LIKE '%a{self._one('_', '%', '[a-f]')}{'_' * 40}z%'",
            f"EXISTS(SELECT VALUE 1 FROM {element} IN {self.array(down)} WHERE {self.truth(down, element)})",
            f"({self.truth(down, name)} {self._one('AND', 'OR')} NOT {self.truth(down)})",
            f"STRINGEQUALS({self.string(down)}, {self.string(down)}, true)",
            f"SetEqual({self.array(down)}, {self.array(down)})",
        )

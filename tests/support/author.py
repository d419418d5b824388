"""Writes random queries, with parameters, and random items that they may match. All comes from the dice given."""

from __future__ import annotations

import random
from typing import Any

from support.reference import U


class Author:
    """The author of one query and of the items around it."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.parameters: dict[str, Any] = {}
        self.aliases = ["c"]  # of objects or of anything
        self._named = 0
        self.has_subqueries = False  # whether expressions may hold them

    def scalar(self) -> Any:
        if self.dice.random() < 0.7:  # few values, so that they meet
            return self.dice.choice([None, True, False, 1, "a"])
        return self.dice.choice([0, 2, -1, 1.5, 2**53, 2**53 + 1, 2**60, "", "ab", "b", "B"])

    def value(self, depth: int = 2) -> Any:
        roll = self.dice.random()
        if depth and roll < 0.15:
            return [self.value(depth - 1) for _ in range(self.dice.randrange(3))]
        if depth and roll < 0.3:
            return {self.dice.choice("abc"): self.value(depth - 1) for _ in range(self.dice.randrange(3))}
        return self.scalar()

    def item(self) -> dict[str, Any]:
        return {name: self.value() for name in ("id", "a", "b", "c", "x y") if self.dice.random() < 0.8}

    def path(self) -> str:
        alias = self.dice.choice(self.aliases)
        if alias != "c":
            text = alias + self.dice.choice(["", "", ".a", ".b", "[0]"])
        else:
            text = self.dice.choice(["c.id", "c.a", "c.b", "c.c", 'c["x y"]', "c.missing"])
        for _ in range(self.dice.choice([0, 0, 0, 1, 1, 2, 5])):
            text += self.dice.choice([".a", ".b", "[0]", "[1]", '["c"]'])
        return text

    def literal(self, value: Any) -> str:
        if value is U:
            return "undefined"
        if isinstance(value, str):
            return "'" + value + "'"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.literal, value)) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name}: {self.literal(inner)}" for name, inner in value.items()) + "}"
        return (
            {None: "null", True: "true", False: "false"}[value]
            if value is None or value is True or value is False
            else repr(value)
        )

    def constant(self) -> str:
        value = self.dice.choice([self.value(1), self.scalar(), self.scalar(), U if self.dice.random() < 0.1 else 1])
        if self.dice.random() < 0.5:
            return self.literal(value)
        name = f"@p{len(self.parameters)}"
        self.parameters[name] = value
        return name

    def expression(self, depth: int) -> str:
        dice = self.dice
        roll = dice.random()
        if self.has_subqueries and depth and roll < 0.08:
            return self.subquery()
        if depth == 0 or roll < 0.1:
            return self.path() if dice.random() < 0.6 else self.constant()
        if roll < 0.35:
            return f"({self.path()} {dice.choice(['=', '!=', '<', '<=', '>', '>='])} {self.constant()})"
        if roll < 0.37:
            pattern = "".join(dice.choices(["a", "b", "%", "_", "[a-b]", "[^a]", "!%", "["], k=dice.randrange(4)))
            return f"({self.path()} {dice.choice(['', 'NOT '])}LIKE {self.literal(pattern)} ESCAPE '!')"
        if roll < 0.42:
            operator = dice.choice("= != < <= > >= + - * / % || ?? & | ^ << >> >>>".split())
            return f"({self.expression(depth - 1)} {operator} {self.expression(depth - 1)})"
        if roll < 0.62:
            parts = [self.expression(depth - 1) for _ in range(dice.randrange(2, 4))]
            return "(" + dice.choice([" AND ", " OR "]).join(parts) + ")"
        if roll < 0.7:
            return f"(NOT {self.expression(depth - 1)})"
        if roll < 0.78:
            members = [self.constant() if dice.random() < 0.95 else self.path() for _ in range(dice.randrange(1, 6))]
            return f"({self.expression(depth - 1)} {dice.choice(['', 'NOT '])}IN ({', '.join(members)}))"
        if roll < 0.82:
            return f"({self.path()} {dice.choice(['', 'NOT '])}BETWEEN {self.constant()} AND {self.constant()})"
        if roll < 0.86 and "c" in self.aliases:
            # Like a client's way of reading many items.
            rows = [self._row() for _ in range(dice.randrange(4, 9))]
            return "(" + " OR ".join(rows) + ")"
        if roll < 0.9:
            first, second, third = (self.expression(depth - 1) for _ in range(3))
            return f"({first} ? {second} : {third})"
        name = dice.choice(
            "IS_DEFINED IS_NULL IS_BOOL IS_NUMBER IS_STRING IS_ARRAY IS_OBJECT IS_PRIMITIVE LOWER UPPER LENGTH ABS "
            "ARRAY_LENGTH STARTSWITH ENDSWITH CONTAINS ARRAY_CONTAINS ARRAY_CONTAINS".split()
        )
        first = self.path() if dice.random() < 0.8 else self.expression(depth - 1)
        if name in ("STARTSWITH", "ENDSWITH", "CONTAINS", "ARRAY_CONTAINS"):
            second = self.constant() if dice.random() < 0.8 else self.path()
            first, second = (second, first) if dice.random() < 0.2 else (first, second)
            return f"{name}({first}, {second}{', true' if name != 'ARRAY_CONTAINS' and dice.random() < 0.3 else ''})"
        return f"{name}({first})"

    def _row(self) -> str:
        terms = [f"c.id = {self.constant()}"]
        if self.dice.random() < 0.8:
            terms.append(
                self.dice.choice([f"c.a = {self.constant()}", "IS_DEFINED(c.a) = false", "NOT IS_DEFINED(c.a)"])
            )
        return "(" + " AND ".join(terms) + ")"

    # Whole queries.

    def query(self) -> str:
        """A query of any class, over the container c."""
        dice = self.dice
        if dice.random() < 0.1:
            return self._indexed()
        if dice.random() < 0.1:
            return self._composed()
        self.has_subqueries = True
        source = self._from()
        where = f" WHERE {self.expression(2)}" if dice.random() < 0.6 else ""
        roll = dice.random()
        if roll < 0.15:
            return f"SELECT {self._aggregates()} FROM {source}{where}"
        if roll < 0.3:
            keys = [self.path() for _ in range(dice.randrange(1, 3))]
            items = [f"{key} AS k{at}" for at, key in enumerate(keys) if dice.random() < 0.8]
            listed = ", ".join([*items, self._aggregates()])
            return f"SELECT {listed} FROM {source}{where} GROUP BY {', '.join(keys)}"
        distinct = "DISTINCT " if dice.random() < 0.2 else ""
        order = self._order() if "c" in self.aliases and dice.random() < 0.5 else ""
        top, page = "", ""
        if dice.random() < 0.2:
            top = f"TOP {self._count()} "
        elif dice.random() < 0.2:
            page = f" OFFSET {self._count()} LIMIT {self._count()}"
        return f"SELECT {distinct}{top}{self._selection()} FROM {source}{where}{order}{page}"

    def _indexed(self) -> str:
        """What an index may answer alone: counts and extremes, with filters that it knows exactly."""
        dice = self.dice
        paths = ["c.a", "c.b", "c.long", "c.a.b", "c.id"]
        calls = [
            f"{dice.choice(['COUNT', 'COUNT', 'MIN', 'MAX'])}({dice.choice(['1', 'c.a', *paths])}) AS g{at}"
            for at in range(dice.choice([1, 1, 2]))
        ]
        conditions = []
        for _ in range(dice.choice([0, 1, 1, 2, 3])):
            path = dice.choice(paths)
            conditions.append(
                dice.choice(
                    [
                        f"{path} = {self.constant()}",
                        f"{path} {dice.choice(['<', '<=', '>', '>='])} {self.constant()}",
                        f"{path} BETWEEN {self.constant()} AND {self.constant()}",
                        f"{path} IN ({self.constant()}, {self.constant()})",
                        f"IS_DEFINED({path})",
                        f"STARTSWITH({path}, {self.constant()})",
                        f"{path} LIKE 'a%'",
                        "c.pk = 'x'",
                    ]
                )
            )
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        if dice.random() < 0.3:
            where = where if len(conditions) == 1 else ""
            return f"SELECT DISTINCT {dice.choice(['', 'VALUE '])}{dice.choice(paths)} FROM c{where}"
        return f"SELECT {', '.join(calls)} FROM c{where}"

    def _composed(self) -> str:
        """What a composite or a tuple index may serve: several filters, with or without an order."""
        dice = self.dice

        def compared(path: str) -> str:
            operator = dice.choice(["=", "=", "=", "=", "<", "<=", ">", ">="])
            value = dice.choice([1, 1, "a", "a", True, None])
            if path == "c.long" and dice.random() < 0.8:
                value = dice.choice("xy") * dice.choice([100, 126, 127]) + dice.choice(["", "a"])
            return f"{path} {operator} {self.literal(value)}"

        conditions = [compared(path) for path in ("c.a", "c.b", "c.long") if dice.random() < 0.6]
        if dice.random() < 0.3:
            conditions.append(dice.choice(["IS_DEFINED(c.b)", compared("c.a"), "c.pk = 'x'", "c.id > 'i3'"]))
        source = "c"
        if dice.random() < 0.4:
            element = " AND ".join([compared("e.a"), compared("e.b")])
            if dice.random() < 0.5:
                source = "c JOIN e IN c.c"
                conditions.append(element)
            else:
                conditions.append(f"EXISTS(SELECT VALUE e FROM e IN c.c WHERE {element})")
        dice.shuffle(conditions)
        joined = " AND ".join(conditions)
        if dice.random() < 0.15:
            joined = f"({joined}) OR ({compared('c.a')} AND {compared('c.b')})" if joined else ""
        where = f" WHERE {joined}" if joined else ""
        order = self._order() if dice.random() < 0.6 else ""
        top = dice.choice(["", "", "TOP 2 "])
        return f"SELECT {top}VALUE c.id FROM {source}{where}{order}"

    def _count(self) -> str:
        count = self.dice.choice([0, 1, 2, 5, 40])
        if self.dice.random() < 0.5:
            return str(count)
        name = f"@p{len(self.parameters)}"
        self.parameters[name] = count
        return name

    def _selection(self) -> str:
        dice = self.dice
        roll = dice.random()
        if roll < 0.15 and len(self.aliases) == 1:
            return "*"
        if roll < 0.5:
            return f"VALUE {self.expression(1)}"
        return ", ".join(
            self.path() if dice.random() < 0.5 else f"{self.expression(1)} AS e{at}"
            for at in range(dice.randrange(1, 4))
        )

    def _aggregates(self) -> str:
        dice = self.dice
        names = "COUNT SUM AVG MIN MAX COUNTIF MAKELIST MAKESET".split()
        has_subqueries, self.has_subqueries = self.has_subqueries, False
        calls = [f"{dice.choice(names)}({self.expression(1)}) AS g{at}" for at in range(dice.randrange(1, 4))]
        self.has_subqueries = has_subqueries
        return ", ".join(calls)

    def _order(self) -> str:
        keys = self.dice.choice(
            [["c.a"], ["c.a"], ["c.b"], ["c.long"], ["c.a", "c.b"], ["c.b", "c.long"], ["c.a", "c.b", "c.long"]]
        )
        if len(keys) == 1:
            return f" ORDER BY {keys[0]}{self.dice.choice(['', ' ASC', ' DESC'])}"
        return " ORDER BY " + ", ".join(f"{key} {self.dice.choice(['ASC', 'DESC'])}" for key in keys)

    def _from(self) -> str:
        dice = self.dice
        roll = dice.random()
        self.aliases = ["c"]
        if roll < 0.5:
            return "c"
        if roll < 0.55:
            self.aliases = ["x"]
            return dice.choice(["c.a x", "c.a.b AS x", "c.c[0] x"])
        if roll < 0.62:
            self.aliases = ["x"]
            return dice.choice(["x IN c.a", "x IN c.b", "x IN c.c.a"])
        if roll < 0.67:
            self.aliases = ["c"]
            inner = self.expression(1)
            self.aliases = ["x"]
            return f"(SELECT {dice.choice(['', 'DISTINCT '])}VALUE {inner} FROM c) x"
        joins = ["c"]
        for _ in range(dice.randrange(1, 3)):
            joins.append(self._join())
        return " JOIN ".join(joins)

    def _join(self) -> str:
        dice = self.dice
        roll = dice.random()
        if roll < 0.6:
            path, alias = self.path(), self._alias()
            while "@" in path:
                path = self.path()
            text = f"{alias} IN {path}"
        elif roll < 0.8:
            inner, alias = self._rows(), self._alias()
            text = f"({inner}) {alias}"
        else:
            expression, alias = self.expression(1), self._alias()
            text = f"{alias} IN (SELECT VALUE {expression})"
        self.aliases = [*self.aliases, alias]
        return text

    def _alias(self) -> str:
        self._named += 1
        return f"j{self._named}"

    def _rows(self) -> str:
        """A subquery of any number of rows."""
        dice = self.dice
        alias, outer = self._alias(), self.aliases
        path = self.path()
        self.aliases = [*outer, alias]
        where = f" WHERE {self.expression(1)}" if dice.random() < 0.6 else ""
        distinct = "DISTINCT " if dice.random() < 0.2 else ""
        text = f"SELECT {distinct}VALUE {self.expression(1)} FROM {alias} IN {path}{where}"
        self.aliases = outer
        return text

    def subquery(self) -> str:
        dice = self.dice
        has_subqueries, self.has_subqueries = self.has_subqueries, dice.random() < 0.2
        roll = dice.random()
        if roll < 0.6:
            text = f"{dice.choice(['EXISTS', 'ARRAY', 'FIRST', 'LAST', 'ALL'])}({self._rows()})"
        elif roll < 0.75:
            text = f"(SELECT VALUE {self.expression(1)})"
        else:
            alias, path = self._alias(), self.path()
            outer, self.aliases = self.aliases, [*self.aliases, alias]
            name = dice.choice("COUNT SUM AVG MIN MAX COUNTIF".split())
            self.has_subqueries = False
            text = f"(SELECT VALUE {name}({self.expression(1)}) FROM {alias} IN {path})"
            self.aliases = outer
        self.has_subqueries = has_subqueries
        return text

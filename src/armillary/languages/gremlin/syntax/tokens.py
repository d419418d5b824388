"""The enumerations of the language: T.id, Order.desc, Scope.local and so on, with their spellings in scripts and on the
wire.

Which enumeration an argument must be of is checked by `step_arguments`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Token(Enum):
    """The parent of all enumerations, so that one isinstance test finds a token."""

    @property
    def family(self) -> str:
        return type(self).__name__


class T(Token):
    id = "id"
    label = "label"
    key = "key"
    value = "value"


class Order(Token):
    asc = "asc"
    desc = "desc"
    shuffle = "shuffle"


class Scope(Token):
    local = "local"
    global_ = "global"


class Pop(Token):
    first = "first"
    last = "last"
    all = "all"
    mixed = "mixed"


class Column(Token):
    keys = "keys"
    values = "values"


class Direction(Token):
    OUT = "OUT"
    IN = "IN"
    BOTH = "BOTH"

    @property
    def opposite(self) -> Direction:
        return {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}.get(self, self)


class Cardinality(Token):
    single = "single"
    list = "list"
    set = "set"


class Operator(Token):
    sum = "sum"
    minus = "minus"
    mult = "mult"
    div = "div"
    min = "min"
    max = "max"
    assign = "assign"
    and_ = "and"
    or_ = "or"
    addAll = "addAll"  # noqa: N815 -- the language's own spelling
    sumLong = "sumLong"  # noqa: N815


class Pick(Token):
    any = "any"
    none = "none"
    unproductive = "unproductive"


class Merge(Token):
    onCreate = "onCreate"  # noqa: N815
    onMatch = "onMatch"  # noqa: N815
    outV = "outV"  # noqa: N815
    inV = "inV"  # noqa: N815


class Barrier(Token):
    normSack = "normSack"  # noqa: N815


class DT(Token):
    second = "second"
    minute = "minute"
    hour = "hour"
    day = "day"


class GType(Token):
    """The types that asNumber() and typeOf() take."""

    byte = "BYTE"
    short = "SHORT"
    int = "INT"
    long = "LONG"
    float = "FLOAT"
    double = "DOUBLE"
    big_integer = "BIGINT"
    big_decimal = "BIGDECIMAL"
    number = "NUMBER"
    null = "NULL"
    boolean = "BOOLEAN"
    char = "CHAR"
    string = "STRING"
    uuid = "UUID"
    datetime = "DATETIME"
    duration = "DURATION"
    binary = "BINARY"
    list = "LIST"
    set = "SET"
    map = "MAP"
    vertex = "VERTEX"
    edge = "EDGE"
    vertex_property = "VPROPERTY"
    property = "PROPERTY"
    path = "PATH"
    tree = "TREE"
    graph = "GRAPH"


FAMILIES: Final[dict[str, type[Token]]] = {
    family.__name__: family
    for family in (T, Order, Scope, Pop, Column, Direction, Cardinality, Operator, Pick, Merge, Barrier, DT, GType)
}
_ALIASES: Final[dict[tuple[str, str], Token]] = {
    ("Order", "incr"): Order.asc,
    ("Order", "decr"): Order.desc,
    ("Direction", "from"): Direction.OUT,
    ("Direction", "to"): Direction.IN,
    ("Direction", "from_"): Direction.OUT,
    ("Direction", "out"): Direction.OUT,
    ("Direction", "in"): Direction.IN,
    ("Direction", "both"): Direction.BOTH,
    ("GType", "INTEGER"): GType.int,
    ("Barrier", "norm_sack"): Barrier.normSack,
}
# Older spellings and class names of families, as clients and scripts write them.
FAMILY_ALIASES: Final = {"VertexProperty.Cardinality": "Cardinality", "SackFunctions.Barrier": "Barrier"}


def find(family: str, name: str) -> Token | None:
    """The token, as in `find("Order", "desc")`; None if there is none."""
    members = FAMILIES.get(FAMILY_ALIASES.get(family, family))
    if members is None:
        return None
    alias = _ALIASES.get((members.__name__, name))
    if alias is not None:
        return alias
    try:
        return members(name)
    except ValueError:
        return None


# Names that scripts may write without their family. `all`, `list` and `none` are in several families; these are the
# ones that scripts mean.
BARE: Final[dict[str, Token]] = {
    **{token.value: token for family in (DT, Barrier, Pick, Operator, Merge) for token in family},
    **{token.value: token for family in (Cardinality, Direction, Column, Pop, Scope, Order, T) for token in family},
    "incr": Order.asc,
    "decr": Order.desc,
    "from": Direction.OUT,
    "to": Direction.IN,
}
# Keys and values of with(): plain texts and numbers on the wire.
CONSTANTS: Final[dict[str, str | int]] = {
    "WithOptions.tokens": "~tinkerpop.valueMap.tokens",
    "WithOptions.none": 0,
    "WithOptions.ids": 1,
    "WithOptions.labels": 2,
    "WithOptions.keys": 4,
    "WithOptions.values": 8,
    "WithOptions.all": 15,
    "WithOptions.indexer": "~tinkerpop.index.indexer",
    "WithOptions.list": 0,
    "WithOptions.map": 1,
    "ShortestPath.target": "~tinkerpop.shortestPath.target",
    "ShortestPath.edges": "~tinkerpop.shortestPath.edges",
    "ShortestPath.distance": "~tinkerpop.shortestPath.distance",
    "ShortestPath.maxDistance": "~tinkerpop.shortestPath.maxDistance",
    "ShortestPath.includeEdges": "~tinkerpop.shortestPath.includeEdges",
    "ConnectedComponent.component": "gremlin.connectedComponentVertexProgram.component",
    "ConnectedComponent.edges": "~tinkerpop.connectedComponent.edges",
    "ConnectedComponent.propertyName": "~tinkerpop.connectedComponent.propertyName",
    "PageRank.edges": "~tinkerpop.pageRank.edges",
    "PageRank.times": "~tinkerpop.pageRank.times",
    "PageRank.propertyName": "~tinkerpop.pageRank.propertyName",
    "PeerPressure.edges": "~tinkerpop.peerPressure.edges",
    "PeerPressure.times": "~tinkerpop.peerPressure.times",
    "PeerPressure.propertyName": "~tinkerpop.peerPressure.propertyName",
    "IO.graphson": "graphson",
    "IO.gryo": "gryo",
    "IO.graphml": "graphml",
    "IO.reader": "~tinkerpop.io.reader",
    "IO.writer": "~tinkerpop.io.writer",
}

"""GraphSON and GraphBinary: shapes as clients expect them, and refusal of what is malformed."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from gremlin_python.driver.request import RequestMessage
from gremlin_python.driver.serializer import GraphBinarySerializersV1

from armillary import limits
from armillary.errors import Failure
from armillary.languages.gremlin.formats import graphbinary_read, graphbinary_write, graphson_read
from armillary.languages.gremlin.formats.graphson_write import Writer
from armillary.languages.gremlin.syntax.tokens import Direction, T
from armillary.languages.gremlin.values.elements import Edge, Entry, Path, Property, Tree, Vertex, VertexProperty
from armillary.languages.gremlin.values.typed_values import BigInt, BulkSet, Byte, Char, Float32, Long, Set, Short, Uuid


def vertex() -> Vertex:
    found = Vertex("1", "person", None, {})
    assert found.properties is not None
    found.properties["name"] = [VertexProperty("p", "name", "marko", found, {"since": 2001})]
    return found


EDGE = Edge("7", "knows", Vertex("1", "person"), Vertex("2", "dog"), {"weight": 0.5})


def typed(kind: str, value: Any) -> dict[str, Any]:
    return {"@type": kind, "@value": value}


def test_untyped_as_cosmos_answers() -> None:
    write = Writer(1).write
    assert write(vertex()) == {
        "id": "1",
        "label": "person",
        "type": "vertex",
        "properties": {"name": [{"id": "p", "value": "marko", "properties": {"since": 2001}}]},
    }
    assert write(EDGE) == {
        "id": "7",
        "label": "knows",
        "type": "edge",
        "inVLabel": "dog",
        "outVLabel": "person",
        "inV": "2",
        "outV": "1",
        "properties": {"weight": 0.5},
    }
    assert write({T.id: "1", Direction.IN: 1, 2: True}) == {"id": "1", "IN": 1, "2": True}
    assert write(Path([1, "a"], [("x",), ()])) == {"labels": [["x"], []], "objects": [1, "a"]}
    assert write([Long(2), math.nan, Set([1])]) == [2, "NaN", [1]]
    tree = Tree()
    tree.branch("a", "a").branch("b", "b")
    assert write(tree) == {"a": {"key": "a", "value": {"b": {"key": "b", "value": {}}}}}


def test_typed() -> None:
    write = Writer(2).write
    assert write(1) == typed("g:Int32", 1) and write(Long(1)) == typed("g:Int64", 1)
    assert write(2**40) == typed("g:Int64", 2**40) and write(1.5) == typed("g:Double", 1.5)
    assert write(math.inf) == typed("g:Double", "Infinity") and write("a") == "a"
    assert write({"a": [1]}) == {"a": [typed("g:Int32", 1)]}
    assert write(T.id) == typed("g:T", "id")
    name = typed(
        "g:VertexProperty",
        {"id": "p", "value": "marko", "label": "name", "properties": {"since": typed("g:Int32", 2001)}},
    )
    assert write(vertex()) == typed("g:Vertex", {"id": "1", "label": "person", "properties": {"name": [name]}})
    weight = typed("g:Property", {"key": "weight", "value": typed("g:Double", 0.5)})
    assert write(EDGE)["@value"]["properties"] == {"weight": weight}
    write = Writer(3).write
    assert write([1]) == typed("g:List", [typed("g:Int32", 1)])
    assert write({T.id: "a"}) == typed("g:Map", [typed("g:T", "id"), "a"])
    assert write(Set(["a"])) == typed("g:Set", ["a"])
    assert write(BulkSet(["a", "a"])) == typed("g:BulkSet", ["a", typed("g:Int64", 2)])
    assert write(Entry("a", "b")) == typed("g:Map", ["a", "b"])
    path = typed("g:Path", {"labels": typed("g:List", [typed("g:Set", ["x"])]), "objects": typed("g:List", ["a"])})
    assert write(Path(["a"], [("x",)])) == path
    assert Writer(3).traverser("a", 2) == typed("g:Traverser", {"bulk": typed("g:Int64", 2), "value": "a"})
    assert Writer(3, is_typed=False).write([1, {"a": Long(1)}]) == [1, {"a": 1}]


VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**31 - 1, Long(5), 2**40, BigInt(2**80), Byte(-3), Short(300), 1.5, Float32(0.5)),
    *(
        "",
        "é\U0001f600",
        Char("é"),
        Uuid("41d2e28a-20a4-4ab0-b379-d810dede3786"),
        Decimal("1.25"),
        timedelta(seconds=90),
    ),
    *(datetime(2023, 8, 2, 1, 2, 3, tzinfo=UTC), [1, [2]], {"a": 1, T.id: [True]}, Set([1, "a"]), T.label),
    *(Direction.OUT, BulkSet(["a", "a", "b"]), Property("k", 1)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_is_written_is_read(value: Any) -> None:
    for found in (graphbinary_read.read(graphbinary_write.write(value)), graphson_read.read(Writer(3).write(value))):
        assert found == value and isinstance(found, type(value))


def test_elements_are_read_as_references() -> None:
    for given in (vertex(), EDGE):
        for found in (
            graphbinary_read.read(graphbinary_write.write(given)),
            graphson_read.read(Writer(3).write(given)),
        ):
            assert found == given and found.properties is None


def test_bindings_may_be_untyped() -> None:
    given = {"a": 1, "b": [typed("g:Int64", 2), {"c": "x"}], "d": 2**40}
    assert graphson_read.read(given) == {"a": 1, "b": [2, {"c": "x"}], "d": 2**40}


def test_frames_of_the_released_client() -> None:
    serializer = GraphBinarySerializersV1()
    request_id = uuid.UUID(int=2**127 + 1)
    frame = serializer.serialize_message(
        request_id, RequestMessage("", "eval", {"gremlin": "g.V(x)", "bindings": {"x": 1}, "aliases": {"g": "g"}})
    )
    found = graphbinary_read.read_request(bytes(frame)[33:])
    assert found[0] == str(request_id) and found[1:3] == ("eval", "")
    assert found[3]["gremlin"] == "g.V(x)" and found[3]["bindings"] == {"x": 1}
    answer = graphbinary_write.write_answer(
        str(request_id), 200, "", {"x-ms-request-charge": 1.5}, graphbinary_write.write([vertex(), 1])
    )
    received = serializer.deserialize_message(answer)
    assert received["requestId"] == str(request_id) and received["status"]["code"] == 200
    assert received["status"]["attributes"] == {"x-ms-request-charge": 1.5}
    first, second = received["result"]["data"]
    assert (first.id, first.label, first.properties[0].value, second) == ("1", "person", "marko", 1)


@pytest.mark.parametrize(
    "given",
    [
        typed("g:Int32", "1"),
        typed("g:Int32", 2**31),
        typed("g:Nothing", 1),
        typed("g:Map", [1]),
        typed("g:UUID", "x"),
        typed("g:T", "nothing"),
        typed("g:P", {"predicate": "gt"}),
        typed("g:Bytecode", {"step": [[]]}),
        typed("g:Bytecode", {"step": "V"}),
        typed("g:Date", "x"),
        typed("gx:Duration", "1"),
        typed("g:List", {}),
        {"@type": 1},
    ],
)
def test_malformed_graphson(given: Any) -> None:
    with pytest.raises(Failure) as caught:
        graphson_read.read(given)
    assert caught.value.details["status"] == 498


@pytest.mark.parametrize(
    "given",
    [b"", b"\x01", b"\x03\x00\xff\xff\xff\xff", b"\x09\x00\x7f\xff\xff\xff", b"\x7e\x00", b"\x01\x00\0\0\0\1\0"],
)
def test_malformed_graphbinary(given: bytes) -> None:
    with pytest.raises(Failure) as caught:
        graphbinary_read.read(given)
    assert caught.value.details["status"] == 498


def test_depth_is_limited() -> None:
    value: Any = []
    for _ in range(limits.GREMLIN_MESSAGE_DEPTH_MAX):
        value = [value]
    graphson_read.read(value)
    with pytest.raises(Failure, match="nested"):
        graphson_read.read([value])
    content = b"\x09\x00\x00\x00\x00\x01" * (limits.GREMLIN_MESSAGE_DEPTH_MAX + 1)
    with pytest.raises(Failure, match="nested"):
        graphbinary_read.read(content + b"\xfe\x01")

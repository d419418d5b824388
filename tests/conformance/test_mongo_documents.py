"""Documents through the released client and a real server: every type comes back byte for byte, and one container is
written and read from MongoDB's side and from SQL's, before and after it splits."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from azure.cosmos import ContainerProxy, CosmosClient
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from support.bson_documents import random_document, random_id
from support.process import ServerProcess

from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_values import decode, encode

RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
EXACT: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
DOCUMENTS = 5_000
# Types that drivers read and do not write any more, and what no driver writes: undefined, a symbol, a pointer, a NaN
# with something in it, a decimal that is not written as short as it could be.
ODD_ELEMENTS = (
    b"\x06undefined\x00",
    b"\x0esymbol\x00\x04\x00\x00\x00abc\x00",
    b"\x0cpointer\x00\x05\x00\x00\x00shop\x00" + bytes(range(12)),
    b"\x01nan\x00" + struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF),
    b"\x01negative nan\x00" + struct.pack("<Q", 0xFFF4_0000_0000_0001),
    b"\x13decimal\x00" + bytes(15) + b"\x78",
    b"\x13long decimal\x00" + b"\xff" * 13 + b"\x7f\x40\x30",
    b"\x05old binary\x00\x07\x00\x00\x00\x02\x03\x00\x00\x00abc",
    b"\x05encrypted\x00\x02\x00\x00\x00\x06ab",
    b"\x0bflags\x00^a\x00lmsux\x00",
)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    server = ServerProcess.start(None, "--partition-throughput", "1000")
    yield server
    server.stop()


@pytest.fixture
def house(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Database[Any]]:
    address = server.doors["mongo"].replace("://", f"://localhost:{quote_plus(server.key)}@")
    client: pymongo.MongoClient[Any] = pymongo.MongoClient(f"{address}/?replicaSet=globaldb&retryWrites=false")
    yield client[request.node.originalname]
    client.close()


def written(dice: random.Random, number: int) -> bytes:
    identifier = random_id(dice)
    while "'$" in repr(identifier):  # which servers refuse in an _id
        identifier = random_id(dice)
    fields = {"_id": identifier, "pk": number % 23, **random_document(dice)}
    fields |= {"dbref": {"$ref": "c", "$id": ObjectId(dice.randbytes(12)), "$db": "d"}, "nested": [[[], [number]], []]}
    content = encode(fields)
    extra = b"".join(dice.sample(ODD_ELEMENTS, dice.randrange(3)))
    return struct.pack("<i", len(content) + len(extra)) + content[4:-1] + extra + b"\x00"


@pytest.mark.parametrize("shard_key", [None, "pk"])
def test_every_type_comes_back_byte_for_byte(house: Database[Any], shard_key: str | None, seed: int) -> None:
    dice = random.Random(seed)
    name = f"types_{shard_key}"
    if shard_key:
        house.command(
            {"customAction": "CreateCollection", "collection": name, "shardKey": shard_key, "offerThroughput": 2400}
        )
    kept: dict[tuple[Any, str], bytes] = {}
    for number in range(DOCUMENTS // 2):
        content = written(dice, number)
        document = decode(content)
        kept.setdefault((document["pk"] if shard_key else None, id_text(document["_id"])), content)
    documents = [RawBSONDocument(content) for content in kept.values()]
    collection = house.get_collection(name, codec_options=RAW)
    for start in range(0, len(documents), 500):
        collection.insert_many(documents[start : start + 500])
    assert sorted(found.raw for found in collection.find({})) == sorted(kept.values())
    for chosen in dice.sample(documents, 50):
        one = decode(bytes(chosen.raw))
        found = list(collection.find({"_id": one["_id"], "pk": one["pk"]}))
        assert chosen.raw in [each.raw for each in found]
    collection.drop()


class Both:
    """One container from two sides, and what must be in it."""

    def __init__(self, documents: Any, items: ContainerProxy, seed: int) -> None:
        self._documents, self._items, self._dice = documents, items, random.Random(seed)
        self.known: dict[tuple[str, str], Any] = {}  # by shard key and id as SQL has it: the value of `n`

    def write(self, count: int) -> None:
        for number in range(count):
            key = f"p{self._dice.randrange(20)}"
            self._dice.choice((self._insert, self._create, self._update, self._replace))(key, number)

    def _insert(self, key: str, number: int) -> None:
        value = self._dice.choice([ObjectId(), Int64(self._dice.getrandbits(40)), f"m{self._dice.getrandbits(40)}"])
        document = {"_id": value, "pk": key, "n": number, "exact": Decimal128("1.50"), "bytes": Binary(b"\x00", 5)}
        self._documents.insert_one(document)
        self.known[key, id_text(value)] = number

    def _create(self, key: str, number: int) -> None:
        name = f"s{self._dice.getrandbits(40)}"
        self._items.create_item({"id": name, "pk": key, "n": number, "tags": ["a", {"b": None}]})
        self.known[key, name] = number

    def _update(self, key: str, number: int) -> None:
        changed = self._documents.update_many({"pk": key, "n": {"$gte": 10}}, {"$inc": {"n": 1000}}).modified_count
        for each in [each for each, n in self.known.items() if each[0] == key and n >= 10]:
            self.known[each] += 1000
            changed -= 1
        assert changed == 0

    def _replace(self, key: str, number: int) -> None:
        names = sorted(each for each in self.known if each[0] == key)
        if names:
            key, name = self._dice.choice(names)
            item = self._items.read_item(name, key)
            item["n"] = number
            self._items.replace_item(name, item)
            self.known[key, name] = number

    def check(self) -> None:
        rows = self._items.query_items("SELECT c.id, c.pk, c.n FROM c", enable_cross_partition_query=True)
        assert {(row["pk"], row["id"]): row["n"] for row in rows} == self.known
        found = list(self._documents.find({}))
        assert {(each["pk"], id_text(each["_id"])): each["n"] for each in found} == self.known
        for each in found:
            if "exact" in each:  # SQL may have written it since
                assert (each["exact"], each["bytes"]) == (Decimal128("1.50"), Binary(b"\x00", 5))


def test_one_container_from_both_sides_while_it_splits(house: Database[Any], server: ServerProcess, seed: int) -> None:
    throughput = {"collection": "c", "offerThroughput": 600}
    house.command({"customAction": "CreateCollection", "shardKey": "pk", **throughput})
    with CosmosClient(server.url, server.key) as client:
        items = client.get_database_client(house.name).get_container_client("c")
        both = Both(house.get_collection("c", codec_options=EXACT), items, seed)
        both.write(60)
        both.check()
        house.command({"customAction": "UpdateCollection", **throughput, "offerThroughput": 3000})
        both.write(30)
        deadline_s = time.monotonic() + 120
        while house.command({"collStats": "c"})["partitions"] == 1:
            assert time.monotonic() < deadline_s
        both.check()
        both.write(60)
        both.check()
        assert house["c"].count_documents({"_id": {"$type": "objectId"}}) == sum(
            name.startswith("oid:") for _, name in both.known
        )

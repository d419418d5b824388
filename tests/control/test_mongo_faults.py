"""Rules of faults as the released drivers of MongoDB see them: a write whose answer is lost is sent again, and done
once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from support.process import KEY
from support.server_operator import Operator

JS = Path(__file__).parent.parent / "sdk" / "js"
SCRIPT = """
import { MongoClient } from "mongodb";
const client = new MongoClient(process.env.TEST_ADDRESS);
const people = client.db(process.env.TEST_DATABASE).collection("items");
const made = await people.insertOne({ _id: "node", n: 1 });
const changed = await people.updateOne({ _id: "node" }, { $inc: { n: 1 } });
const found = await people.findOne({ _id: "node" });
console.log(JSON.stringify([made.insertedId, changed.modifiedCount, found.n]));
await client.close();
"""


@pytest.fixture
def address(operator: Operator, name: str) -> Iterator[str]:
    address = (
        operator.server.doors["mongo"].replace("://", f"://localhost:{quote_plus(KEY)}@") + "/?replicaSet=globaldb"
    )
    with pymongo.MongoClient[Any](address) as client:
        client[name].create_collection("items")
        yield address
        operator.ask("DELETE", "faults")
        client.drop_database(name)


def lose_answers(operator: Operator, name: str, **rule: Any) -> int:
    rule = {"database": name, "container": "items", "drop": True, "after": True, **rule}
    return int(operator.ask("POST", "faults", rule)["id"])


def hits(operator: Operator, rule: int) -> int:
    return int(operator.ask("GET", f"faults/{rule}")["hits"])


def test_pymongo_sends_again(operator: Operator, address: str, name: str) -> None:
    with pymongo.MongoClient[Any](address) as client:
        people = client[name]["items"]
        rule = lose_answers(operator, name, operations="write", every=2)
        for number in range(6):
            people.insert_one({"_id": number, "n": 0})
            people.update_one({"_id": number}, {"$inc": {"n": 1}})
        assert hits(operator, rule) > 3
        operator.ask("DELETE", "faults")
        assert [each["n"] for each in people.find({})] == [1] * 6


def test_node_sends_again(operator: Operator, address: str, name: str) -> None:
    rules = [lose_answers(operator, name, operations=each, count=1) for each in ("create", "replace")]
    node = shutil.which("node")
    assert node is not None, "Node.js 20 or newer is not on the PATH; `make test` brings it"
    run = subprocess.run(
        [node, "--input-type=module", "--eval", SCRIPT],
        cwd=JS,
        env={**os.environ, "TEST_ADDRESS": address, "TEST_DATABASE": name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout.strip() == '["node",1,2]', run.stdout + run.stderr
    assert [hits(operator, rule) for rule in rules] == [1, 1]

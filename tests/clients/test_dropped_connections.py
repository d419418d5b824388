"""A connection that the server drops, as a fault rule asks, is recorded as dropped, and the replay expects it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from clients.recording.exchanges import Exchange, Recording
from clients.recording.selection import kept_exchanges
from clients.replaying.replay import replay
from clients.running import SERVER_ARGUMENTS, ports_of, recorded_server
from support.process import ServerProcess

DATABASE = "d"
_GRAPH_REQUEST = {
    "requestId": "01234567-89ab-cdef-0123-456789abcdef",
    "op": "eval",
    "processor": "",
    "args": {"gremlin": "g.addV('p').property('id', '1').property('pk', 'x').count()", "language": "gremlin-groovy"},
}
DROPPED: list[Exchange] = [
    {
        "api": "sql",
        "method": "POST",
        "target": "/dbs/d/colls/graph/docs",
        "headers": {"content-type": "application/json", "x-ms-documentdb-partitionkey": '["x"]'},
        "body": '{"id": "2", "pk": "x"}',
    },
    {
        "api": "mongo",
        "flags": 0,
        "document": {"insert": "graph", "$db": DATABASE, "documents": [{"_id": "3", "pk": "x"}]},
        "sequences": {},
    },
    {
        "api": "gremlin",
        "id": _GRAPH_REQUEST["requestId"],
        "message": json.dumps(_GRAPH_REQUEST),
        "answers": [],
        "user": "/dbs/d/colls/graph",
    },
]


def control(target: str, body: dict[str, Any]) -> Exchange:
    headers = {"content-type": "application/json"}
    text = json.dumps(body)
    return {"api": "control", "method": "POST", "target": f"/_armillary/{target}", "headers": headers, "body": text}


SETUP = [
    control("databases", {"name": DATABASE}),
    control(f"databases/{DATABASE}/containers", {"name": "graph", "partitionKey": "/pk"}),
]
FAULT = control("faults", {"operations": "write", "count": 1, "drop": True})


async def test_dropped_connections_are_recorded_and_replayed(tmp_path: Path) -> None:
    sent = [*SETUP]
    for each in DROPPED:
        sent += [FAULT, {**each, "dropped": True}]
    recording = Recording()
    async with recorded_server(tmp_path, recording) as ports:
        assert await asyncio.to_thread(lambda: list(replay(sent, ports))) == []
    recorded = list(kept_exchanges(recording.exchanges))
    assert [each["api"] for each in recorded if each.get("dropped")] == ["sql", "mongo", "gremlin"]
    assert [each["answer"]["status"] for each in recorded if each["api"] == "control"] == [201] * 5
    server = await asyncio.to_thread(ServerProcess.start, None, *SERVER_ARGUMENTS)
    try:
        ports = ports_of(server)
        assert list(replay(recorded, ports)) == []
        unexpected = [each for each in recorded if each.get("dropped")]
        assert len(list(replay(unexpected, ports))) == 3, "each is answered now"
    finally:
        await asyncio.to_thread(server.stop)

"""Replays the exchanges of one recording in their order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from clients.recording.exchanges import Exchange
from clients.recording.proxies import Ports
from clients.replaying.gremlin_replay import GremlinReplay
from clients.replaying.http_replay import HttpReplay
from clients.replaying.mongo_replay import MongoReplay
from clients.replaying.volatile_values import VolatileValues


def replay(exchanges: list[Exchange], ports: Ports) -> Iterator[tuple[int, str, str]]:
    """The number and the name of each request whose answer differs, and how."""
    volatile = VolatileValues()
    with (
        closing(HttpReplay(ports, volatile)) as over_http,
        closing(MongoReplay(ports, volatile)) as mongo,
        closing(GremlinReplay(ports, volatile)) as gremlin,
    ):
        for number, exchange in enumerate(exchanges, 1):
            api = exchange["api"]
            door: GremlinReplay | HttpReplay | MongoReplay
            door = mongo if api == "mongo" else gremlin if api == "gremlin" else over_http
            for difference in door.send(exchange):
                yield number, _name(exchange), difference


def _name(exchange: Exchange) -> str:
    if exchange["api"] == "mongo":
        return str(next(iter(exchange["document"].items())))
    if exchange["api"] == "gremlin":
        return str(exchange["message"])[:200]
    return f"{exchange['method']} {exchange['target']}"

"""Upper bound of the Gremlin API: a server that decodes every message as Armillary does and answers with the same
vertex. `python -m bench.gremlin_echo`.
"""

from __future__ import annotations

import asyncio
import gc

import uvloop

from armillary.clock import SystemClock
from armillary.doors.gremlin.authentication import Client
from armillary.doors.gremlin.connection import Connection
from armillary.doors.gremlin.messages import Responder, read_request
from armillary.languages.gremlin.values.elements import Vertex
from armillary.net.service import Roster
from bench.gremlin_graph import vertex


class _Echo:
    """Replaces the `GremlinDoor`."""

    def __init__(self, found: Vertex) -> None:
        self._found = found
        self._clock = SystemClock()

    async def answer(self, client: Client, message: bytes, is_text: bool) -> None:
        out = Responder(client.line, is_text, self._clock, "00000000-0000-0000-0000-000000000000")
        read_request(message, is_text, out, is_known=True, reads_properties=client.reads_properties)
        out.finish([self._found])


async def _serve() -> None:
    echo, roster = _Echo(vertex(1)), Roster()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(echo, roster), "127.0.0.1", 0)  # type: ignore[arg-type]
    gc.freeze()
    print(f"ready gremlin=ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())

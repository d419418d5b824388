"""Upper bound of point reads: Armillary's HTTP layer, answering every request with the same kilobyte.
`python -m bench.bare`.
"""

from __future__ import annotations

import asyncio

import uvloop

from armillary.net.http import Request, Response
from armillary.net.listen import listen

_ANSWER = Response(200, ((b"content-type", b"application/json"),), b"x" * 1024)


async def _answer(request: Request) -> Response:
    return _ANSWER


async def _serve() -> None:
    listener = await listen("127.0.0.1", 0, _answer)
    print(f"ready bare=http://127.0.0.1:{listener.port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())

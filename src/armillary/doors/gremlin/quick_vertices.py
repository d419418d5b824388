"""Fast path of scripts that read one vertex by its id, `g.V('id')` or `g.V(['key', 'id'])` with the values in the text
or in bindings: answered without a traversal, a greenlet and what a run needs. Anything unusual, anything to wait for
and what does not tell the place of a vertex is left to `traversals.py`.
"""

from __future__ import annotations

import re
from typing import Final
from weakref import WeakKeyDictionary

from armillary import limits, work
from armillary.account.container import Container
from armillary.account.graphs.graph import graph_key
from armillary.account.graphs.graph_documents import vertex_of
from armillary.account.visits.read_visits import ReadItem, read_at_hand
from armillary.doors.gremlin.authentication import Client
from armillary.doors.gremlin.messages import Request, Responder
from armillary.doors.gremlin.traversals import Services, World
from armillary.model.keys import NO_KEY, Key

_LITERAL: Final = re.compile(
    r"""g\.V\((?:(["'])([^"'\\\r\n]{1,255})\1|\[(["'])([^"'\\\r\n]{1,255})\3,[ ]?(["'])([^"'\\\r\n]{1,255})\5\])\)"""
)
_LANGUAGES: Final = ("gremlin-groovy", "gremlin-lang", None)
_UNUSUAL: Final = frozenset(("evaluationTimeout", "scriptEvaluationTimeout"))


async def answer(services: Services, client: Client, request: Request, container: Container, out: Responder) -> bool:
    """Whether the request has been answered. If not, nothing is counted."""
    visit = _visit(services, request, container)
    if visit is None:
        return False
    found = read_at_hand(container, visit)
    if found is None:
        return False
    out.charge_ru += found.charge_ru
    text, key = found.payload, _graph_key(container)
    if text is None or len(text) <= limits.GREMLIN_VERTEX_AT_ONCE_BYTES:
        _finish(out, text, key)
    else:
        world = World(client, services.account.clock, services.ids)
        await work.run(lambda: _finish(out, text, key), world.check)
    return True


def _finish(out: Responder, text: bytes | None, partition_key: str | None) -> None:
    vertex = vertex_of(text, partition_key) if text is not None else None
    out.finish([vertex] if vertex is not None else [])


def _visit(services: Services, request: Request, container: Container) -> ReadItem | None:
    arguments = request.arguments
    script, bindings = arguments.get("gremlin"), arguments.get("bindings")
    if type(script) is not str or arguments.get("language") not in _LANGUAGES or not _UNUSUAL.isdisjoint(arguments):
        return None
    batch_size = arguments.get("batchSize")
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        return None
    partition_key = _graph_key(container)
    if bindings:
        if type(bindings) is not dict:
            return None
        value = services.programs.vertex_named(script, bindings, partition_key)
    else:
        match = _LITERAL.fullmatch(script)
        if match is None:
            return None
        value = match[2] if match[2] is not None else [match[4], match[6]]
    if partition_key is None:
        if type(value) is not str:
            return None
        return ReadItem(container.effective_key(NO_KEY), value, key=NO_KEY)
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str or type(value[1]) is not str:
        return None
    key = Key((value[0],))
    return ReadItem(container.effective_key(key), value[1], key=key)


_keys: WeakKeyDictionary[Container, str | None] = WeakKeyDictionary()  # the key of a container never changes


def _graph_key(container: Container) -> str | None:
    try:
        return _keys[container]
    except KeyError:
        found = _keys[container] = graph_key(container)
        return found

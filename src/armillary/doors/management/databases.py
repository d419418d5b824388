"""Databases over the management API: `sqlDatabases`, `mongodbDatabases` and `gremlinDatabases`. A database of this
server is one for all APIs, so each of the three lists all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.account import containers
from armillary.account.catalog.records import Record
from armillary.doors.management import throughput
from armillary.doors.management.call import Action, Call
from armillary.model.resources import ResourceType
from armillary.net.http import Response

Shown = Callable[[Record], dict[str, Any]]


def without_links(record: Record) -> dict[str, Any]:
    """The name and the system properties that every API shows."""
    return {"id": record.name, "_rid": record.rid_text, "_etag": record.etag, "_ts": record.ts}


def database_actions(kind: str, *, shows_links: bool) -> tuple[tuple[str, str, Action], ...]:
    """Method, path and action of each request about databases under one word. `shows_links`: answers have the links of
    the SQL protocol, as Azure's have."""
    shown: Shown = (lambda record: record.to_json()) if shows_links else without_links

    async def list_databases(call: Call) -> Response:
        records = call.account.catalog.of_type(ResourceType.DATABASE)
        return call.answer_list(kind, [(each.name, shown(each)) for each in records])

    async def show_database(call: Call) -> Response:
        return call.answer_resource(kind, shown(call.database()))

    async def put_database(call: Call) -> Response:
        resource, options = call.envelope(kind)
        name = call.named_resource(resource)
        resource.end()
        wanted = throughput.read_options(options)
        record = call.account.catalog.find(ResourceType.DATABASE, b"", name)
        if record is None or record.name != name:
            record = await containers.create_database(call.account, {"id": name}, wanted)
        else:
            await throughput.change(call, record, wanted)
        return call.answer_resource(kind, shown(record))

    async def delete_database(call: Call) -> Response:
        await containers.delete_database(call.account, call.database(), None)
        return call.answer_deleted()

    return (
        ("GET", kind, list_databases),
        ("GET", f"{kind}/{{}}", show_database),
        ("PUT", f"{kind}/{{}}", put_database),
        ("DELETE", f"{kind}/{{}}", delete_database),
        *(
            (method, f"{kind}/{{}}/{words}", action)
            for method, words, action in throughput.settings_actions(kind, lambda call: call.database())
        ),
    )

"""Containers and graphs over the management API: `sqlDatabases/D/containers` and `gremlinDatabases/D/graphs`. Both are
containers of this server; a graph's partition key is checked by the rules of graphs.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.account import containers
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.graphs.graph import check_key_path
from armillary.doors.management import throughput
from armillary.doors.management.call import Action, Call
from armillary.doors.management.members import Members
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.resources import ResourceType
from armillary.net.http import Response

_POLICIES: Final = (
    "partitionKey",
    "indexingPolicy",
    "uniqueKeyPolicy",
    "defaultTtl",
    "conflictResolutionPolicy",
    "computedProperties",
    "vectorEmbeddingPolicy",
    "fullTextPolicy",
    "clientEncryptionPolicy",
    "geospatialConfig",
    "changeFeedPolicy",
)
# Of which the clients of the management API know nothing: an update without them leaves them as they are.
_KEPT: Final = ("geospatialConfig", "changeFeedPolicy", "analyticalStorageTtl")


def container_actions(databases: str, word: str, what: str, *, is_graph: bool) -> tuple[tuple[str, str, Action], ...]:
    """Method, path and action of each request about the containers of an API. `what`: its word for one of them."""
    kind = f"{databases}/{word}"

    async def list_containers(call: Call) -> Response:
        records = call.account.catalog.children(ResourceType.CONTAINER, call.database().rid)
        return call.answer_list(kind, [(each.name, _shown(each)) for each in records])

    async def show_container(call: Call) -> Response:
        return call.answer_resource(kind, _shown(call.container(what).record))

    async def put_container(call: Call) -> Response:
        resource, options = call.envelope(kind)
        body = _definition(call, resource)
        if is_graph and "partitionKey" in body:
            for path in PartitionKeyDefinition.parse(body["partitionKey"]).paths:
                check_key_path(path, body["id"])
        wanted = throughput.read_options(options)
        present = call.find_container()
        if present is None:
            made = await containers.create_container(call.account, call.database(), body, wanted)
            return call.answer_resource(kind, _shown(made.record))
        throughput.check_change(call, present.record, wanted)
        record = await _replace(call, present, body)
        await throughput.change(call, record, wanted)
        return call.answer_resource(kind, _shown(record))

    async def delete_container(call: Call) -> Response:
        await containers.delete_container(call.account, call.container(what), None)
        return call.answer_deleted()

    return (
        ("GET", f"{databases}/{{}}/{word}", list_containers),
        ("GET", f"{databases}/{{}}/{word}/{{}}", show_container),
        ("PUT", f"{databases}/{{}}/{word}/{{}}", put_container),
        ("DELETE", f"{databases}/{{}}/{word}/{{}}", delete_container),
        *(
            (method, f"{databases}/{{}}/{word}/{{}}/{words}", action)
            for method, words, action in throughput.settings_actions(kind, lambda call: call.container(what).record)
        ),
    )


def _definition(call: Call, resource: Members) -> dict[str, Any]:
    """The container's definition as the account takes it, which checks the policies."""
    body: dict[str, Any] = {"id": call.named_resource(resource)}
    resource.refuse("materializedViewDefinition", "create an ordinary container and fill it from the change feed.")
    for name in _POLICIES:
        value = resource.take(name)
        if value is not None:
            body[name] = without_nulls(value)
    resource.end()
    return body


async def _replace(call: Call, present: Container, body: dict[str, Any]) -> Record:
    if present.key is None and body.get("partitionKey", {}).get("paths") == containers.SYSTEM_KEY["paths"]:
        body = {name: value for name, value in body.items() if name != "partitionKey"}  # sent back as it was answered
    kept = {name: present.record.body[name] for name in _KEPT if name in present.record.body}
    return await containers.replace_container(call.account, present, {**kept, **body}, None)


def _shown(record: Record) -> dict[str, Any]:
    return {**record.to_json(), "partitionKey": record.body.get("partitionKey", containers.SYSTEM_KEY)}


def without_nulls(value: Any) -> Any:
    """Clients send null for attributes that they have not set."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value

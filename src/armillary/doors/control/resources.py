"""Databases and containers over the control API: list, show, create, delete, and their throughput."""

from __future__ import annotations

from typing import Any

from armillary import limits
from armillary.account import containers
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.throughput import offers, provisioning
from armillary.account.throughput.budgets import MODES, buckets_of
from armillary.account.throughput.provisioning import Throughput
from armillary.doors.control.call import Call
from armillary.doors.control.fields import Fields
from armillary.errors import bad_request
from armillary.model.resources import ResourceType
from armillary.net.http import Response


async def list_databases(call: Call) -> Response:
    call.query()
    return call.answer({"databases": [_database(call, each) for each in call.account.catalog.of_type(_DATABASE)]})


async def show_database(call: Call) -> Response:
    call.query()
    database = call.database()
    found = [_container(call, each) for each in _containers_of(call, database)]
    return call.answer({**_database(call, database), "containers": found})


async def create_database(call: Call) -> Response:
    fields = call.fields("a database")
    name = fields.required_text("name")
    wanted = read_throughput(fields)
    fields.end()
    database = await containers.create_database(call.account, {"id": name}, wanted)
    return call.answer(_database(call, database), 201)


async def delete_database(call: Call) -> Response:
    call.query()
    database = call.database()
    await containers.delete_database(call.account, database, None)
    return call.answer({"deleted": database.name})


async def list_all_containers(call: Call) -> Response:
    call.query()
    return call.answer({"containers": [_container(call, each) for each in call.account.containers]})


async def list_containers(call: Call) -> Response:
    call.query()
    database = call.database()
    return call.answer({"containers": [_container(call, each) for each in _containers_of(call, database)]})


async def show_container(call: Call) -> Response:
    call.query()
    container = call.container()
    return call.answer({**_container(call, container), "definition": container.record.body})


async def create_container(call: Call) -> Response:
    fields = call.fields("a container")
    name = fields.required_text("name")
    paths, is_fixed = fields.texts("partitionKey"), fields.truth("fixed")
    definition = fields.take("definition", {})
    wanted = read_throughput(fields)
    fields.end()
    if not isinstance(definition, dict):
        raise bad_request("'definition' of a container must be a JSON object with its policies.")
    body = {**definition, "id": name}
    if paths:
        if is_fixed or "partitionKey" in definition:
            raise bad_request(
                "Give either 'partitionKey' (--partition-key) or 'fixed' (--fixed), and a partition key only once."
            )
        kind = "Hash" if len(paths) == 1 else "MultiHash"
        body["partitionKey"] = {"paths": paths, "kind": kind, "version": 2}
    elif is_fixed == ("partitionKey" in definition):
        raise bad_request(
            "Give the container's 'partitionKey', such as /customerId, or 'fixed' for a container without one."
        )
    database = call.database()
    container = await containers.create_container(call.account, database, body, wanted, is_old_client=is_fixed)
    return call.answer(_container(call, container), 201)


async def delete_container(call: Call) -> Response:
    call.query()
    container = call.container()
    await containers.delete_container(call.account, container, None)
    return call.answer({"deleted": f"{container.database.name}/{container.name}"})


# Throughput.


async def scale_container(call: Call) -> Response:
    container = call.container()
    shared = (
        f"The container '{container.name}' has no throughput of its own. Scale its database, if that has throughput."
    )
    await _scale(call, container.record, shared)
    return call.answer(_container(call, container))


async def scale_database(call: Call) -> Response:
    database = call.database()
    await _scale(call, database, f"The database '{database.name}' has no throughput of its own. Scale its containers.")
    return call.answer(_database(call, database))


async def _scale(call: Call, owner: Record, refusal: str) -> None:
    """`refusal`: what to say if the owner has no throughput."""
    fields = call.fields("a throughput")
    wanted = read_throughput(fields)
    fields.end()
    if wanted is None:
        raise bad_request("Give the new 'throughput', or the 'autoscale' maximum, in request units a second.")
    offer = offers.offer_of(call.account, owner)
    if offer is None:
        raise bad_request(refusal)
    await offers.set_throughput(call.account, offer, wanted)


async def set_mode(call: Call) -> Response:
    fields = call.fields("a throughput mode")
    mode = fields.choice("mode", *MODES)
    fields.end()
    container = call.container()
    await call.account.budgets.set_mode(container, mode)
    return call.answer(_container(call, container))


async def set_buckets(call: Call) -> Response:
    fields = call.fields("throughput buckets")
    names = [str(bucket) for bucket in range(1, limits.THROUGHPUT_BUCKETS + 1)]
    given = {int(name): fields.whole(name, 1, 100) for name in names}
    fields.end()
    container = call.container()
    shares = {bucket: share for bucket, share in given.items() if share is not None}
    await call.account.budgets.set_buckets(container, shares)
    return call.answer(_container(call, container))


def read_throughput(fields: Fields) -> Throughput | None:
    manual_ru = fields.whole("throughput", 1, limits.THROUGHPUT_MAX_RU)
    autoscale_ru = fields.whole("autoscale", 1, limits.THROUGHPUT_MAX_RU)
    if manual_ru is not None and autoscale_ru is not None:
        raise bad_request("Give 'throughput' or 'autoscale', not both.")
    if autoscale_ru is not None:
        return Throughput.autoscale(autoscale_ru, None)
    return Throughput.manual(manual_ru) if manual_ru is not None else None


# As they are answered.

_DATABASE = ResourceType.DATABASE


def _containers_of(call: Call, database: Record) -> list[Container]:
    return [each for each in call.account.containers if each.database.rid == database.rid]


def _database(call: Call, database: Record) -> dict[str, Any]:
    found = _containers_of(call, database)
    return {
        "name": database.name,
        "containerCount": len(found),
        "items": sum(partition.head.item_count for each in found for partition in each.partitions.values()),
        "bytes": sum(partition.head.size_bytes for each in found for partition in each.partitions.values()),
        "throughput": _offer(call, database),
    }


def _container(call: Call, container: Container) -> dict[str, Any]:
    heads = [partition.head for partition in container.partitions.values()]
    return {
        "database": container.database.name,
        "name": container.name,
        "partitionKey": list(container.key.paths) if container.key is not None else None,
        "fixed": container.key is None,
        "throughput": _offer(call, container.record) or _shared(call, container),
        "mode": call.account.budgets.mode_of(container),
        "buckets": {str(bucket): share for bucket, share in buckets_of(container).items()},
        "partitionCount": len(heads),
        "items": sum(head.item_count for head in heads),
        "bytes": sum(head.size_bytes for head in heads),
        "moved": [{"filter": each.filter, "target": each.target} for each in container.state.moved],
    }


def _offer(call: Call, owner: Record) -> dict[str, Any] | None:
    offer = offers.offer_of(call.account, owner)
    if offer is None:
        return None
    present = provisioning.throughput_of(offer.body)
    return {
        "ru": present.ru,
        "autoscale": present.is_autoscale,
        "minimumRu": offers.minimum_ru(call.account, offer),
        "currentRu": call.account.budgets.current_ru(offer),
        "billedRu": call.account.budgets.billed_ru(offer),
        "pending": offers.is_pending(call.account, offer),
    }


def _shared(call: Call, container: Container) -> dict[str, Any] | None:
    shared = _offer(call, container.database)
    return {**shared, "sharedByDatabase": True} if shared is not None else None

"""Databases and containers: making, changing and deleting them, with their throughput and their partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import NewStore
from armillary.account.catalog.container_rules import new_rules
from armillary.account.catalog.container_state import Body, ContainerState, stored_change
from armillary.account.catalog.records import Record
from armillary.account.container import Container, new_ranges
from armillary.account.throughput import provisioning as throughputs
from armillary.account.throughput.offers import (
    check_fixed,
    least_ru,
    new_offer,
    offer_of,
    refuse_if_serverless,
)
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, Kind, bad_request
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.indexes.unique_keys import UniqueKeyPolicy
from armillary.model.items import strip_system_properties, validate_name
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.policies import ContainerPolicies, check_replacement
from armillary.model.ranges import even_boundaries
from armillary.model.resources import ResourceType

# The partition key that clients are shown for a container without one: its items have the empty key.
SYSTEM_KEY = {"paths": ["/_partitionKey"], "kind": "Hash", "systemKey": True}


async def create_database(account: Account, given: Any, wanted: Throughput | None) -> Record:
    if not isinstance(given, dict):
        raise bad_request("A database must be a JSON object with 'id'.")
    name = validate_name(given.get("id"))
    unknown = sorted(strip_system_properties(given).keys() - {"id", "_colls", "_users"})
    if unknown:
        raise bad_request(f"Unknown property '{unknown[0]}' in database '{name}'.")
    refuse_if_serverless(account, wanted, "database")
    if wanted is not None:
        wanted.check_range(limits.THROUGHPUT_MIN_RU, account.settings.throughput_max_ru)
    if wanted is not None and wanted.has_minute_pool:
        raise bad_request("Request units per minute are for containers, not for databases.")
    companions = (lambda made: [new_offer(wanted, made)]) if wanted is not None else None
    return await account.catalog.create(ResourceType.DATABASE, None, name, {"id": name}, companions=companions)


async def delete_database(account: Account, database: Record, if_match: str | None) -> None:
    await account.catalog.delete(database, if_match=if_match, on_deleted=account.leave)


async def create_container(
    account: Account,
    database: Record,
    given: Any,
    wanted: Throughput | None,
    *,
    is_old_client: bool = False,
    begin: Callable[[ContainerState], ContainerState] | None = None,
) -> Container:
    """Make a container with its partitions. Old clients may leave the partition key out: a fixed container. `begin`
    completes its state, with the options of a MongoDB collection for example."""
    name, body = container_body(given, is_old_client=is_old_client)
    key = PartitionKeyDefinition.parse(body["partitionKey"]) if "partitionKey" in body else None
    refuse_if_serverless(account, wanted, "container")
    shared = offer_of(account, database)
    own = wanted
    if own is None and (shared is None or key is None) and not account.settings.is_serverless:
        own = Throughput(least_ru(account, key))
    if own is None and shared is not None:
        _check_shared(account, database)
    if own is not None:
        own.check_range(least_ru(account, key), account.settings.throughput_max_ru)
        if key is None:
            check_fixed(account, own)
    count = _partition_count(account, own, shared) if key is not None else 1
    if own is not None:
        own.check_minute_pool(count)

    def state(_rid: bytes, new_store: NewStore) -> Body:
        boundaries = even_boundaries(count, key.version) if key is not None else []
        places = account.places_for(database, len(boundaries) + 1)
        made = ContainerState(new_ranges(boundaries, new_store, places), count, 1, account.highest_lsn)
        return (begin(made) if begin is not None else made).to_json()

    companions = (lambda made: [new_offer(own, made)]) if own is not None else None
    opened: list[Container] = []

    async def prepare(record: Record) -> None:
        opened.append(await account.opened(record))

    def take_in() -> None:
        account.take_in(opened[0])  # at once: a request that finds its name finds it

    await account.catalog.create(ResourceType.CONTAINER, database, name, body, state, companions, prepare, take_in)
    return opened[0]


async def replace_container(account: Account, container: Container, given: Any, if_match: str | None) -> Record:
    """Change policies. A new indexing policy or default TTL gets a new rules number and works through the items."""
    async with account.control:
        present = container.record
        if isinstance(given, dict) and "partitionKey" not in given and "partitionKey" in present.body:
            raise bad_request("The partitionKey of the container is missing in the replacement: it cannot be changed.")
        is_fixed = "partitionKey" not in present.body
        if is_fixed and isinstance(given, dict) and _is_system_key(given.get("partitionKey")):
            given = {name: value for name, value in given.items() if name != "partitionKey"}
        version = 1 if is_fixed else present.body["partitionKey"]["version"]
        _, body = container_body(given, is_old_client=is_fixed, default_version=version)
        check_replacement(present.body, body)
        # As at the creation, where the replacement spells them otherwise: clients put paths into queries.
        body.update({name: present.body[name] for name in ("partitionKey", "uniqueKeyPolicy") if name in present.body})
        is_ruled_anew = any(present.body.get(each) != body.get(each) for each in ("indexingPolicy", "defaultTtl"))
        has_versions = container.schema.versions_number > 0

        def change(state: ContainerState) -> ContainerState:
            if is_ruled_anew:
                state = new_rules(state, present.body)
            if not has_versions and "changeFeedPolicy" in body:  # versions that were kept before have a gap after them
                state = replace(state, versions_number=state.versions_number + 1)
            return state

        def adopt(changed: Record) -> None:
            container.adopt(changed)
            if is_ruled_anew:
                account.restate(container)

        changed = await account.catalog.replace(
            present, body, state=stored_change(change), if_match=if_match, on_replaced=adopt
        )
        await container.keep_versions()  # or else upkeep does it
        return changed


def _is_system_key(given: Any) -> bool:
    """As newer clients are answered for a container without a partition key, and send it back: some with a version."""
    if given is None:
        return False
    key = PartitionKeyDefinition.parse(given)
    return key.is_system and list(key.paths) == SYSTEM_KEY["paths"]


async def delete_container(account: Account, container: Container, if_match: str | None) -> None:
    await account.catalog.delete(container.record, if_match=if_match, on_deleted=account.leave)


async def rename_container(account: Account, container: Container, name: str) -> None:
    """Another name for a container that stays what it is, with all its items."""
    validate_name(name)
    async with account.control:
        present = container.record

        def adopt(changed: Record) -> None:
            container.adopt(changed)
            account.forget_names()

        await account.catalog.replace(present, {**present.body, "id": name}, name=name, on_replaced=adopt)


def container_body(given: Any, *, is_old_client: bool, default_version: int = 1) -> tuple[str, Body]:
    """A container's definition checked and completed, as it is stored and answered. A key is hashed by version 1 if it
    does not say otherwise, as in the service: JavaScript's client leaves the version to it."""
    if not isinstance(given, dict):
        raise bad_request("A container must be a JSON object with 'id' and 'partitionKey'.")
    name = validate_name(given.get("id"))
    policies = ContainerPolicies.parse(given)
    body: Body = {"id": name}
    key = None
    if given.get("partitionKey") is not None:
        key = PartitionKeyDefinition.parse(given["partitionKey"], default_version=default_version)
    elif not is_old_client:
        raise bad_request(
            "The partition key is missing: a container needs 'partitionKey', "
            'e.g. {"paths": ["/department"], "kind": "Hash", "version": 2}.'
        )
    indexing = IndexingPolicy.parse(
        given.get("indexingPolicy"),
        key_definition=key,
        has_ttl=policies.default_ttl is not None,
        vector_policy=given.get("vectorEmbeddingPolicy"),
        fulltext_policy=given.get("fullTextPolicy"),
        geospatial=policies.geospatial,
    )
    body["indexingPolicy"] = indexing.to_json()
    if key is not None:
        body["partitionKey"] = key.to_json()
    unique = UniqueKeyPolicy.parse(given.get("uniqueKeyPolicy"))
    if unique:
        body["uniqueKeyPolicy"] = unique.to_json()
    body.update(policies.to_json())
    return name, body


def _check_shared(account: Account, database: Record) -> None:
    sharing = [
        each
        for each in account.catalog.children(ResourceType.CONTAINER, database.rid)
        if offer_of(account, each) is None
    ]
    if len(sharing) >= limits.SHARED_DATABASE_CONTAINERS_MAX:
        raise Failure(
            Kind.BAD_REQUEST,
            f"The database '{database.name}' shares its throughput with {len(sharing)} containers; the most are "
            f"{limits.SHARED_DATABASE_CONTAINERS_MAX}. Create the container with throughput of its own.",
        )


def _partition_count(account: Account, own: Throughput | None, shared: Record | None) -> int:
    partition_ru = account.settings.partition_throughput_ru
    if own is not None:
        share = limits.INITIAL_PARTITION_SHARE if account.settings.has_partition_headroom else 1.0
        return own.partition_count(partition_ru, share)
    if shared is None:
        return 1  # serverless: partitions are made as they are needed
    # The containers of a database with shared throughput are spread over as many partitions as carry it.
    return throughputs.throughput_of(shared.body).partition_count(partition_ru, initial_share=1.0)

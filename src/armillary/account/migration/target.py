"""The target container of a migration: made like the source but for its key, or found as an earlier attempt left it.
Collections of MongoDB keep their options, and their indexes are declared again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.catalog.container_state import Body, ContainerState, index_list
from armillary.account.container import Container
from armillary.account.throughput.offers import offer_of
from armillary.account.throughput.provisioning import Throughput, throughput_of
from armillary.errors import Failure, Kind, bad_request
from armillary.model.bson.bson_json import ID, field_name
from armillary.model.edm import KEY_STEPS
from armillary.model.keys import PartitionKeyDefinition, parse_path

TABLES = "TablesDB"  # as the Table door names it
_OWN: Final = ("id", "partitionKey", "changeFeedPolicy")  # what a target has for itself


@dataclass(frozen=True, slots=True)
class Plan:
    target: str  # the name of the new container until it takes over
    paths: tuple[str, ...] | None  # its partition key; None: it has none, or exists already
    throughput: Throughput | None = None
    keep_as: str | None = None  # what the old container is called afterwards
    switches: bool = True
    filter: str | None = None  # of the items that get a container of their own; None: all are moved
    removes: bool = False  # these items, from the source, at the end


def _check_collection(source: Container, key: PartitionKeyDefinition | None) -> None:
    """Whether a collection of MongoDB can have this shard key at all."""
    if source.state.collection is None:
        return
    from armillary.account.collections.indexes import definitions  # what no other container needs

    if source.state.collection.cap is not None:
        raise Failure(Kind.UNSUPPORTED, f"'{source.name}' is capped: such a collection is not sharded.")
    fields = {".".join([field_name(steps[0]) or ID, *steps[1:]]) for steps in key.steps} if key is not None else set()
    for index in definitions(source):
        if index.get("unique") and not fields <= set(index["key"]):
            raise Failure(
                Kind.CONFLICT,
                f"The index '{index['name']}' of '{source.name}' is unique, which an index is only if it holds the "
                "shard key. Drop it, or take a key that it holds.",
            )


def refuse_table(source: Container) -> None:
    """The Table protocol needs the partition key of tables."""
    if source.database.name == TABLES and source.key is not None and source.key.steps == KEY_STEPS:
        raise Failure(
            Kind.UNSUPPORTED,
            f"'{source.name}' is a table, and tables are partitioned by PartitionKey. Export its entities, and import "
            "them to a container elsewhere.",
        )


def refuse_same_key(source: Container, plan: Plan) -> None:
    """A migration that was completed is not begun again. What is partitioned so by an older hash can be moved."""
    key = _key(plan)
    if key is not None and source.key is not None and key.to_json() == source.key.to_json():
        raise Failure(
            Kind.CONFLICT,
            f"'{source.name}' is partitioned by {', '.join(plan.paths or ())} already. If its policies are to be "
            "others, make the new container first.",
        )


def _key(plan: Plan) -> PartitionKeyDefinition | None:
    return PartitionKeyDefinition.parse(_key_body(plan.paths)) if plan.paths else None


def _key_body(paths: tuple[str, ...]) -> Body:
    return {"paths": list(paths), "kind": "Hash" if len(paths) == 1 else "MultiHash", "version": 2}


def definition_of(container: Container) -> Body:
    """The policies and indexes that a migration carries over, to detect changes of them."""
    body = {name: value for name, value in container.record.body.items() if name not in _OWN}
    return {"body": body, "indexes": index_list(container.state.indexes) or None}


def alike(source: Container, named: Body, key: PartitionKeyDefinition | None) -> Body:
    """The definition of a container that is like another but for its name and its key."""
    body = {name: value for name, value in source.record.body.items() if name not in _OWN}
    if source.is_collection:
        body["indexingPolicy"] = _collection_policy(source, key)
    return {**body, **{name: named[name] for name in _OWN if name in named}}


def _collection_policy(source: Container, key: PartitionKeyDefinition | None) -> dict[str, Any]:
    """Collections index `_id`, the shard key, and what their indexes say."""
    from armillary.account.collections.indexes import index_path

    policy: dict[str, Any] = source.record.body["indexingPolicy"]
    former = {index_path(steps) for steps in (source.key.steps if source.key is not None else ()) if steps != (ID,)}
    kept = [each for each in policy["includedPaths"] if each["path"] not in former]
    present = {each["path"] for each in kept}
    wanted = [index_path(steps) for steps in (key.steps if key is not None else ())]
    return {**policy, "includedPaths": [*kept, *[{"path": path} for path in wanted if path not in present]]}


async def made(account: Account, source: Container, plan: Plan) -> Container:
    """A new container with all that the other has but items and key."""
    _check_collection(source, _key(plan))
    named: Body = {"id": plan.target}
    if plan.paths:
        named["partitionKey"] = _key_body(plan.paths)
    body = alike(source, named, _key(plan))
    wanted = plan.throughput
    offer = offer_of(account, source.record)
    if wanted is None and offer is not None:
        wanted = throughput_of(offer.body)
    like = source.state
    collection = replace(like.collection, uuid=account.clock.guid()) if like.collection is not None else None

    def begin(state: ContainerState) -> ContainerState:
        return replace(
            state,
            throughput_mode=like.throughput_mode,
            throughput_buckets=like.throughput_buckets,
            collection=collection,
            indexes=like.indexes,
        )

    return await containers.create_container(
        account, source.database, body, wanted, is_old_client=not plan.paths, begin=begin
    )


def found(account: Account, source: Container, plan: Plan) -> Container:
    """A container that is there already: of an earlier attempt, or empty."""
    target = account.container(source.database.name, plan.target)
    mark = target.state.migration
    is_empty = not any(each.head.item_count for each in target.partitions.values())
    if (mark is not None and mark.source_rid != source.rid_text) or (mark is None and not is_empty):
        raise Failure(
            Kind.CONFLICT, f"The container '{plan.target}' is there already, and was not begun as a copy of this one."
        )
    if plan.paths and (target.key is None or target.key.steps != tuple(parse_path(path) for path in plan.paths)):
        raise Failure(Kind.CONFLICT, f"The container '{plan.target}' is there already, with another partition key.")
    if source.is_collection != target.is_collection:
        raise Failure(Kind.CONFLICT, f"One of '{source.name}' and '{plan.target}' is a collection of MongoDB's.")
    _check_collection(source, target.key)
    offer = offer_of(account, target.record)
    present = throughput_of(offer.body) if offer is not None else None
    if plan.throughput is not None and plan.throughput != present:
        raise bad_request(f"The container '{plan.target}' is there already, with a throughput of its own.")
    return target

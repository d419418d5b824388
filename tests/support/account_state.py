"""Everything that an account keeps in memory of the stored state, as plain values: two accounts on the same stores must
have the same, however they came to it. The table in docs/architecture.md, "Followers", lists the attributes."""

from __future__ import annotations

from typing import Any

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.partition.budget import Budget
from armillary.partition.history.retryable_write_records import Records
from armillary.partition.meter import Meter
from armillary.partition.partition import Partition
from armillary.partition.schema import Rules, Schema


def state_of(account: Account) -> dict[str, Any]:
    catalog = account.catalog
    return {
        "secret": account.secret,
        "records": {key: record.pack() for key, record in catalog._records.items()},
        "names": {
            owner: {name: record.pack() for name, record in named.items()} for owner, named in catalog._names.items()
        },
        "offers": {rid: record.pack() for rid, record in catalog._offers.items()},
        "containers": {each.record.rid: _container(each) for each in account.containers},
        "shared": {
            rid: [budget.limit for budget in budgets]
            for rid, budgets in account.budgets._shared.items()
            if any(_shares(each, budgets) for each in account.containers)
        },
        "left_lsn": account.catalog.left_lsn,
    }


def _shares(container: Container, budgets: list[Budget]) -> bool:
    """A database whose containers all have throughput of their own may still have budgets, which are not used."""
    return any(each.meter.budget is one for each in container.partitions.values() for one in budgets)


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two states differ."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        return [] if left == right else [f"{path}: {left!r} and {right!r}"]
    names = [*left, *[name for name in right if name not in left]]
    return [each for name in names for each in differences(left.get(name), right.get(name), f"{path}/{name!r}")]


def _container(container: Container) -> dict[str, Any]:
    return {
        "record": container.record.pack(),
        "database": container.database.pack(),
        "link": container.link,
        "key": container.key,
        "policies": container.policies,
        "schema": _schema(container.schema),
        "map": container.map.ranges,
        "is_retired": container.is_retired,
        "partitions": {number: _partition(each) for number, each in container.partitions.items()},
    }


def _schema(schema: Schema) -> dict[str, Any]:
    plain = ("rid", "self_link", "key", "logical_partition_bytes_max", "keeps_events", "keeps_images", "cap")
    return {
        **{name: getattr(schema, name) for name in (*plain, "versions_number", "versions_seconds")},
        "unique": schema.unique.to_json(),
        "rules": _rules(schema.rules),
        "older": {number: _rules(rules) for number, rules in schema.older_rules.items()},
    }


def _rules(rules: Rules) -> tuple[Any, ...]:
    indexes = [(index.name, index.slot) for index in rules.indexing.fields]
    return rules.number, rules.default_ttl, rules.takes_ttl, rules.indexing.to_json(), indexes


def _partition(partition: Partition) -> dict[str, Any]:
    return {
        "range": partition.range,
        "head": partition.head.pack(),
        "reached_lsn": partition.reached_lsn,
        "coverage": partition.coverage,
        "versions_number": partition.versions_number,
        "records": _sessions(partition.records),
        "is_moved": partition.is_moved,
        "is_dropped": partition.is_dropped,
        "paths": partition.paths,
        "meter": _meter(partition.meter),
    }


def _sessions(records: Records) -> dict[bytes, Any]:
    return {
        session: (last.number, last.written_s, last.values, last.keys, last.stale_keys)
        for session, last in records._sessions.items()
    }


def _meter(meter: Meter) -> tuple[Any, ...]:
    budget = meter.budget
    if budget is None:
        return (meter.is_enforcing,)
    return meter.is_enforcing, budget.limit, budget._minute_pool, budget._buckets

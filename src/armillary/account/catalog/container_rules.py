"""Rules of a container, made from its record: the indexing policy, the default TTL and the indexes of a collection, by
which its items are stored. A change gets a new number and is applied to the items in the background; until then items
follow either. Applying them is `partition`'s part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from armillary.account.catalog.container_state import Body, ContainerState, IndexState, OlderRules
from armillary.account.catalog.records import Record
from armillary.model.indexes.field_indexes import FieldIndex
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.keys import PartitionKeyDefinition
from armillary.partition.schema import Rules

_RULES_NUMBER_MAX = 65_535
_KEPT = ("indexingPolicy", "defaultTtl", "vectorEmbeddingPolicy", "fullTextPolicy")
FIRST_SLOT, LAST_SLOT = 16, 255  # of unique indexes; below are the container's own unique keys


def present_rules(record: Record, key: PartitionKeyDefinition | None) -> Rules:
    state = record.container_state
    return _make(state.rules_number, record.body, state.indexes, key, is_collection=state.collection is not None)


def older_rules(record: Record, key: PartitionKeyDefinition | None) -> dict[int, Rules]:
    state = record.container_state
    return {
        number: _make(number, older.policies, older.indexes, key, is_collection=state.collection is not None)
        for number, older in state.older_rules.items()
    }


def new_rules(state: ContainerState, body: Body) -> ContainerState:
    """The state of a container whose items are to follow new rules, while some still follow the present ones."""
    older = OlderRules({each: body[each] for each in _KEPT if each in body}, state.indexes)
    return replace(
        state,
        rules_number=state.rules_number % _RULES_NUMBER_MAX + 1,  # two bytes in each item's header
        older_rules={**state.older_rules, state.rules_number: older},
    )


def _make(
    number: int,
    body: Mapping[str, Any],
    indexes: Sequence[IndexState],
    key: PartitionKeyDefinition | None,
    *,
    is_collection: bool,
) -> Rules:
    fields = _field_indexes(indexes, is_collection=is_collection) if is_collection or indexes else ()
    ttl = body.get("defaultTtl")
    policy = IndexingPolicy.parse(
        body["indexingPolicy"],
        key_definition=key,
        has_ttl=ttl is not None,
        vector_policy=body.get("vectorEmbeddingPolicy"),
        fulltext_policy=body.get("fullTextPolicy"),
        fields=fields,
    )
    if ttl is None and policy.dated_fields:
        return Rules(number, policy, -1, takes_ttl=False)  # only TTL indexes: items expire by dates in the documents
    return Rules(number, policy, ttl)


def _field_indexes(indexes: Sequence[IndexState], *, is_collection: bool) -> tuple[FieldIndex, ...]:
    """Those of a collection, that of `_id` first. Servers without collections never import MongoDB's language."""
    from armillary.languages.mongo.indexes.index_definitions import ID_DEFINITION, folding, partial_filter
    from armillary.languages.mongo.indexes.key_conditions import required_keys
    from armillary.languages.mongo.indexes.special_indexes import special_keys

    fields = [FieldIndex.parse(ID_DEFINITION)] if is_collection else []
    for entry in indexes:
        definition = entry.definition
        given = definition.get("partialFilterExpression")
        requires = required_keys(given) if given is not None else None
        special = special_keys(definition)
        folds = folding(definition)
        fields.append(FieldIndex.parse(definition, entry.slot, partial_filter(definition), requires, special, folds))
    return tuple(fields)

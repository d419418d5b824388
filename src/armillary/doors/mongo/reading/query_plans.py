"""The winning plan of a query, as `explain` shows it: nested stages with the names that MongoDB gives them. The index
is chosen by `account/collections/document_queries.py`. `returnKey` uses the plan too.
"""

from __future__ import annotations

from armillary.account.collections import document_queries
from armillary.account.collections.indexes import definitions
from armillary.account.container import Container
from armillary.doors.mongo.reading import query_execution
from armillary.languages.mongo.sort_keys import Sort
from armillary.model.bson.bson_values import MISSING, Document


async def winning_plan(container: Container, wanted: query_execution.Wanted, sort: Sort | None) -> Document:
    """Nested stages. `sorts`: they give documents in the order of the sort."""
    if wanted.target.is_point:
        return {"stage": "IDHACK"}
    sorting = query_execution.sorted_selection(wanted, sort, None) if sort is not None else None
    chosen = await document_queries.choose_index(container, wanted.condition, sorting)
    if chosen is not None:
        definition = next(each for each in definitions(container) if each["name"] == chosen.name)
        scan = _index_scan(definition, chosen.is_multikey, is_reverse=chosen.is_reverse)
        scan["indexBounds"] = {
            path: ["(by the filter)"] if path in chosen.filtered_fields else ["[MinKey, MaxKey]"]
            for path in definition["key"]
        }
        return {"stage": "FETCH", "inputStage": scan, "sorts": chosen.sorts}
    if wanted.target.id_value is not MISSING or document_queries.names_ids(wanted.condition):
        return {"stage": "FETCH", "inputStage": _index_scan(definitions(container)[0], False, is_reverse=False)}
    if _uses_shard_key(container, wanted):
        return {"stage": "FETCH", "inputStage": {"stage": "IXSCAN", "indexName": "shard key", "direction": "forward"}}
    return {"stage": "COLLSCAN", "direction": "forward"}


def _uses_shard_key(container: Container, wanted: query_execution.Wanted) -> bool:
    return container.key is not None and wanted.target.key is not None


def _index_scan(definition: Document, is_multikey: bool, *, is_reverse: bool) -> Document:
    return {
        "stage": "IXSCAN",
        "keyPattern": definition["key"],
        "indexName": definition["name"],
        "isMultiKey": is_multikey,
        "isUnique": bool(definition.get("unique", False)) or definition["name"] == "_id_",
        "isSparse": bool(definition.get("sparse", False)),
        "isPartial": "partialFilterExpression" in definition,
        "indexVersion": 2,
        "direction": "backward" if is_reverse else "forward",
    }

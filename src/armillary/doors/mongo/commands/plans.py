"""How documents that match a filter are found, in stages with the names that MongoDB gives them. The choice itself is
`query`'s; here it is told, to whoever wants an explanation or the keys of the index that is used.
"""

from __future__ import annotations

from armillary.account.collections.indexes import definitions
from armillary.account.container import Container
from armillary.doors.mongo.reading import matching_documents
from armillary.languages.mongo.sort_keys import Sort
from armillary.model.bson.bson_values import MISSING, Document
from armillary.query.access.field_access import FieldPlan, field_plan, keyed_parts, several_in
from armillary.query.access.field_order import Served, served_order
from armillary.query.conditions import And, Condition, Equal, In
from armillary.storage.engine import View


async def winning_plan(container: Container, wanted: matching_documents.Wanted, sort: Sort | None) -> Document:
    """Nested stages. `sorts`: they give documents in the order of the sort."""
    if wanted.target.is_point:
        return {"stage": "IDHACK"}
    policy = container.schema.rules.indexing
    is_complete = not container.is_restating
    partition = next(iter(container.partitions.values()))
    selection = matching_documents.sorted_selection(wanted, sort, None) if sort is not None else None

    def choose(view: View) -> tuple[Served | None, FieldPlan | None, bool]:
        has_several = several_in(view)
        served = None
        if selection is not None and selection.ordering is not None:
            served = served_order(selection.ordering, wanted.condition, policy, has_several)
        plan = field_plan(keyed_parts(wanted.condition), policy, has_several)
        chosen = served.chosen if served is not None else plan.chosen if plan is not None else None
        return served, plan, chosen is not None and has_several(chosen)

    served, plan, is_multikey = await partition.read(choose) if is_complete else (None, None, False)
    chosen = served.chosen if served is not None else plan.chosen if plan is not None else None
    if chosen is not None:
        definition = next(each for each in definitions(container) if each["name"] == chosen.name)
        used = plan.fields if plan is not None else frozenset()
        scan = _index_scan(definition, is_multikey, is_reverse=served is not None and served.is_reverse)
        scan["indexBounds"] = {
            path: ["(by the filter)"] if path in used else ["[MinKey, MaxKey]"] for path in definition["key"]
        }
        return {"stage": "FETCH", "inputStage": scan, "sorts": served is not None}
    if wanted.target.id_value is not MISSING or _names_ids(wanted.condition):
        return {"stage": "FETCH", "inputStage": _index_scan(definitions(container)[0], False, is_reverse=False)}
    if _uses_shard_key(container, wanted):
        return {"stage": "FETCH", "inputStage": {"stage": "IXSCAN", "indexName": "shard key", "direction": "forward"}}
    return {"stage": "COLLSCAN", "direction": "forward"}


def _names_ids(condition: Condition) -> bool:
    parts = condition.parts if isinstance(condition, And) else (condition,)
    return any(isinstance(part, Equal | In) and part.path == "/id" for part in parts)


def _uses_shard_key(container: Container, wanted: matching_documents.Wanted) -> bool:
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

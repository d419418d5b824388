"""findAndModify: one document is changed or deleted, and told as it was before or is now."""

from __future__ import annotations

from typing import Final

from armillary.doors.mongo import changes, hints, namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.fields import Fields
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.projection import compile_projection
from armillary.languages.mongo.sorting import compile_sort
from armillary.model.bson_values import Document

FIELDS: Final = frozenset(
    "findAndModify findandmodify query sort remove update new fields upsert bypassDocumentValidation collation "
    "arrayFilters hint let maxTimeMS".split()
)


async def find_and_modify(call: Call) -> Reply:
    collection = call.collection()
    fields = call.fields
    is_removing = fields.flag("remove", False)
    is_new = fields.flag("new", False)
    is_upsert = fields.flag("upsert", False)
    _check(call.body, is_removing, is_new, is_upsert)
    container = await namespaces.for_writing(call, collection) if is_upsert else namespaces.find(call, collection)
    variables = changes.Variables(call)
    statement = Fields(
        {"q": fields.document("query", {}), **{name: call.body.get(name) for name in ("collation", "hint")}},
        call.name,
    )
    if is_removing:
        statement.body["limit"] = 1
        order = changes.delete_order(call, container, statement, variables)
    else:
        statement.body |= {"u": call.body["update"], "arrayFilters": call.body.get("arrayFilters"), "upsert": is_upsert}
        order = changes.update_order(call, container, statement, variables)
    wanted = fields.document("sort", {})
    if wanted:
        hints.check(container, None)
        order = changes.with_sort(order, compile_sort(wanted, order.collation, order.matcher.text))
    shown = fields.document("fields", {})
    project = compile_projection(shown, variables.context(order.collation), order.matcher) if shown else None
    value: Document | None = None
    status: Document = {"n": 0}
    if is_removing:
        value = await changes.delete_one(call, container, order) if container is not None else None
        status["n"] = 1 if value is not None else 0
    else:
        done = await changes.run_update(call, container, order) if container is not None else changes.Done()
        status = {"n": 1 if done.matched or done.is_upserted else 0, "updatedExisting": bool(done.matched)}
        if done.is_upserted:
            status["upserted"] = done.upserted_id
        value = done.after if is_new else done.before
    if value is not None and project is not None:
        value = project(value)
    return {"lastErrorObject": status, "value": value}


def _check(body: Document, is_removing: bool, is_new: bool, is_upsert: bool) -> None:
    has_update = body.get("update") is not None
    if is_removing and has_update:
        raise _wrong("Cannot specify both an update and remove=true")
    if is_removing and is_upsert:
        raise _wrong("Cannot specify both upsert=true and remove=true")
    if is_removing and is_new:
        raise _wrong("Cannot specify both new=true and remove=true; 'remove' always returns the deleted document")
    if not is_removing and not has_update:
        raise _wrong("Either an update or remove=true must be specified")


def _wrong(text: str) -> Failure:
    return refusal(9, text)

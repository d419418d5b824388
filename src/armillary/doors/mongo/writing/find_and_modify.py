"""findAndModify: one document is changed or deleted, and returned as it was before or is now."""

from __future__ import annotations

from typing import Final

from armillary import limits
from armillary.account.collections import compiled_changes
from armillary.account.collections.document_operations import Returning
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.writing import change_statements
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.sort_keys import compile_sort
from armillary.model.bson.bson_values import decode

FIELDS: Final = frozenset(
    "findAndModify findandmodify query sort remove update new fields upsert bypassDocumentValidation collation "
    "arrayFilters hint let maxTimeMS".split()
)


async def find_and_modify(call: Call) -> Reply:
    collection = call.collection()
    fields = call.fields
    check_options(call)
    is_removing, is_new = fields.flag("remove", False), fields.flag("new", False)
    is_upsert = fields.flag("upsert", False)
    container = await namespaces.for_writing(call, collection) if is_upsert else namespaces.find(call, collection)
    variables = change_statements.Variables(call)
    order = order_of(call, container, variables)
    shown = fields.document("fields", {})
    order = change_statements.returning(order, Returning(is_new, shown or None))
    compiled_changes.projection_of(order.change, order.context, order.matcher)  # refused before anything is done
    nothing = compiled_changes.modified_answer(None, None, is_removing=is_removing)
    if container is None:
        return nothing
    number = call.fields.number("stmtId", 0, high=limits.MONGO_STATEMENT_NUMBER_MAX)
    if call.retryable is not None:
        packed = (await call.retryable.known(container)).get(number)
        if packed is not None:
            return {**decode(packed), "retriedStmtId": number}
        order = change_statements.adjusted(order, statement=number)
    try:
        run = change_statements.delete_one if is_removing else change_statements.run_update
        done = await run(call, container, order)
    except Failure as failure:
        if call.transaction is not None:
            call.transaction.check((failure,))
        raise
    if done.repeated is not None:
        return {**decode(done.repeated), "retriedStmtId": number}
    return done.answer if done.answer is not None else nothing


def order_of(
    call: Call, container: Container | None, variables: change_statements.Variables
) -> change_statements.Order:
    """What is to be done to which document."""
    fields = call.fields
    statement = Fields(
        {"q": fields.document("query", {}), **{name: call.body.get(name) for name in ("collation", "hint")}},
        call.name,
    )
    if fields.flag("remove", False):
        statement.body["limit"] = 1
        order = change_statements.delete_order(call, container, statement, variables)
    else:
        statement.body |= {
            "u": call.body["update"],
            "arrayFilters": call.body.get("arrayFilters"),
            "upsert": fields.flag("upsert", False),
        }
        order = change_statements.update_order(call, container, statement, variables)
    wanted = fields.document("sort", {})
    if wanted:
        order = change_statements.adjusted(order, sort=compile_sort(wanted, order.collation, order.matcher.text))
    return order


def check_options(call: Call) -> None:
    body, fields = call.body, call.fields
    is_removing, is_new = fields.flag("remove", False), fields.flag("new", False)
    is_upsert = fields.flag("upsert", False)
    if is_new and any(path.endswith(".$") for path in fields.document("fields", {})):
        raise refusal(2, "cannot use a positional projection and return the new document")
    has_update = body.get("update") is not None
    if is_removing and has_update:
        raise _wrong("Cannot specify both an update and remove=true")
    if is_removing and is_upsert:
        raise _wrong("Cannot specify both upsert=true and remove=true")
    if is_removing and is_new:
        raise _wrong("Cannot specify both new=true and remove=true; 'remove' always returns the deleted document")
    if is_removing and body.get("arrayFilters") is not None:
        raise _wrong("Cannot specify arrayFilters and remove=true")
    if not is_removing and not has_update:
        raise _wrong("Either an update or remove=true must be specified")


def _wrong(text: str) -> Failure:
    return refusal(9, text)

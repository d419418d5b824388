"""Collections as plain lists, and commands on them with nothing but the language: what the door does with partitions,
indexes and cursors, in the shortest form. The language's conformance and differential tests run on these."""

from __future__ import annotations

from typing import Any

from bson.objectid import ObjectId

from armillary.errors import Failure
from armillary.languages.mongo.collation import key_function, parse_collation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.accumulators import distinct_values
from armillary.languages.mongo.filters.matching import Matcher, compile_filter
from armillary.languages.mongo.projection import compile_projection
from armillary.languages.mongo.sort_keys import compile_sort
from armillary.languages.mongo.updates.updates import compile_update, is_replacement
from armillary.languages.mongo.updates.upserts import id_first, upserted_document
from armillary.model.bson.bson_values import Document, order_key, shell_text

NOW_MS = 1_700_000_000_000


class Lists:
    def __init__(self, collections: dict[str, list[Document]]) -> None:
        self.collections = collections

    def run(self, command: Document) -> Document:
        """The reply; a Failure for what the door would answer with ok: 0."""
        name = next(iter(command))
        run = getattr(self, "_" + name.lower())
        context = Context.of(NOW_MS, lambda: 0.5, None, key_function(parse_collation(command.get("collation"))))
        reply: Document = run(command, context)
        return reply

    def documents(self, name: str) -> list[Document]:
        return self.collections.setdefault(name, [])

    def _find(self, command: Document, context: Context) -> Document:
        matcher = compile_filter(command.get("filter", {}), context)
        found = self._sorted(command, matcher, command.get("filter", {}), command.get("sort"), command["find"])
        skip, limit = command.get("skip", 0), command.get("limit", 0)
        found = found[skip : skip + limit if limit else None]
        if command.get("projection"):
            project = compile_projection(command["projection"], context, matcher)
            found = [project(document) for document in found]
        return {"documents": found}

    def _sorted(
        self, command: Document, matcher: Matcher, _given: Document, order: Any, collection: str
    ) -> list[Document]:
        found = [document for document in self.documents(collection) if matcher.matches(document)]
        if order:
            return compile_sort(order, parse_collation(command.get("collation")), matcher.text).applied(found)
        near = matcher.near
        return found if near is None else sorted(found, key=lambda document: near.distance(document) or 0.0)

    def _count(self, command: Document, context: Context) -> Document:
        count = len(self._find({"find": command["count"], "filter": command.get("query", {})}, context)["documents"])
        count = max(0, count - command.get("skip", 0))
        limit = abs(command.get("limit", 0))
        return {"n": min(count, limit) if limit else count}

    def _distinct(self, command: Document, context: Context) -> Document:
        found = self._find({"find": command["distinct"], "filter": command.get("query", {})}, context)["documents"]
        return {"values": distinct_values(found, command["key"], parse_collation(command.get("collation")))}

    def _aggregate(self, command: Document, context: Context) -> Document:
        from support.mongo_pipelines import aggregate

        return {"documents": aggregate(self.collections, command, context)}

    # Writes.

    def _insert(self, command: Document, context: Context) -> Document:
        _check_batch(command["documents"])
        target = self.documents(command["insert"])

        def insert(document: Document) -> int:
            _insert_into(target, command["insert"], document)
            return 1

        return _in_turn(command, command["documents"], insert)

    def _delete(self, command: Document, context: Context) -> Document:
        _check_batch(command["deletes"])
        target = self.documents(command["delete"])
        for statement in command["deletes"]:
            if statement["limit"] not in (0, 1):
                raise refusal(9, "The limit field in delete objects must be 0 or 1.")

        def delete(statement: Document) -> int:
            matcher = compile_filter(statement["q"], context)
            found = [document for document in target if matcher.matches(document)]
            for document in found[: 1 if statement["limit"] else None]:
                target[:] = [each for each in target if each is not document]
            return len(found) if not statement["limit"] else min(1, len(found))

        return _in_turn(command, command["deletes"], delete)

    def _update(self, command: Document, context: Context) -> Document:
        _check_batch(command["updates"])
        reply: Document = {"nModified": 0, "upserted": []}

        def update(statement: Document) -> int:
            is_multi = statement.get("multi", False)
            if is_multi and is_replacement(statement["u"]):
                raise refusal(9, "multi update is not supported for replacement-style update")
            change = compile_update(statement["u"], context, statement.get("arrayFilters"))
            matcher = compile_filter(statement["q"], context)
            target = self.documents(command["update"])
            found = [document for document in target if matcher.matches(document)][: None if is_multi else 1]
            for document in found:
                after = _changed(change, matcher, document)
                if after is not document:
                    reply["nModified"] += 1
                    target[next(place for place, each in enumerate(target) if each is document)] = after
            if not found and statement.get("upsert"):
                inserted = _insert_into(target, command["update"], upserted_document(statement["q"], change))
                index = next(place for place, each in enumerate(command["updates"]) if each is statement)
                reply["upserted"].append({"index": index, "_id": inserted["_id"]})
                return 1
            return len(found)

        return {**reply, **_in_turn(command, command["updates"], update), "nModified": reply["nModified"]}

    def _findandmodify(self, command: Document, context: Context) -> Document:
        if command.get("remove") and "update" in command:
            raise refusal(9, "Cannot specify both an update and remove=true")
        if command.get("remove") and command.get("new"):
            raise refusal(
                9, "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document"
            )
        matcher = compile_filter(command.get("query", {}), context)
        target = self.documents(command["findAndModify"])
        found = self._sorted(command, matcher, command.get("query", {}), command.get("sort"), command["findAndModify"])
        answer: Any = None
        status: Document = {"n": min(1, len(found))}
        if command.get("remove"):
            if found:
                answer = found[0]
                target[:] = [each for each in target if each is not answer]
        else:
            change = compile_update(command["update"], context, command.get("arrayFilters"))
            status["updatedExisting"] = bool(found)
            if found:
                before = found[0]
                after = _changed(change, matcher, before)
                target[next(place for place, each in enumerate(target) if each is before)] = after
                answer = after if command.get("new") else before
            elif command.get("upsert"):
                after = upserted_document(command.get("query", {}), change)
                after = _insert_into(target, command["findAndModify"], after)
                status.update(n=1, upserted=after["_id"])
                answer = after if command.get("new") else None
        if answer is not None and command.get("fields"):
            answer = compile_projection(command["fields"], context, matcher)(answer)
        return {"value": answer, "lastErrorObject": status}


def _changed(change: Any, matcher: Matcher, document: Document) -> Document:
    position = matcher.first_match(document, change.positional_array) if change.needs_position else None
    after: Document = change.apply(document, position)
    return after


def _check_batch(statements: list[Any]) -> None:
    if not statements:
        raise refusal(16, "Write batch sizes must be between 1 and 100000. Got 0 operations.")


def _insert_into(target: list[Document], name: str, document: Document) -> Document:
    document = id_first(document)
    if "_id" not in document:
        document = {"_id": ObjectId(), **document}
    if type(document["_id"]) is list:
        raise refusal(53, "The '_id' value cannot be of type array")
    key = order_key(document["_id"])
    if any(order_key(each["_id"]) == key for each in target):
        shown = shell_text({"_id": document["_id"]})
        raise refusal(11000, f"E11000 duplicate key error collection: test.{name} index: _id_ dup key: {shown}")
    target.append(document)
    return document


def _in_turn(command: Document, statements: list[Any], run: Any) -> Document:
    reply: Document = {"n": 0}
    for index, statement in enumerate(statements):
        try:
            reply["n"] += run(statement)
        except Failure as failure:
            error = {"index": index, "code": failure.details.get("code", 2), "errmsg": failure.message}
            reply.setdefault("writeErrors", []).append(error)
            if command.get("ordered", True):
                break
    return reply

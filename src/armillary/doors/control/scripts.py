"""Stored procedures, triggers and functions over the control API: list, show, store, delete, and runs of procedures
that tell what they do.
"""

from __future__ import annotations

from typing import Any

import orjson

from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.items import procedures
from armillary.doors.control.call import Call
from armillary.errors import Failure, Kind, bad_request
from armillary.model.keys import NO_KEY, Key
from armillary.model.resources import ResourceType
from armillary.net.http import Response

_TYPES = {
    "procedures": ResourceType.PROCEDURE,
    "triggers": ResourceType.TRIGGER,
    "functions": ResourceType.FUNCTION,
}
# How a run may end that is worth telling with what it did until then.
_ENDS = (Kind.SCRIPT_FAILED, Kind.TOO_LARGE, Kind.RETRY_WITH, Kind.TIMED_OUT)


async def list_scripts(call: Call) -> Response:
    call.query()
    container = call.container()
    found = {
        plural: [_told(each) for each in call.account.catalog.children(kind, container.record.rid)]
        for plural, kind in _TYPES.items()
    }
    return call.answer(found)


async def show_script(call: Call) -> Response:
    call.query()
    return call.answer(_told(_found(call)))


async def put_script(call: Call) -> Response:
    """Store a script, in the place of one of its name if there is one."""
    container, kind, name = call.container(), _kind(call), call.names[3]
    fields = call.fields("a script")
    given: dict[str, Any] = {"id": name, "body": fields.required_text("body")}
    if kind is ResourceType.TRIGGER:
        given |= {each: fields.required_text(each) for each in ("triggerType", "triggerOperation")}
    fields.end()
    name, body = procedures.script_body(kind, given)
    present = call.account.catalog.find(kind, container.record.rid, name)
    if present is not None:
        return call.answer(_told(await call.account.catalog.replace(present, body, name=name)))
    return call.answer(_told(await call.account.catalog.create(kind, container.record, name, body)), 201)


async def delete_script(call: Call) -> Response:
    call.query()
    record = _found(call)
    await call.account.catalog.delete(record)
    return call.answer({"deleted": record.name})


async def run_procedure(call: Call) -> Response:
    """Run a procedure, or rehearse it, and tell each read and write with its charge; also when it fails."""
    container = call.container()
    record = _record(call, container, ResourceType.PROCEDURE, call.names[2])
    fields = call.fields("a run")
    arguments = fields.take("arguments", [])
    key = _key(container, fields.take("partitionKey"))
    is_rehearsal = fields.truth("rehearsal")
    fields.end()
    if not isinstance(arguments, list):
        raise bad_request("'arguments' of a run must be a list.")
    told: dict[str, Any] = {}
    try:
        answer = await procedures.execute(
            call.account, container, record, arguments, key, is_traced=True, is_rehearsal=is_rehearsal
        )
        steps = answer.steps
        response = orjson.Fragment(answer.body or b"null")
        told = {"response": response, "log": answer.log, "chargeRu": answer.charge_ru, "kept": not is_rehearsal}
    except Failure as failure:
        if failure.kind not in _ENDS:
            raise
        steps = failure.details.get("steps", [])
        told = {"failure": failure.message, "chargeRu": failure.charge_ru, "kept": False}
    return call.answer({**told, "steps": [step.to_json() for step in steps]})


def _key(container: Container, given: Any) -> Key:
    """As requests write it: a value, or a list of the values of its levels."""
    if container.key is None:
        return NO_KEY
    if given is None:
        raise bad_request(
            "Give the 'partitionKey' (--partition-key) of the logical partition in which the procedure is to run."
        )
    return container.parse_key(orjson.dumps(given if isinstance(given, list) else [given]))


def _kind(call: Call) -> ResourceType:
    kind = _TYPES.get(call.names[2])
    if kind is None:
        raise Failure(Kind.NOT_FOUND, f"'{call.names[2]}' is no kind of script; use {', '.join(_TYPES)}.")
    return kind


def _found(call: Call) -> Record:
    return _record(call, call.container(), _kind(call), call.names[3])


def _record(call: Call, container: Container, kind: ResourceType, name: str) -> Record:
    record = call.account.catalog.find(kind, container.record.rid, name)
    if record is None:
        raise Failure(
            Kind.NOT_FOUND,
            f"'{name}' does not exist among the {_plural(kind)} of the container '{container.name}'. "
            f"`armillary script list {container.database.name}/{container.name}` lists its scripts.",
        )
    return record


def _plural(kind: ResourceType) -> str:
    return next(plural for plural, each in _TYPES.items() if each is kind)


def _told(record: Record) -> dict[str, Any]:
    return {"name": record.name, **{name: value for name, value in record.body.items() if name != "id"}}

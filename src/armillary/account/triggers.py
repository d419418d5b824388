"""Writing an item with triggers: those that run before may change what is written, those that run after see what was
written, and all of it is one transaction of the item's logical partition. Which triggers run is said by each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import Answer, ItemOptions
from armillary.account.procedures import PROCEDURE_RU, in_transaction, query_functions
from armillary.errors import Failure, Kind, bad_request
from armillary.model.keys import KEY_DIFFERS, KEY_MISSING
from armillary.model.resources import ResourceType
from armillary.partition.operations import Document, Operation, Outcome, Verb
from armillary.scripts.run import Role, Script, Setting, run_script
from armillary.scripts.transaction import ScriptTransaction

# What a trigger must be registered for, to be named by a request. An upsert may turn out to be either.
_OPERATIONS = {
    Verb.CREATE: ("all", "create"),
    Verb.UPSERT: ("all", "create", "update", "replace"),
    Verb.REPLACE: ("all", "update", "replace"),
    Verb.DELETE: ("all", "delete"),
}


@dataclass(frozen=True, slots=True)
class Triggers:
    before: tuple[Script, ...]
    after: tuple[Script, ...]


@dataclass(slots=True)
class TriggeredAnswer:
    answer: Answer
    log: str


def named_triggers(
    account: Account, container: Container, verb: Verb, before: Sequence[str], after: Sequence[str]
) -> Triggers:
    """The triggers that a request names, if they exist and are for its operation."""
    return Triggers(
        tuple(_trigger(account, container, verb, name, Role.PRE_TRIGGER) for name in before),
        tuple(_trigger(account, container, verb, name, Role.POST_TRIGGER) for name in after),
    )


def _trigger(account: Account, container: Container, verb: Verb, name: str, role: Role) -> Script:
    record = account.catalog.find(ResourceType.TRIGGER, container.record.rid, name)
    if record is None:
        raise bad_request(f"The trigger '{name}' that the request names does not exist in '{container.name}'.")
    kind, operation = record.body["triggerType"], record.body["triggerOperation"]
    if f"{kind.lower()}-trigger" != role.value:
        raise bad_request(f"The trigger '{name}' is a {kind.lower()}-trigger; the request names it as a {role.value}.")
    if operation.lower() not in _OPERATIONS[verb]:
        raise bad_request(
            f"The trigger '{name}' is for the operation {operation}, and this is {verb.name.lower()} of an item."
        )
    return Script(record.name, record.body["body"], role)


async def write_with_triggers(
    account: Account,
    container: Container,
    verb: Verb,
    item_id: str | None,
    document: Document | None,
    options: ItemOptions,
    triggers: Triggers,
) -> TriggeredAnswer:
    """`item_id`: of the item to replace or delete. `document`: to store; None for a delete."""
    key = options.key
    if key is None and document is not None:
        key = container.key_of(document)
    if key is None:
        if container.key is not None:
            raise bad_request(KEY_MISSING)
        key = ()

    async def run(transaction: ScriptTransaction) -> tuple[Outcome, bytes | None, str]:
        return await _run(account, container, transaction, verb, item_id, document, options, triggers)

    least_ru = PROCEDURE_RU * (len(triggers.before) + len(triggers.after))
    word = verb.name.lower()
    (outcome, payload, log), partition, charge_ru = await in_transaction(
        account, container, key, run, options.ask, word, least_ru
    )
    place = (partition.range.id, partition.lsn, outcome.lsn)
    return TriggeredAnswer(Answer(outcome.result, payload, outcome.etag, charge_ru, *place), log)


async def _run(
    account: Account,
    container: Container,
    transaction: ScriptTransaction,
    verb: Verb,
    item_id: str | None,
    document: Document | None,
    options: ItemOptions,
    triggers: Triggers,
) -> tuple[Outcome, bytes | None, str]:
    logs = []
    functions = query_functions(account, container)
    setting = Setting(operation=verb.name.capitalize(), request=await _request(transaction, item_id, document))
    for script in triggers.before:
        ran = await run_script(account.jail, script, transaction, setting, account.clock, functions)
        logs.append(ran.log)
        if ran.request is not None:
            if document is None:
                raise bad_request(f"The pre-trigger '{script.name}' cannot set the body of a delete: there is none.")
            setting.request = document = ran.request
    outcome, place = await _write(transaction, verb, item_id, document, options)
    setting.response = outcome.payload
    changed: bytes | None = None
    for script in triggers.after:
        ran = await run_script(account.jail, script, transaction, setting, account.clock, functions)
        logs.append(ran.log)
        if ran.response is not None:
            setting.response = changed = ran.response
    final = (await transaction.commit())[place]
    payload = final.payload
    if changed is not None and document is not None:  # a delete is answered without a body
        payload = transaction.relocated(changed)
    return final, payload, "\n".join([log for log in logs if log])


async def _request(transaction: ScriptTransaction, item_id: str | None, document: Document | None) -> Document | None:
    """What triggers see as the request's body: the item to store, with its link if it has one; or that to delete."""
    if item_id is None or (document is not None and "_self" in document):
        return document
    try:
        present = await transaction.read(item_id)
    except Failure as failure:
        if failure.kind is Kind.NOT_FOUND:
            return document
        raise
    assert present.payload is not None
    stored: Document = orjson.loads(present.payload)
    return stored if document is None else {**document, "_self": stored["_self"]}


async def _write(
    transaction: ScriptTransaction, verb: Verb, item_id: str | None, document: Document | None, options: ItemOptions
) -> tuple[Outcome, int]:
    home = transaction.home
    if document is None:
        assert item_id is not None
        operation = Operation(Verb.DELETE, home.epk, home.key, item_id, if_match=options.if_match)
    else:
        if home.effective_key(home.key_of(document)) != home.epk:
            raise Failure(Kind.KEY_MISMATCH, KEY_DIFFERS)
        operation = transaction.stored(verb, document, item_id, options.if_match, options.directive)
    place = transaction.write_count
    return await transaction.write(replace(operation, if_none_match=options.if_none_match)), place

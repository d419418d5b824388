"""Writing items with triggers. Pre-triggers may change the item that is written, post-triggers see the item that was
written, and all is one transaction of the item's logical partition. Each request names the triggers that run. Patches
whose condition calls user-defined functions are done here too, since functions cannot run where items are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeAlias, TypeVar

import orjson

from armillary import work
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.bulk import as_outcome
from armillary.account.items.items import ItemOptions, Member
from armillary.account.items.procedures import PROCEDURE_RU, Attempts, ScriptVisit, query_functions
from armillary.account.overview import quotas_of
from armillary.account.visits import visits
from armillary.account.visits.patch_conditions import RehearsedCondition
from armillary.account.visits.read_visits import Answer
from armillary.account.visits.visits import Charged, Session, check_session
from armillary.account.visits.write_visits import NOT_RUN, BatchAnswer
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.sql.compiling.compile import compile_filter
from armillary.model import charges
from armillary.model.keys import KEY_DIFFERS, KEY_MISSING, NO_KEY, Key
from armillary.model.patch import Patch, parse_patch
from armillary.model.resources import ResourceType
from armillary.model.sendable import LOCAL
from armillary.partition.operations import Document, Operation, Outcome, Verb
from armillary.query.selection import Meter
from armillary.scripts.functions import QueryFunctions
from armillary.scripts.run import Role, Script, Setting, run_script
from armillary.scripts.transaction import ScriptTransaction

# What a trigger must be registered for, to be named by a request. An upsert may turn out to be either.
_OPERATIONS = {
    Verb.CREATE: ("all", "create"),
    Verb.UPSERT: ("all", "create", "update", "replace"),
    Verb.REPLACE: ("all", "update", "replace"),
    Verb.PATCH: ("all", "update", "replace"),
    Verb.DELETE: ("all", "delete"),
}
# Failures of the transaction and not of one member: it is tried again, or the failure answers the whole request.
_OF_THE_WHOLE = (Kind.RETRY_WITH, Kind.RANGE_BUSY, Kind.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Triggers:
    before: tuple[Script, ...] = ()
    after: tuple[Script, ...] = ()

    @property
    def least_ru(self) -> float:
        return PROCEDURE_RU * (len(self.before) + len(self.after))


Answered = TypeVar("Answered", bound=Charged)


@dataclass(slots=True)
class Triggered(Generic[Answered]):
    """An answer, and what the triggers of its writes have logged."""

    answer: Answered
    log: str

    @property
    def charge_ru(self) -> float:
        return self.answer.charge_ru

    @charge_ru.setter
    def charge_ru(self, charge_ru: float) -> None:
        self.answer.charge_ru = charge_ru


TriggeredAnswer: TypeAlias = Triggered[Answer]
TriggeredBatch: TypeAlias = Triggered[BatchAnswer]


def named_triggers(
    account: Account, container: Container, verb: Verb, before: Sequence[str], after: Sequence[str]
) -> Triggers:
    """The triggers that a request names, if they exist and are for its operation."""
    return triggers_by_member(account, container, [verb], before, after)[0]


def triggers_by_member(
    account: Account, container: Container, verbs: Sequence[Verb], before: Sequence[str], after: Sequence[str]
) -> list[Triggers]:
    """The same for a batch: each trigger runs for the operations that it is for, and must be for one of them."""
    found = [
        [_trigger(account, container, verbs, name, role) for name in names]
        for names, role in ((before, Role.PRE_TRIGGER), (after, Role.POST_TRIGGER))
    ]
    return [
        Triggers(*[tuple(script for script, fitting in each if verb in fitting) for each in found]) for verb in verbs
    ]


def _trigger(
    account: Account, container: Container, verbs: Sequence[Verb], name: str, role: Role
) -> tuple[Script, set[Verb]]:
    """A trigger, and which of the operations it is for."""
    record = account.catalog.find(ResourceType.TRIGGER, container.record.rid, name)
    if record is None:
        raise bad_request(f"The trigger '{name}' that the request names does not exist in '{container.name}'.")
    kind, operation = record.body["triggerType"], record.body["triggerOperation"]
    if f"{kind.lower()}-trigger" != role.value:
        raise bad_request(f"The trigger '{name}' is a {kind.lower()}-trigger; the request names it as a {role.value}.")
    fitting = {verb for verb in verbs if operation.lower() in _OPERATIONS.get(verb, ())}
    if not fitting:
        asked = f"{verbs[0].name.lower()} of an item" if len(verbs) == 1 else "a batch without one"
        raise bad_request(f"The trigger '{name}' is for the operation {operation}, and this is {asked}.")
    return Script(record.name, record.body["body"], role), fitting


def calls_functions(changes: Patch) -> bool:
    """Whether the condition of a patch calls user-defined functions."""
    return changes.condition is not None and compile_filter(changes.condition).calls_functions


async def write_with_triggers(
    account: Account, container: Container, member: Member, triggers: Triggers
) -> TriggeredAnswer:
    options = member.options
    assert options is not None
    key = options.key
    if key is None and member.document is not None:
        key = container.key_of(member.document)
    if key is None:
        if container.key is not None:
            raise bad_request(KEY_MISSING)
        key = NO_KEY

    visit = WriteTriggered(container.effective_key(key), key, member, triggers, account=account)
    return await visits.run(container, visit, options.ask)


@dataclass(slots=True)
class WriteTriggered(ScriptVisit[TriggeredAnswer]):
    """One item is written with its triggers."""

    epk: bytes
    key: Key
    member: Member
    triggers: Triggers
    account: Account = field(kw_only=True, repr=False, metadata=LOCAL)
    attempts: Attempts = field(default_factory=Attempts, metadata=LOCAL)

    def least_ru(self) -> float:
        return self.triggers.least_ru

    def fault_name(self) -> str:
        return self.member.verb.name.lower()

    async def work(self, container: Container, transaction: ScriptTransaction) -> TriggeredAnswer:
        writing = _Writing(self.account, container, transaction)
        await writing.write(self.member, self.triggers)
        [outcome] = await writing.commit()
        partition = transaction.partition
        place = (partition.range.id, partition.lsn, outcome.lsn)
        return TriggeredAnswer(Answer(outcome.result, outcome.payload, outcome.etag, 0.0, *place), writing.log)


async def batch_with_triggers(
    account: Account,
    container: Container,
    key: Key,
    members: Sequence[Member],
    triggers: Sequence[Triggers],
    options: ItemOptions,
) -> TriggeredBatch:
    """All members with their triggers in one transaction, or none."""

    epk = container.effective_key(key)
    visit = BatchTriggered(epk, key, members, triggers, options.session, account=account)
    return await visits.run(container, visit, options.ask)


@dataclass(slots=True)
class BatchTriggered(ScriptVisit[TriggeredBatch]):
    """Items are written with their triggers, all or none."""

    epk: bytes
    key: Key
    members: Sequence[Member]
    triggers: Sequence[Triggers]
    session: Session | None = None
    account: Account = field(kw_only=True, repr=False, metadata=LOCAL)
    attempts: Attempts = field(default_factory=Attempts, metadata=LOCAL)
    OPERATION: ClassVar[str] = "batch"

    def least_ru(self) -> float:
        return sum(each.least_ru for each in self.triggers)

    async def work(self, container: Container, transaction: ScriptTransaction) -> TriggeredBatch:
        partition = transaction.partition
        if self.session is not None:
            check_session(partition, self.session)
        writing = _Writing(self.account, container, transaction)
        for index, (member, its_triggers) in enumerate(zip(self.members, self.triggers, strict=True)):
            try:
                await writing.write(member, its_triggers)
            except Failure as failure:
                if failure.kind in _OF_THE_WHOLE:
                    raise
                others = [Failure(Kind.FAILED_DEPENDENCY, NOT_RUN) for _ in self.members]
                answers: list[Outcome | Failure] = [*others[:index], failure, *others[index + 1 :]]
                return TriggeredBatch(BatchAnswer(answers, False, 0.0, partition.range.id, partition.lsn), writing.log)
        outcomes = await writing.commit()
        return TriggeredBatch(BatchAnswer([*outcomes], True, 0.0, partition.range.id, partition.lsn), writing.log)


async def bulk_with_triggers(
    account: Account,
    container: Container,
    range_id: str,
    members: Sequence[Member],
    triggers: Sequence[Triggers],
    *,
    continues: bool = True,
) -> TriggeredBatch:
    """Independent operations on one physical partition, each with its triggers in a transaction of its own, in the
    order given. The first to fail is the last to run unless the request `continues`."""
    partition = container.partition_by_id(range_id)
    answers: list[Outcome | Failure] = []
    logs = []
    for member, its_triggers in zip(members, triggers, strict=True):
        if answers and isinstance(answers[-1], Failure) and not continues:
            answers.append(Failure(Kind.FAILED_DEPENDENCY, NOT_RUN))
            continue
        assert member.options is not None and member.options.key is not None
        try:
            if container.partition_for(container.effective_key(member.options.key)) is not partition:
                raise Failure(Kind.RANGE_GONE, f"The item is not in the partition key range {partition.range.id}.")
            if member.verb is Verb.READ:
                assert member.item_id is not None
                answers.append(as_outcome(await items.read(container, member.item_id, member.options)))
                continue
            done = await write_with_triggers(account, container, member, its_triggers)
        except Failure as failure:
            if failure.kind is Kind.DROPPED:
                raise  # the connection is that of all of them
            answers.append(failure)
        else:
            answers.append(as_outcome(done.answer))
            logs.append(done.log)
    charge_ru = sum(each.charge_ru for each in answers)
    answer = BatchAnswer(answers, True, charge_ru, partition.range.id, partition.lsn)
    return TriggeredBatch(answer, "\n".join([log for log in logs if log]))


@dataclass(slots=True)
class _Written:
    outcome: Outcome  # as rehearsed
    place: int | None  # among the transaction's writes; None: it was a read
    changed: bytes | None = None  # the answer, as a post-trigger has set it


class _Writing:
    """One transaction: items that are written with their triggers, one after the other."""

    def __init__(self, account: Account, container: Container, transaction: ScriptTransaction) -> None:
        self._account = account
        self._container = container
        self._transaction = transaction
        self._written: list[_Written] = []
        self._logs: list[str] = []

    @property
    def log(self) -> str:
        return self._transaction.relocated_log("\n".join([log for log in self._logs if log]))

    async def write(self, member: Member, triggers: Triggers) -> None:
        transaction = self._transaction
        if member.verb is Verb.READ:
            assert member.item_id is not None
            if_none_match = member.options.if_none_match if member.options is not None else None
            self._written.append(_Written(await transaction.read(member.item_id, if_none_match), None))
            return
        functions = query_functions(self._account, self._container)
        setting = Setting(operation=member.verb.name.capitalize(), request=await self._request(member, triggers))
        for script in triggers.before:
            ran = await run_script(self._account.jail, script, transaction, setting, self._account.clock, functions)
            self._logs.append(ran.log)
            if ran.request is not None:
                member = _changed(member, script, ran.request)
                setting.request = ran.request
        place = transaction.write_count
        operation, meter = await self._operation(member, functions)
        try:
            written = _Written(await transaction.write(operation), place)
        finally:
            if meter is not None:
                transaction.charge_ru += charges.UDF_CALL_RU * meter.user_calls
        setting.response = written.outcome.payload
        if triggers.after:
            setting.quotas = quotas_of(self._account.catalog, self._container)
        for script in triggers.after:
            ran = await run_script(self._account.jail, script, transaction, setting, self._account.clock, functions)
            self._logs.append(ran.log)
            if ran.response is not None:
                setting.response = ran.response
                if member.verb is not Verb.DELETE:  # which is answered without a body
                    written.changed = ran.response
        self._written.append(written)

    async def commit(self) -> list[Outcome]:
        """What was answered for each, with the etags and rids that they have got in the end."""
        outcomes = await self._transaction.commit()
        return [self._final(each, outcomes) for each in self._written]

    def _final(self, written: _Written, outcomes: Sequence[Outcome]) -> Outcome:
        relocated = self._transaction.relocated
        if written.place is None:
            outcome = written.outcome
            etag = relocated(outcome.etag.encode()).decode() if outcome.etag is not None else None
            payload = relocated(outcome.payload) if outcome.payload is not None else None
            return replace(outcome, etag=etag, payload=payload)
        outcome = outcomes[written.place]
        return replace(outcome, payload=relocated(written.changed)) if written.changed is not None else outcome

    async def _request(self, member: Member, triggers: Triggers) -> Document | None:
        """What triggers see as the request's body: the item to store, with its link if it has one; the one that is to
        be deleted; or the patch."""
        document = member.document
        if member.patch is not None:
            return member.patch.to_json()
        if member.verb not in (Verb.REPLACE, Verb.DELETE) or (document is not None and "_self" in document):
            return document
        assert member.item_id is not None
        if not triggers.before and not triggers.after:
            return document
        try:
            present = await self._transaction.read(member.item_id)
        except Failure as failure:
            if failure.kind is Kind.NOT_FOUND:
                return document
            raise
        assert present.payload is not None
        stored: Document = orjson.loads(present.payload)
        return stored if document is None else {**document, "_self": stored["_self"]}

    async def _operation(self, member: Member, functions: QueryFunctions) -> tuple[Operation, Meter | None]:
        """What is to be done, and where the calls of its condition are counted."""
        transaction, home = self._transaction, self._transaction.home
        options = member.options or ItemOptions()
        document = member.document
        if document is not None:
            if home.effective_key(home.key_of(document)) != home.epk:
                raise Failure(Kind.KEY_MISMATCH, KEY_DIFFERS)
            item_id = member.item_id if member.verb is Verb.REPLACE else None
            made = transaction.stored(member.verb, document, item_id, options.if_match, options.directive)
            return replace(made, if_none_match=options.if_none_match), None
        assert member.item_id is not None
        operation = Operation(
            member.verb,
            home.epk,
            home.key,
            member.item_id,
            patch=member.patch,
            if_match=options.if_match,
            if_none_match=options.if_none_match,
            directive=options.directive,
        )
        if member.patch is None or member.patch.condition is None:
            return operation, None
        text = member.patch.condition
        bound = await work.run(lambda: compile_filter(text).bind({}, self._container.query_context(), functions))
        await functions.ready()
        operation.condition = RehearsedCondition(bound.predicate) if bound.predicate is not None else None
        return operation, bound.selection.meter


def _changed(member: Member, script: Script, body: Document) -> Member:
    """The operation with the body that a pre-trigger has set."""
    if member.verb is Verb.PATCH:
        return replace(member, patch=parse_patch(body))
    if member.document is None:
        raise bad_request(f"The pre-trigger '{script.name}' cannot set the body of a delete: there is none.")
    return replace(member, document=body)

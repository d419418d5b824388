"""Stored procedures: the check of a script that is to be stored, running procedures, and the visit that procedures and
triggers share. A script runs in one transaction of one logical partition, is charged as a whole, and runs again after a
write conflict. `scripts/` has the JavaScript engine and the API that scripts call.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from armillary import limits
from armillary.account.account import Account
from armillary.account.captures.notes import Note, note_of, spread
from armillary.account.catalog.container_state import Body
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.visits import visits
from armillary.account.visits.visits import Done, Session, Visit, Writes, check_session
from armillary.errors import Failure, Kind, Reason, bad_request
from armillary.model.items import strip_system_properties, validate_name
from armillary.model.keys import Key
from armillary.model.resources import ResourceType
from armillary.model.sendable import LOCAL
from armillary.partition.budget import HUNDREDTHS, WRITE_DEPOSIT, Ask
from armillary.partition.operations import Result
from armillary.partition.partition import Partition
from armillary.scripts.calls import Trace as Trace
from armillary.scripts.functions import DocumentFunctions, QueryFunctions
from armillary.scripts.run import Role, Script, Setting, run_script
from armillary.scripts.transaction import Home, ScriptTransaction, database_of

PROCEDURE_RU = 1.0  # and what its operations cost


@dataclass(slots=True)
class ProcedureAnswer:
    body: bytes  # JSON, or nothing
    log: str
    charge_ru: float
    range_id: int
    lsn: int
    steps: Trace = field(default_factory=list)  # what it did, if that was to be traced


async def execute(
    account: Account,
    container: Container,
    record: Record,
    arguments: Sequence[Any],
    key: Key,
    *,
    session: Session | None = None,
    ask: Ask | None = None,
    is_traced: bool = False,
    is_rehearsal: bool = False,
) -> ProcedureAnswer:
    """Run a stored procedure in the logical partition of a key. If it `is_traced`, the answer has the steps that it
    took, and so have the details of its failure; after a rehearsal nothing of it is kept."""
    script = Script(record.name, record.body["body"], Role.PROCEDURE)
    epk = container.effective_key(key)
    visit = RunProcedure(epk, key, script, arguments, session, is_traced, is_rehearsal, account=account)
    return await visits.run(container, visit, ask)


@dataclass(slots=True)
class Attempts:
    """How often a transaction of scripts was tried, and until when; and what the last attempt wrote, for captures."""

    count: int = 0
    ends_s: float = 0.0
    written: Writes = ()


class ScriptVisit(Visit[Done]):
    """A transaction of scripts in one logical partition: tried again if others wrote there meanwhile, and paid for
    once. Subclasses say what runs; `account` is the one that the partition's process has."""

    __slots__ = ()
    DEPOSIT: ClassVar[int] = WRITE_DEPOSIT
    IS_READ: ClassVar[bool] = False
    account: Account
    key: Key
    attempts: Attempts

    def receive(self, account: Account) -> None:
        object.__setattr__(self, "account", account)  # a slot of the subclass

    @abstractmethod
    def least_ru(self) -> float:
        """What the scripts cost, beside what they do."""

    @abstractmethod
    async def work(self, container: Container, transaction: ScriptTransaction) -> Done:
        """Run the scripts, and commit what they did."""

    async def run(self, container: Container, partition: Partition) -> Done:
        account, epk = self.account, self.epk
        assert epk is not None
        attempts = self.attempts
        if not attempts.ends_s:
            attempts.ends_s = account.clock.elapsed_s() + limits.SCRIPT_ATTEMPTS_SECONDS_MAX
        queue, place = account.script_queue, container.record.rid + epk
        home = _home(account, container, self.key, epk)
        transaction = ScriptTransaction(partition, home, account.clock, _units_ru(partition))
        try:
            if attempts.count or queue.is_taken(place):
                async with queue.at(place):
                    done = await self.work(container, transaction)
            else:
                done = await self.work(container, transaction)
        except Failure as failure:
            attempts.count += failure.kind is Kind.RETRY_WITH
            failure.charge_ru = max(self.least_ru(), transaction.charge_ru)
            raise
        done.charge_ru = self.least_ru() + transaction.charge_ru
        if container.recording is not None:
            attempts.written = transaction.written
        return done

    def notes(self, done: Done | None) -> Sequence[Note]:
        """The run, with what it costs beside its writes, and each write; for a write with triggers, the writes."""
        written = self.attempts.written if done is not None else ()
        notes = [note_of(*each, is_alone=False, is_grouped=True) for each in written]
        if self.OPERATION == "execute" or not notes:
            run = Note(self.fault_name(), Kind.INTERNAL, 0.0, self.key, is_alone=False, is_grouped=True)
            if done is not None:
                run.outcome = Result.READ
            notes.insert(0, run)
        return spread(notes, done.charge_ru) if done is not None else notes

    def written(self) -> Writes:
        return self.attempts.written

    def adopt_written(self, written: Writes) -> None:
        self.attempts.written = written

    def is_tried_again(self, failure: Failure) -> bool:
        if failure.kind is Kind.RETRY_WITH:
            attempts = self.attempts
            return attempts.count < limits.SCRIPT_ATTEMPTS_MAX and self.account.clock.elapsed_s() < attempts.ends_s
        return failure.kind is Kind.RANGE_BUSY


@dataclass(slots=True)
class RunProcedure(ScriptVisit[ProcedureAnswer]):
    epk: bytes
    key: Key
    script: Script
    arguments: Sequence[Any]
    session: Session | None = None
    is_traced: bool = False
    is_rehearsal: bool = False
    account: Account = field(kw_only=True, repr=False, metadata=LOCAL)
    attempts: Attempts = field(default_factory=Attempts, metadata=LOCAL)
    OPERATION: ClassVar[str] = "execute"

    def least_ru(self) -> float:
        return PROCEDURE_RU

    async def work(self, container: Container, transaction: ScriptTransaction) -> ProcedureAnswer:
        account, partition = self.account, transaction.partition
        if self.session is not None:
            check_session(partition, self.session)
        functions = query_functions(account, container)
        setting = Setting(self.arguments)
        steps: Trace | None = [] if self.is_traced else None
        try:
            ran = await run_script(account.jail, self.script, transaction, setting, account.clock, functions, steps)
            if not self.is_rehearsal:
                await transaction.commit()
        except Failure as failure:
            if steps is not None:
                failure.details = {**failure.details, "steps": steps}
            raise
        body = transaction.relocated(ran.response) if ran.response is not None else b""
        log = transaction.relocated_log(ran.log)
        return ProcedureAnswer(body, log, 0.0, partition.range.id, partition.lsn, steps or [])


def _units_ru(partition: Partition) -> float:
    """What a run may spend: where budgets are enforced, what its partition is given in the time that a run may take."""
    meter = partition.meter
    if not meter.is_enforcing or meter.budget is None:
        return limits.SCRIPT_UNITS_MAX_RU
    return min(limits.SCRIPT_UNITS_MAX_RU, meter.budget.limit / HUNDREDTHS * limits.SCRIPT_SECONDS_MAX)


def query_functions(account: Account, container: Container) -> QueryFunctions:
    """The user-defined functions of a container, for one execution of a query or script."""

    def find(name: str) -> str | None:
        record = account.catalog.find(ResourceType.FUNCTION, container.record.rid, name)
        return record.body["body"] if record is not None else None

    database = database_of(container.schema.self_link)
    return QueryFunctions(lambda: account.function_processes.of(database), find)


def document_functions(account: Account, database: str) -> Callable[[dict[str, Any]], Any]:
    """The function that runs the JavaScript of one command of MongoDB, in the process of the command's database."""
    functions = DocumentFunctions(lambda: account.function_processes.of(f"mongo:{database}"))

    def run(request: dict[str, Any]) -> Any:
        try:
            return functions.run(request)
        except Failure as failure:
            if failure.kind is Kind.SCRIPT_FAILED:
                message = failure.message.removesuffix(" Nothing was written.")
                raise Failure(failure.kind, message, details={"reason": Reason.JAVASCRIPT_FAILED}) from None
            raise

    return run


def _home(account: Account, container: Container, key: Key, epk: bytes) -> Home:
    return Home(
        key=key,
        epk=epk,
        schema=container.schema,
        form=container.form,
        self_link=container.schema.self_link,
        alt_link=container.link,
        key_of=container.key_of,
        effective_key=container.effective_key,
        context=container.query_context,
        computed=container.policies.computed_properties,
        secret=account.secret,
    )


# Scripts as resources: stored procedures, triggers and user-defined functions.

_TRIGGER_TYPES = ("Pre", "Post")
_TRIGGER_OPERATIONS = ("All", "Create", "Update", "Delete", "Replace")


def script_body(resource_type: ResourceType, given: Any) -> tuple[str, Body]:
    """The name and the body to store, or a refusal that says what is wrong."""
    if not isinstance(given, dict):
        raise bad_request("A script must be a JSON object with 'id' and 'body'.")
    name = validate_name(given.get("id"))
    body = {each: value for each, value in strip_system_properties(given).items() if value is not None}
    wanted = {"body"}
    if resource_type is ResourceType.TRIGGER:
        wanted |= {"triggerType", "triggerOperation"}
    missing = sorted(wanted - body.keys())
    if missing:
        names = "; ".join([*missing, ""])
        raise bad_request(f"The input content is invalid because the required properties - '{names}' - are missing")
    if not isinstance(body["body"], str) or not body["body"]:
        raise bad_request(f"The 'body' of {resource_type.value} '{name}' must be its JavaScript source as a string.")
    if resource_type is ResourceType.TRIGGER:
        # Kept as written: Python says "pre" and wants to read that back.
        _check_choice(body, "triggerType", _TRIGGER_TYPES)
        _check_choice(body, "triggerOperation", _TRIGGER_OPERATIONS)
    unknown = sorted(body.keys() - wanted - {"id"})
    if unknown:
        raise bad_request(f"Unknown property '{unknown[0]}' in {resource_type.value} '{name}'.")
    return name, body


def _check_choice(body: Body, name: str, choices: tuple[str, ...]) -> None:
    value = body.get(name)
    if isinstance(value, str) and value.lower() in [choice.lower() for choice in choices]:
        return
    raise bad_request(f"'{name}' must be one of {', '.join(choices)}, not {value!r}.")

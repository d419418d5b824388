"""Running stored procedures and triggers for a request: each is admitted and paid for as a whole, runs in one
transaction of one logical partition, and is run again when others wrote there meanwhile. The scripts themselves, and
what they may ask for, are `scripts/`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.catalog import Record
from armillary.account.container import Container
from armillary.account.items.items import Session, check_session
from armillary.errors import Failure, Kind
from armillary.model.keys import Key
from armillary.model.resources import ResourceType
from armillary.partition.budget import HUNDREDTHS, WRITE_DEPOSIT, Ask
from armillary.partition.partition import Partition
from armillary.scripts.functions import QueryFunctions
from armillary.scripts.run import Role, Script, Setting, run_script
from armillary.scripts.trace import Trace
from armillary.scripts.transaction import Home, ScriptTransaction, database_of

PROCEDURE_RU = 1.0  # and what its operations cost

T = TypeVar("T")


@dataclass(slots=True)
class ProcedureAnswer:
    body: bytes  # JSON, or nothing
    log: str
    charge_ru: float
    range_id: int
    lsn: int


async def execute(
    account: Account,
    container: Container,
    record: Record,
    arguments: Sequence[Any],
    key: Key,
    *,
    session: Session | None = None,
    ask: Ask | None = None,
    trace: Trace | None = None,
    is_rehearsal: bool = False,
) -> ProcedureAnswer:
    """Run a stored procedure in the logical partition of a key. `trace` is given what it does; after a rehearsal
    nothing of it is kept."""
    script = Script(record.name, record.body["body"], Role.PROCEDURE)

    async def run(transaction: ScriptTransaction) -> ProcedureAnswer:
        if session is not None:
            check_session(transaction.partition, session)
        functions = query_functions(account, container)
        if trace is not None:
            trace.clear()  # of an earlier attempt
        ran = await run_script(account.jail, script, transaction, Setting(arguments), account.clock, functions, trace)
        if not is_rehearsal:
            await transaction.commit()
        body = transaction.relocated(ran.response) if ran.response is not None else b""
        return ProcedureAnswer(body, transaction.relocated_log(ran.log), 0.0, 0, 0)

    answer, partition, charge_ru = await in_transaction(account, container, key, run, ask, "execute", PROCEDURE_RU)
    answer.charge_ru, answer.range_id, answer.lsn = charge_ru, partition.range.id, partition.lsn
    return answer


async def in_transaction(
    account: Account,
    container: Container,
    key: Key,
    run: Callable[[ScriptTransaction], Awaitable[T]],
    ask: Ask | None,
    operation: str,
    least_ru: float,
) -> tuple[T, Partition, float]:
    """Let `run` work in a transaction of the script's, again if others came in between, and pay for it once."""
    epk = container.effective_key(key)
    lost = await container.faults.at_key(operation, container, epk) if container.faults is not None else None
    turns, place = account.script_turns, container.record.rid + epk
    attempts, ends_s = 0, account.clock.elapsed_s() + limits.SCRIPT_ATTEMPTS_SECONDS_MAX
    while True:
        partition = container.partition_for(epk)
        ticket = partition.admit(WRITE_DEPOSIT, ask)
        home = _home(account, container, key, epk)
        transaction = ScriptTransaction(partition, home, account.clock, _units_ru(partition))
        try:
            if attempts or turns.is_taken(place):
                async with turns.at(place):
                    result = await run(transaction)
            else:
                result = await run(transaction)
        except Failure as failure:
            attempts += failure.kind is Kind.RETRY_WITH
            is_again = failure.kind is Kind.RETRY_WITH and attempts < limits.SCRIPT_ATTEMPTS_MAX
            is_again = is_again and account.clock.elapsed_s() < ends_s
            if failure.kind is Kind.RANGE_BUSY or is_again:
                partition.meter.release(ticket, ask)
                await partition.released()  # and on to whoever owns the key then
                continue
            failure.charge_ru = max(least_ru, transaction.charge_ru)
            failure.details = {**failure.details, "range_id": partition.range.id, "lsn": partition.lsn}
            raise partition.meter.charge(failure, epk, ticket, ask) from None
        except BaseException:
            partition.meter.release(ticket, ask)
            raise
        charge_ru = partition.spend(least_ru + transaction.charge_ru, epk, ticket, ask)
        if lost is not None:
            raise lost
        return result, partition, charge_ru


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
    return QueryFunctions(lambda: account.function_callers.of(database), find)


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

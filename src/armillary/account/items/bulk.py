"""Bulk requests: independent operations on one physical partition, as SDKs in bulk mode send them. Each succeeds or
fails on its own; where none fails, all are written in one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby

from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import Member, check_owner, operation_of, write_here
from armillary.account.visits import visits
from armillary.account.visits.read_visits import Answer
from armillary.account.visits.write_visits import NOT_RUN, BatchAnswer, WriteBulk
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.partition.budget import Ask
from armillary.partition.operations import MemberFailed, Operation, Outcome, Verb
from armillary.partition.partition import Partition


async def run_bulk(
    container: Container, range_id: str, members: Sequence[Member], clock: Clock, *, continues: bool = True
) -> BatchAnswer:
    """Independent operations on one physical partition. Each succeeds or fails for itself, in the order given, and the
    first to fail is the last to run unless the request `continues`."""
    partition = container.partition_by_id(range_id)
    if continues and len(members) > 1:
        together = await _bulk_together(container, partition, members, clock)
        if together is not None:
            charge_ru = sum(each.charge_ru for each in together)
            return BatchAnswer(together, True, charge_ru, partition.range.id, partition.lsn)

    async def one(member: Member) -> Outcome | Failure:
        try:
            assert member.options is not None and member.options.key is not None
            operation = operation_of(container, member, member.options.key, clock)
            check_owner(container, partition, operation)
            if operation.verb is Verb.READ:
                return as_outcome(await items.read(container, operation.item_id, member.options))
            return await write_here(container, partition, operation, member.options.ask)
        except Failure as failure:
            if failure.kind is Kind.DROPPED:
                raise  # the connection is that of all of them
            return failure

    # The partition keeps the order of writes that are handed over together; a read must wait for those before it.
    answers: list[Outcome | Failure] = []
    if continues:
        for _, run in groupby(members, key=lambda member: member.verb is Verb.READ):
            answers += await asyncio.gather(*[one(member) for member in run])
    else:
        for member in members:
            answers.append(await one(member))
            if isinstance(answers[-1], Failure):
                break
        answers += [Failure(Kind.FAILED_DEPENDENCY, NOT_RUN) for _ in members[len(answers) :]]
    return BatchAnswer(answers, True, sum(each.charge_ru for each in answers), partition.range.id, partition.lsn)


async def _bulk_together(
    container: Container, partition: Partition, members: Sequence[Member], clock: Clock
) -> list[Outcome | Failure] | None:
    """All writes of a bulk request in one transaction, which is several times less work than one for each. None:
    nothing was done, and each is to be written in a transaction of its own."""
    if container.faults is not None or any(member.verb is Verb.READ for member in members):
        return None
    if partition.meter.is_enforcing:
        return None  # the charge of each decides whether the next is admitted
    answers: list[Outcome | Failure | None] = []
    todo: list[Operation] = []
    asks: list[Ask | None] = []
    for member in members:
        assert member.options is not None and member.options.key is not None
        try:
            operation = operation_of(container, member, member.options.key, clock)
            check_owner(container, partition, operation)
        except Failure as failure:
            answers.append(failure)
            continue
        todo.append(operation)
        asks.append(member.options.ask)
        answers.append(None)
    if not todo:
        return [answer for answer in answers if answer is not None]
    try:
        done = await visits.run_at(container, partition, WriteBulk(todo[0].epk, todo, asks), asks[0])
    except MemberFailed:
        return None
    except Failure as failure:
        # Storage failed, and the outcome is unknown: the client has to read the items.
        return [answer or Failure(failure.kind, failure.message) for answer in answers]
    if done is None:
        return None
    outcomes = iter(done.outcomes)
    return [answer if answer is not None else next(outcomes) for answer in answers]


def as_outcome(answer: Answer) -> Outcome:
    return Outcome(answer.result, answer.payload, answer.etag, answer.item_lsn, answer.charge_ru)

"""Commands wait for a process of the server that is being started (`armillary serve --processes`), as drivers wait for
a primary: they try again by themselves, but at once and only once. Writes wait in the visits, as long as nothing was
sent; commands that only read are run again.
"""

from __future__ import annotations

from typing import Final

from armillary import limits
from armillary.account.visits.elsewhere.place import PATIENCE_S, Patience, Unreached
from armillary.doors.mongo.call import Call, Command, Reply
from armillary.doors.mongo.writing import retryable_writes

_READS: Final = frozenset("find aggregate count distinct".split())
_WRITING_STAGES: Final = frozenset(("$out", "$merge"))


async def run(call: Call, command: Command) -> Reply:
    PATIENCE_S.set(limits.MONGO_PROCESS_SECONDS_MAX)
    patience = Patience(call.services.machine)
    while True:
        try:
            return await (command.run(call) if call.txn_number is None else retryable_writes.run(call, command))
        except Unreached:
            if not _is_repeatable(call) or not await patience.wait():
                raise
        call.check_time()


def _is_repeatable(call: Call) -> bool:
    if call.name not in _READS or call.transaction is not None:
        return False
    stages = call.body.get("pipeline")
    return not isinstance(stages, list) or not any(
        isinstance(each, dict) and not _WRITING_STAGES.isdisjoint(each) for each in stages
    )

"""Which commands a member of a replica set answers: writes only the primary, reads by their read preference and read
concern. Checked before a command, and again before its answer is given: an answer that must be the newest state is
given only under the leader's lease, or after an empty append to the replicated log.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bson.timestamp import Timestamp

from armillary import limits
from armillary.doors.mongo.call import Call, Command
from armillary.doors.mongo.errors import RETRYABLE, STATE_CHANGES, code_of, out_of_time
from armillary.doors.mongo.replica_set.membership import NOT_PRIMARY_READS, Membership
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import type_name


async def admit(call: Call, command: Command, member: Membership) -> None:
    """Before a command. Waits for `afterClusterTime`."""
    member.look()
    if command.is_open:
        return
    member.times.advance(call.body.get("$clusterTime"))
    topology = member.topology
    if topology.is_silent and not member.leads:
        # As a member in the state RECOVERING answers: drivers retry reads and writes at another member, and keep their
        # connections, which they would close after 11600 and 91.
        raise refusal(13436, "node is not in primary or recovering state: it has not heard of the cluster lately")
    if command.is_local:
        return
    if needs_primary(call, command):
        require_primary(call)
    elif is_primary_read(call.body) and not member.leads:
        raise refusal(13435, "not primary and secondaryOk=false")
    concern = call.body.get("readConcern")
    if concern is not None:  # checked to be a document before
        if concern.get("level") == "linearizable" and not member.leads:
            raise refusal(10107, "cannot satisfy linearizable read concern on non-primary node")
        if "afterClusterTime" in concern:
            await _wait_for(call, member, concern)


async def confirm(call: Call, command: Command, member: Membership) -> None:
    """Before the answer, whatever it is: a refusal tells of the state too. Without the lease it waits for an empty
    append. Drivers retry a refusal only once, and at once, which may be too early for the next renewal."""
    if command.is_open or command.is_local or member.topology.may_answer_strongly:
        return
    is_newest = is_primary_read(call.body) or _level(call) == "linearizable"
    if is_newest or call.needs_primary or needs_primary(call, command):
        await call.account.catalog.settle()


def is_answer_of_state(failure: Failure) -> bool:
    """Whether a refusal tells something about the stored state, as duplicate keys and missing collections do."""
    return code_of(failure) not in RETRYABLE


def needs_primary(call: Call, command: Command) -> bool:
    return command.needs_primary or "autocommit" in call.body


def require_primary(call: Call) -> None:
    """Refuse what only the primary does; its answer is confirmed before it is given."""
    member = call.services.membership
    if member is None:
        return
    if not member.leads:
        raise refusal(10107, "not primary")
    call.needs_primary = True


def is_primary_read(body: dict[str, Any]) -> bool:
    """By the command's read preference. Tags and maxStalenessSeconds are for drivers, which choose members by them."""
    preference = body.get("$readPreference")
    if preference is None:
        return True
    if not isinstance(preference, dict):
        raise refusal(14, f"$readPreference has incorrect type: expected object but got {type_name(preference)}")
    mode = preference.get("mode")
    if mode in NOT_PRIMARY_READS:
        return False
    if mode != "primary":
        raise refusal(
            9,
            f"Could not parse $readPreference mode '{str(mode)[:64]}'. Only the modes 'primary', 'primaryPreferred', "
            "'secondary', 'secondaryPreferred' and 'nearest' are supported.",
        )
    return True


def as_service(failure: Failure) -> Failure:
    """What a client behind a load balancer is told by a node that leads no more. It looks for no other primary, and of
    these errors only that of a server that shuts down makes it open new connections, which lead to the new leader."""
    if code_of(failure) not in STATE_CHANGES:
        return failure
    return refusal(91, "The node that served this connection leads no more.")


def _level(call: Call) -> Any:
    return (call.body.get("readConcern") or {}).get("level")


async def _wait_for(call: Call, member: Membership, concern: dict[str, Any]) -> None:
    """Causal consistency: what was acknowledged before the given time is applied here."""
    wanted, level = concern["afterClusterTime"], concern.get("level", "local")
    if not isinstance(wanted, Timestamp):
        raise refusal(14, "BSON field 'readConcern.afterClusterTime' is the wrong type, expected type 'timestamp'")
    if level not in ("local", "majority", "snapshot"):
        raise refusal(72, f"readConcern level '{level}' cannot be combined with afterClusterTime")
    topology, times = member.topology, member.times
    if not times.has_come(wanted):
        raise refusal(
            72,
            "readConcern afterClusterTime value must not be greater than the current clusterTime. Requested "
            f"clusterTime: {wanted}; current clusterTime: {times.latest}",
        )
    if topology.may_answer_strongly or times.is_reached(wanted):
        return
    await asyncio.sleep(0)  # a request is started without a task, which a timeout needs
    machine = call.services.machine
    limit_s = limits.MONGO_CAUSAL_SECONDS_MAX if call.time_left_s is None else call.time_left_s
    until_s = machine.elapsed_s() + limit_s
    while (left_s := until_s - machine.elapsed_s()) > 0:
        version = topology.version
        # The time was given before this command came, so what the leader confirms now includes it. While there is no
        # leader, or it is not reached, the log may still bring this member to it.
        if await topology.refresh(left_s) or times.is_reached(wanted):
            return
        await topology.changed(version, limits.FORWARD_RETRY_SECONDS)
        call.check_killed()
    if call.time_left_s is not None:
        raise out_of_time()
    raise refusal(262, "operation exceeded time limit: this member does not reach afterClusterTime")

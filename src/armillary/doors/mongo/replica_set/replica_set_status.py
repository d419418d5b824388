"""Commands about the replica set: replSetGetStatus, replSetGetConfig, and what serverStatus tells of it. The set of a
single server has one member.
"""

from __future__ import annotations

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.replica_set.membership import SET_NAME, Membership, Role, host_of, tags_of
from armillary.model.bson.bson_values import Document


async def status(call: Call) -> Reply:
    """replSetGetStatus."""
    now = DatetimeMS(int(call.clock.now_s() * 1000))
    member = call.services.membership
    if member is None:
        own = _own_status(call, 0, call.services.address_of(call.client), Role.PRIMARY, now, 1)
        return {"set": SET_NAME, "date": now, "myState": 1, "term": Int64(1), "members": [own]}
    return {
        "set": SET_NAME,
        "date": now,
        "myState": int(member.role),
        "term": Int64(member.topology.epoch),
        "members": _statuses(call, member),
    }


def _statuses(call: Call, member: Membership) -> list[Document]:
    topology = member.topology
    reached = DatetimeMS(topology.reached_us // 1000)
    found: list[Document] = []
    for number, each in enumerate(topology.members):
        host, role = host_of(each), member.role_of(each)
        if host is None:
            continue
        if each.name == topology.name:
            found.append(_own_status(call, number, host, role, reached, topology.epoch))
        else:  # how far the others have come is not known here
            found.append({"_id": number, "name": host, **_state(role)})
    return found


def _own_status(call: Call, number: int, host: str, role: Role, date: DatetimeMS, term: int) -> Document:
    return {
        "_id": number,
        "name": host,
        **_state(role),
        "uptime": int(call.services.uptime_s),
        "optime": {"ts": call.services.cluster_time.now, "t": Int64(term)},
        "optimeDate": date,
        "self": True,
    }


def _state(role: Role) -> Document:
    shown = "(not reachable/healthy)" if role is Role.DOWN else role.name
    return {"health": float(role is not Role.DOWN), "state": int(role), "stateStr": shown}


async def configuration(call: Call) -> Reply:
    """replSetGetConfig."""
    member = call.services.membership
    if member is None:
        version, term, members = 1, 1, [_configured(0, call.services.address_of(call.client), {})]
    else:
        version, term = member.set_version, member.topology.epoch
        members = [
            _configured(number, host, tags_of(each.name, each.region))
            for number, each in enumerate(member.topology.members)
            if (host := host_of(each)) is not None
        ]
    settings = {"_id": SET_NAME, "version": version, "term": term, "protocolVersion": Int64(1), "members": members}
    return {"config": settings}


def _configured(number: int, host: str, tags: dict[str, str]) -> Document:
    return {
        "_id": number,
        "host": host,
        "arbiterOnly": False,
        "hidden": False,
        "priority": 1,
        "votes": 1,
        "buildIndexes": True,
        "tags": tags,
        "secondaryDelaySecs": Int64(0),
    }


def summary(call: Call) -> Document:
    """As serverStatus shows it."""
    member, own = call.services.membership, call.services.address_of(call.client)
    if member is None:
        return {**_roles(Role.PRIMARY), "hosts": [own], "me": own}
    primary = member.primary_host
    return {
        **_roles(member.role),
        "hosts": list(member.hosts),
        **({"primary": primary} if primary is not None else {}),
        "me": member.own_host or own,
    }


def _roles(role: Role) -> Document:
    is_primary = role is Role.PRIMARY
    return {
        "setName": SET_NAME,
        "isWritablePrimary": is_primary,
        "ismaster": is_primary,
        "secondary": role is Role.SECONDARY,
    }

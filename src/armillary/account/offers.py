"""Offers: reading and replacing the throughput of a database or container."""

from __future__ import annotations

from typing import Any

from armillary.account import throughput
from armillary.account.account import Account
from armillary.account.catalog import Body, Record
from armillary.account.throughput import Throughput
from armillary.errors import Failure, Kind, bad_request
from armillary.model.resources import ResourceType, rid_bytes


def offer_of(account: Account, owner: Record) -> Record | None:
    """The offer of a database or container, if it has one of its own."""
    owner_rid = owner.rid_text
    for offer in account.catalog.children(ResourceType.OFFER, b""):
        if offer.state["owner"] == owner_rid:
            return offer
    return None


def new_offer(wanted: Throughput, owner: Record) -> tuple[ResourceType, Body, Body]:
    """The companion that comes into being with a database or container."""
    body = throughput.offer_body(wanted, owner.self_link, owner.rid_text, wanted.ru)
    return ResourceType.OFFER, body, {"owner": owner.rid_text, "highest_ru": wanted.ru}


def minimum_ru(offer: Record) -> int:
    return throughput.minimum_ru(throughput.throughput_of(offer.body), offer.state["highest_ru"])


async def replace_offer(
    account: Account, offer: Record, wanted: Any, *, to_autoscale: bool, to_manual: bool, if_match: str | None
) -> Record:
    async with account.control:
        return await _replace(account, offer, wanted, to_autoscale, to_manual, if_match)


async def _replace(
    account: Account, offer: Record, wanted: Any, to_autoscale: bool, to_manual: bool, if_match: str | None
) -> Record:
    present = throughput.throughput_of(offer.body)
    if isinstance(wanted, dict) and wanted.get("id", offer.name) != offer.name:
        raise bad_request("The id of an offer cannot be changed.")
    changed = throughput.changed_throughput(present, wanted, to_autoscale=to_autoscale, to_manual=to_manual)
    highest_ru = max(offer.state["highest_ru"], changed.ru)
    least_ru = throughput.minimum_ru(changed, offer.state["highest_ru"])
    if changed.ru < least_ru and not to_manual:
        raise bad_request(
            f"Requested throughput {changed.ru} is less than required minimum throughput {least_ru}: "
            f"up to {offer.state['highest_ru']} RU/s were provisioned here before."
        )
    carried_ru = _partitions(account, offer) * account.settings.partition_throughput_ru
    if changed.ru > carried_ru:
        raise Failure(
            Kind.UNSUPPORTED,
            f"{changed.ru} RU/s need more partitions than there are (they carry {carried_ru} RU/s together), and "
            "splitting partitions is not supported yet. Create the container with this throughput instead.",
        )
    body = throughput.offer_body(changed, offer.body["resource"], offer.body["offerResourceId"], highest_ru)
    return await account.catalog.replace(
        offer,
        {**body, "id": offer.name},
        state=lambda state: {**state, "highest_ru": highest_ru},
        if_match=if_match,
    )


def _partitions(account: Account, offer: Record) -> int:
    """How many partitions an offer's throughput is spread over."""
    rid = rid_bytes(offer.state["owner"]) or b""
    counts = [
        len(container.partitions)
        for container in account.containers
        if container.record.rid == rid
        or (container.database.rid == rid and offer_of(account, container.record) is None)
    ]
    return max(counts, default=1)

"""Offers: reading and replacing the throughput of a database or container.

A change takes effect at once where the present partitions carry it; where they do not, they are split first, and until
that is done the offer is pending and what was provisioned before is served.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.container_state import Body, OfferState
from armillary.account.catalog.records import Record
from armillary.account.throughput import provisioning
from armillary.account.throughput.provisioning import Minimum, Throughput
from armillary.errors import bad_request
from armillary.model.edm import PARTITION_KEY
from armillary.model.keys import PartitionKeyDefinition
from armillary.model.resources import ResourceType, rid_bytes

NOT_SERVERLESS = "Setting offer throughput or autopilot on {what} is not supported for serverless accounts."


def offer_of(account: Account, owner: Record) -> Record | None:
    """The offer of a database or container, if it has one of its own."""
    return account.budgets.offer_of(owner)


def new_offer(wanted: Throughput, owner: Record) -> tuple[ResourceType, Body, Body]:
    """The companion that comes into being with a database or container."""
    body = provisioning.offer_body(wanted, owner.self_link, owner.rid_text, wanted.ru)
    return ResourceType.OFFER, body, OfferState(owner.rid_text, wanted.ru).to_json()


def refuse_if_serverless(account: Account, wanted: Throughput | None, what: str) -> None:
    if wanted is not None and account.settings.is_serverless:
        raise bad_request(NOT_SERVERLESS.format(what=what))


def minimum_ru(account: Account, offer: Record) -> int:
    return _minimum(account, offer, provisioning.throughput_of(offer.body)).ru


def is_pending(account: Account, offer: Record) -> bool:
    return account.budgets.is_pending(offer)


def offer_content(account: Account, offer: Record) -> Body:
    """An offer as it is answered: with what is true at this moment."""
    document = offer.to_json()
    content = document["content"] = {**offer.body["content"]}
    content["offerThroughput"] = _shown_ru(account, offer)
    content["offerMinimumThroughputParameters"] = {
        **content["offerMinimumThroughputParameters"],
        "maxConsumedStorageEverInKB": account.budgets.storage_bytes(offer) // limits.KB,
    }
    if is_pending(account, offer):
        content["isOfferReplacePending"] = True
    return document


def _shown_ru(account: Account, offer: Record) -> int:
    """What a manual offer says, pending or not; of an autoscale range, where it stands."""
    wanted = provisioning.throughput_of(offer.body)
    return account.budgets.current_ru(offer) if wanted.is_autoscale else wanted.ru


def _minimum(account: Account, offer: Record, wanted: Throughput) -> Minimum:
    budgets = account.budgets
    is_shared = account.catalog.get(ResourceType.DATABASE, rid_bytes(offer.offer_state.owner) or b"") is not None
    return provisioning.minimum(
        wanted,
        offer.offer_state.highest_ru,
        budgets.storage_bytes(offer),
        len(budgets.containers_of(offer)) if is_shared else 0,
        0 if is_shared else max([least_ru(account, each.key) for each in budgets.containers_of(offer)], default=0),
    )


def least_ru(account: Account, key: PartitionKeyDefinition | None) -> int:
    """The least throughput of a container of its own. Tables have a key and may have as little as a container without
    one: Microsoft's articles provision 700 and 800 RU/s for them, less than for any other container with a key."""
    if key is None or key.steps == ((PARTITION_KEY,),):
        return limits.THROUGHPUT_MIN_RU
    return account.settings.partitioned_throughput_min_ru


async def replace_offer(
    account: Account, offer: Record, wanted: Any, *, to_autoscale: bool, to_manual: bool, if_match: str | None
) -> Record:
    """Replace an offer as a client's document says, or its options: those that change between manual and autoscale
    carry no number."""
    await account.refresh_figures()
    async with account.control:
        present = provisioning.throughput_of(offer.body)
        if isinstance(wanted, dict) and wanted.get("id", offer.name) != offer.name:
            raise bad_request("The id of an offer cannot be changed.")
        changed = provisioning.changed_throughput(present, wanted, to_autoscale=to_autoscale, to_manual=to_manual)
        if to_autoscale or to_manual:
            changed = replace(changed, ru=max(changed.ru, _minimum(account, offer, changed).ru))
        return await _replace(account, offer, changed, if_match)


async def set_throughput(account: Account, offer: Record, wanted: Throughput) -> Record:
    """Set the units, manual or autoscale. Other properties of the offer stay where they apply to that kind."""
    await account.refresh_figures()
    async with account.control:
        present = provisioning.throughput_of(offer.body)
        if present.is_autoscale == wanted.is_autoscale:
            wanted = replace(present, ru=wanted.ru)
        return await _replace(account, offer, wanted, None)


def check_throughput(account: Account, offer: Record, changed: Throughput) -> None:
    """Refuse a throughput that an offer cannot be set to."""
    least = _minimum(account, offer, changed)
    if changed.ru < least.ru:
        raise bad_request(
            f"Requested throughput {changed.ru} is less than required minimum throughput {least.ru}: {least.reason}."
        )
    changed.check_range(least.ru, account.settings.throughput_max_ru)
    _check_fixed(account, offer, changed)
    partition_ru = account.settings.partition_throughput_ru
    for container in account.budgets.containers_of(offer):
        changed.check_minute_pool(max(len(container.partitions), -(-changed.ru // partition_ru)))


async def _replace(account: Account, offer: Record, changed: Throughput, if_match: str | None) -> Record:
    check_throughput(account, offer, changed)
    budgets = account.budgets
    # What is served until partitions have been split is what is served now.
    serving = budgets.serving(offer)
    before = {"content": provisioning.offer_body(serving, "", "", serving.ru)["content"]}
    highest_ru = max(offer.offer_state.highest_ru, changed.ru)
    body = provisioning.offer_body(changed, offer.body["resource"], offer.body["offerResourceId"], highest_ru)
    replaced = await account.catalog.replace(
        offer,
        {**body, "id": offer.name},
        state=lambda stored: replace(OfferState.parse(stored), highest_ru=highest_ru, before=before).to_json(stored),
        if_match=if_match,
        on_replaced=budgets.adopt,
    )
    _tell_scaled(account, replaced, changed)
    await budgets.make_room(replaced, account.reshaper)
    return replaced


def _tell_scaled(account: Account, offer: Record, changed: Throughput) -> None:
    """Record it for people who look."""
    containers = account.budgets.containers_of(offer)
    is_own = len(containers) == 1 and account.budgets.offer_of(containers[0].record) is not None
    names = [containers[0].database.name] if containers else []
    names += [containers[0].name] if is_own else []
    most = "up to " if changed.is_autoscale else ""
    text = f"The throughput of {'/'.join(names) or 'a database'} was set to {most}{changed.ru} RU/s."
    account.events.record("scaled", text, *names, ru=changed.ru, autoscale=changed.is_autoscale)


def _check_fixed(account: Account, offer: Record, changed: Throughput) -> None:
    for container in account.budgets.containers_of(offer):
        if container.key is None:
            check_fixed(account, changed)


def check_fixed(account: Account, wanted: Throughput) -> None:
    """What a container without partition key may have: it is one partition, for ever."""
    carried_ru = max(limits.THROUGHPUT_MIN_RU, account.settings.partition_throughput_ru)
    most_ru = min(limits.FIXED_CONTAINER_THROUGHPUT_MAX_RU, carried_ru)
    if wanted.is_autoscale or wanted.ru > most_ru:
        raise bad_request(
            f"A container without partition key takes manual throughput of {limits.THROUGHPUT_MIN_RU} to "
            f"{most_ru} RU/s. Give it a partition key to scale further."
        )

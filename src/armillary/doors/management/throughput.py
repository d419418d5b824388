"""Throughput over the management API: `options` of what is created, and `throughputSettings/default` of databases and
containers, with the changes between manual and autoscale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from armillary.account.catalog.records import Record
from armillary.account.throughput import offers, provisioning
from armillary.account.throughput.provisioning import Throughput
from armillary.doors.management.call import Action, Call, entry
from armillary.doors.management.members import Members
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown
from armillary.net.http import Response

Owner = Callable[[Call], Record]  # of the throughput that an address names

SETTINGS: Final = "throughputSettings"
TO_AUTOSCALE: Final = "migrateToAutoscale"
TO_MANUAL: Final = "migrateToManualThroughput"
_SHOWN: Final = (
    "minimumThroughput",
    "offerReplacePending",
    "instantMaximumThroughput",
    "softAllowedMaximumThroughput",
)


def read_wanted(members: Members) -> Throughput | None:
    """`throughput` or `autoscaleSettings` of options or of a throughput's resource."""
    manual_ru = members.whole("throughput")
    automatic = members.object("autoscaleSettings")
    most_ru = automatic.whole("maxThroughput")
    automatic.refuse("autoUpgradePolicy", "the maximum of an autoscale range is changed by an update alone.")
    automatic.skip(("targetMaxThroughput",))
    automatic.end()
    if manual_ru is not None and most_ru is not None:
        raise bad_request("Give 'throughput' or 'autoscaleSettings', not both.")
    if most_ru is not None:
        return Throughput.autoscale(most_ru, None)
    return Throughput.manual(manual_ru) if manual_ru is not None else None


def read_options(options: Members) -> Throughput | None:
    wanted = read_wanted(options)
    options.end()
    return wanted


def default_of(call: Call, database: Record, ru: int, *, has_key: bool) -> Throughput | None:
    """Of a collection or table that is created without a throughput: none where its database shares one. `ru`: by the
    settings of its protocol; never less than its kind of container needs."""
    settings = call.account.settings
    if settings.is_serverless or offers.offer_of(call.account, database) is not None:
        return None
    return Throughput.manual(max(ru, settings.partitioned_throughput_min_ru if has_key else 0))


def check_change(call: Call, owner: Record, wanted: Throughput | None) -> None:
    """Refuse `options` of a PUT that an existing resource cannot take."""
    if wanted is not None:
        offer = _offer(call, owner)
        _check_kind(offer, wanted)
        offers.check_throughput(call.account, offer, wanted)


async def change(call: Call, owner: Record, wanted: Throughput | None) -> None:
    """Bring an existing resource to the throughput of a PUT's `options`, if they name one."""
    if wanted is None:
        return
    offer = _offer(call, owner)
    _check_kind(offer, wanted)
    if provisioning.throughput_of(offer.body).ru != wanted.ru:
        await offers.set_throughput(call.account, offer, wanted)


def settings_actions(kind: str, owner_of: Owner) -> tuple[tuple[str, str, Action], ...]:
    """Method, words after the resource's own and action of each request about the throughput of a kind of resource."""
    shown_as = f"{kind}/{SETTINGS}"

    async def show(call: Call) -> Response:
        owner = owner_of(call)
        await call.account.refresh_figures()
        return call.answer(_entry(call, shown_as, _offer(call, owner)))

    async def update(call: Call) -> Response:
        body = call.members()
        call.check_location(body)
        properties = body.required_object("properties")
        resource = properties.required_object("resource")
        wanted = read_wanted(resource)
        resource.refuse("throughputBuckets", "the control API sets them.")
        resource.skip(_SHOWN)
        for each in (body, properties, resource):
            each.end()
        if wanted is None:
            raise bad_request("Give 'properties.resource.throughput', or 'autoscaleSettings' with 'maxThroughput'.")
        owner = owner_of(call)
        await change(call, owner, wanted)
        return call.answer(_entry(call, shown_as, _offer(call, owner)))

    def migration(word: str) -> Action:
        async def migrate(call: Call) -> Response:
            call.refuse_body()
            owner = owner_of(call)
            offer = await offers.replace_offer(
                call.account,
                _offer(call, owner),
                None,
                to_autoscale=word == TO_AUTOSCALE,
                to_manual=word == TO_MANUAL,
                if_match=None,
            )
            return call.answer(_entry(call, f"{shown_as}/{word}", offer))

        return migrate

    return (
        ("GET", f"{SETTINGS}/default", show),
        ("PUT", f"{SETTINGS}/default", update),
        ("POST", f"{SETTINGS}/default/{TO_AUTOSCALE}", migration(TO_AUTOSCALE)),
        ("POST", f"{SETTINGS}/default/{TO_MANUAL}", migration(TO_MANUAL)),
    )


def _offer(call: Call, owner: Record) -> Record:
    offer = offers.offer_of(call.account, owner)
    if offer is not None:
        return offer
    if call.account.settings.is_serverless:
        raise bad_request("Reading or replacing offers is not supported for serverless accounts.")
    raise Failure(
        Kind.NOT_FOUND,
        f"'{shown(owner.name)}' has no throughput of its own: its database shares it, or its containers have it.",
    )


def _check_kind(offer: Record, wanted: Throughput) -> None:
    present = provisioning.throughput_of(offer.body)
    if present.is_autoscale != wanted.is_autoscale:
        word, needed = ("manual", TO_AUTOSCALE) if wanted.is_autoscale else ("autoscale", TO_MANUAL)
        raise bad_request(f"This resource has {word} throughput. Send a POST to {SETTINGS}/default/{needed} first.")


def _entry(call: Call, kind: str, offer: Record) -> dict[str, Any]:
    account = call.account
    present = provisioning.throughput_of(offer.body)
    resource: dict[str, Any] = {"throughput": account.budgets.current_ru(offer) if present.is_autoscale else present.ru}
    if present.is_autoscale:
        resource["autoscaleSettings"] = {"maxThroughput": present.ru}
    resource["minimumThroughput"] = str(offers.minimum_ru(account, offer))
    if offers.is_pending(account, offer):
        resource["offerReplacePending"] = "true"
    carried = [len(each.partitions) for each in account.budgets.containers_of(offer)]
    if carried:
        resource["instantMaximumThroughput"] = str(min(carried) * account.settings.partition_throughput_ru)
    resource["softAllowedMaximumThroughput"] = str(account.settings.throughput_max_ru)
    return entry(call.id_of(kind, *call.names, "default"), kind, offer.name, resource)

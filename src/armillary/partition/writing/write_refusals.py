"""The failures with which a Writer refuses operations."""

from __future__ import annotations

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model import charges

TRANSACTION_TOO_LARGE = 257  # MongoDB's code for it


def taken(item_id: str, charge_ru: float) -> Failure:
    return Failure(
        Kind.CONFLICT,
        "Entity with the specified id already exists in the system: "
        f"an item with id '{item_id}' is in this logical partition.",
        charge_ru=charge_ru,
    )


def precondition_failed(charge_ru: float) -> Failure:
    return Failure(
        Kind.PRECONDITION_FAILED,
        "One of the specified pre-condition is not met: the item is not in the state that the request's etag or "
        "condition asks for. Read it again and retry.",
        charge_ru=charge_ru,
    )


def too_many_changes() -> Failure:
    return Failure(
        Kind.TOO_LARGE,
        f"A transaction changes at most {limits.TRANSACTION_CHANGES_MAX} items. Divide it.",
        details={"code": TRANSACTION_TOO_LARGE},
    )


def missing(item_id: str) -> Failure:
    return Failure(
        Kind.NOT_FOUND,
        "Entity with the specified id does not exist in the system: "
        f"no item with id '{item_id}' in this logical partition.",
        charge_ru=charges.failed_read_ru(),
    )


def key_full(most_bytes: int) -> Failure:
    shown = f"{most_bytes / limits.GB:g} GB" if most_bytes >= limits.GB else f"{most_bytes / limits.MB:g} MB"
    return Failure(
        Kind.KEY_FULL, f"Partition key reached maximum size of {shown}", charge_ru=charges.failed_write_ru(0)
    )

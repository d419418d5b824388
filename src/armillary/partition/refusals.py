"""Why a write to an item is refused, as several verbs of the writer say it."""

from __future__ import annotations

from armillary import limits
from armillary.errors import Failure, Kind

TRANSACTION_TOO_LARGE = 257  # MongoDB's number for it


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

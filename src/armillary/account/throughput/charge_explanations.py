"""The parts of a request's charge, which add up to it. HTTP clients ask for them with `x-armillary-explain: true`; the
header of the answer is made by `net/charged_requests.py`.

The parts are computed from the answer, so that a request without that header pays nothing for them. Prices are in
`model/charges.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.key_deletion import DELETE_BY_KEY_RU
from armillary.account.visits.read_visits import Answer
from armillary.account.visits.write_visits import BatchAnswer
from armillary.errors import Failure, Kind
from armillary.model import charges
from armillary.model.charges import Part
from armillary.partition.operations import Outcome, Result


def explain_metadata(charge_ru: float) -> list[Part]:
    return [Part("metadata", charge_ru)] if charge_ru else []


def explain_item(answer: Answer, read_factor: int = 1) -> list[Part]:
    if answer.outcome is not None:
        return charges.fitted(_written(answer.outcome), answer.charge_ru)
    if answer.result is Result.READ and answer.payload is not None:
        return charges.fitted(charges.read_parts(len(answer.payload), read_factor), answer.charge_ru)
    is_read = answer.result in (Result.READ, Result.NOT_MODIFIED)
    return [Part("look for the item" if is_read else "write the item and run its triggers", answer.charge_ru)]


def explain_delete_by_key(answer: Answer) -> list[Part]:
    deletes_ru = answer.charge_ru - DELETE_BY_KEY_RU
    parts = [Part("look for the items", DELETE_BY_KEY_RU), Part("remove items and their index terms", deletes_ru)]
    return charges.fitted([part for part in parts if part.ru], answer.charge_ru)


def explain_batch(answer: BatchAnswer) -> list[Part]:
    """Of all operations together: a hundred of them would not fit a header."""
    parts = [part for member in answer.members for part in _of_member(member)]
    if not parts:
        return explain_failure(None, answer.charge_ru)
    return charges.fitted(charges.added_up(parts), answer.charge_ru)


def explain_feed(sizes_bytes: Sequence[int], charge_ru: float, read_factor: int) -> list[Part]:
    return charges.fitted(charges.feed_page_parts(sizes_bytes, read_factor), charge_ru)


def explain_query(answer: PageAnswer, read_factor: int) -> list[Part]:
    return charges.fitted(charges.query_page_parts(answer.work, read_factor), answer.charge_ru)


def explain_failure(failure: Failure | None, charge_ru: float) -> list[Part]:
    what = "refuse: too many request units" if failure is not None and failure.kind is Kind.THROTTLED else "refuse"
    return [Part(what, charge_ru)] if charge_ru else []


def _of_member(member: Outcome | Failure) -> Iterable[Part]:
    return _written(member) if isinstance(member, Outcome) else explain_failure(member, member.charge_ru)


def _written(outcome: Outcome) -> Sequence[Part]:
    size_bytes = len(outcome.payload) if outcome.payload is not None else 0
    match outcome.result:
        case Result.CREATED:
            return charges.create_parts(size_bytes, outcome.terms)
        case Result.REPLACED:
            return charges.patch_parts(outcome.old_bytes, size_bytes, outcome.terms, outcome.patch_operations)
        case Result.DELETED:
            return charges.delete_parts(outcome.old_bytes, outcome.terms)
        case _:
            return [Part("read the item", outcome.charge_ru, size_bytes=size_bytes)]

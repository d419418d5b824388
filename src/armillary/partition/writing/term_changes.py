"""The index terms that a write adds and removes. An item may have hundreds of thousands, so all loops over them count
their work and may give way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from armillary import limits, work
from armillary.storage.engine import Txn

Term = tuple[str, bytes]
Terms = list[Term]
PrefixOf = Callable[[str], bytes]  # the prefix of a path's term keys

_UNITS = 12  # units of work, to put or delete one


def put_terms(txn: Txn, known: Mapping[str, bytes], prefix_of: PrefixOf, terms: Terms, number: int) -> None:
    """`known`: prefixes already known, which is nearly all of them."""
    prefix, rid = known.get, number.to_bytes(8, "big")
    for portion in _portions(terms):
        txn.put_keys([(prefix(path) or prefix_of(path)) + term + rid for path, term in portion])


def delete_terms(txn: Txn, prefix_of: PrefixOf, terms: Terms, number: int) -> None:
    delete, rid = txn.delete, number.to_bytes(8, "big")
    for portion in _portions(terms):
        for path, term in portion:
            delete(prefix_of(path) + term + rid)


def differences(before: Terms, after: Terms) -> tuple[Terms, Terms]:
    """The terms that are removed and those that are added."""
    if len(before) + len(after) <= limits.WORK_PORTION:
        old, new = set(before), set(after)
        return list(old - new), list(new - old)
    return _without(before, after), _without(after, before)


def _without(terms: Terms, others: Terms) -> Terms:
    if not others or not terms:
        return terms
    left_out: set[Term] = set()
    for portion in work.portions(others, 2):
        left_out.update(portion)
    return [term for portion in work.portions(terms, 2) for term in portion if term not in left_out]


def _portions(terms: Terms) -> Iterable[Sequence[Term]]:
    return (terms,) if len(terms) <= limits.WORK_PORTION else work.portions(terms, _UNITS)

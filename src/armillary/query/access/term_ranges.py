"""The terms of an index that may satisfy a condition on one path, as bounds: from the first to before the second.
`access_path.py`, `ordered_access.py` and `index_only.py` look them up.
"""

from __future__ import annotations

from armillary.model import layout
from armillary.model.encoding import ARRAY_MARK, encode_term, is_cut
from armillary.model.values import UNDEFINED
from armillary.query.conditions import Defined, Equal, Range

_INVERTED = bytes(255 - byte for byte in range(256))
_AFTER_UNDEFINED = layout.prefix_end(encode_term(UNDEFINED))
_FIRST_NUMBER = layout.prefix_end(encode_term(True))
_FIRST_STRING = encode_term("")
_FIRST_ARRAY = ARRAY_MARK


def term_bounds(condition: Equal | Range | Defined) -> tuple[bytes, bytes] | None:
    """None if the index cannot tell."""
    if isinstance(condition, Defined):
        return _AFTER_UNDEFINED, b"\xff"
    if isinstance(condition, Range):
        return range_bounds(condition)
    if condition.value is UNDEFINED:
        return None
    term = encode_term(condition.value)
    return term, layout.prefix_end(term)


def range_bounds(condition: Range) -> tuple[bytes, bytes]:
    """A cut term stands for many values, so both ends include it whatever the range says."""
    low, high = condition.low, condition.high
    is_text = isinstance(low if low is not UNDEFINED else high, str)
    if low is UNDEFINED:
        first = _FIRST_STRING if is_text else _FIRST_NUMBER
    else:
        first = encode_term(low)
        if not condition.includes_low and not is_cut(first):
            first = layout.prefix_end(first)
    if high is UNDEFINED:
        return first, _FIRST_ARRAY if is_text else _FIRST_STRING
    last = encode_term(high)
    return first, last if not condition.includes_high and not is_cut(last) else layout.prefix_end(last)


def inverted(term: bytes) -> bytes:
    """A term as it stands in a descending part of a composite index."""
    return term.translate(_INVERTED)


def inverted_bounds(low: bytes, high: bytes) -> tuple[bytes, bytes]:
    """The bounds of the same terms in a descending part; no term is the beginning of another, so what is greater is
    less when inverted. May let in the next term."""
    return inverted(high), layout.prefix_end(inverted(low))

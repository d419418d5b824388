"""Questions about a value's type. They answer true or false to everything, undefined included. The simplest are
written into compiled queries directly (`functions.py`).
"""

from __future__ import annotations

import math
from typing import Any

from armillary.languages.sql.library.dates import parse_ticks
from armillary.languages.sql.library.numbers import NUMBERS, whole
from armillary.model.values import Value, as_double


def is_finite_number(given: Any) -> Value:
    return given.__class__ in NUMBERS and math.isfinite(as_double(given))


def is_integer(given: Any) -> Value:
    return whole(given) is not None


def is_datetime(given: Any) -> Value:
    return parse_ticks(given) is not None

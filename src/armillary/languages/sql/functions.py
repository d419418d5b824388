"""The built-in functions: what each does, how many arguments it takes, and the names that exist in the language but are
not offered yet. An undefined argument or one of the wrong type makes the result undefined, never an error; the type
checks alone answer true or false to everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from armillary.model.values import UNDEFINED, Value, equal

ANY_NUMBER: Final = 1_000_000  # of arguments: as many as one likes


class Function(NamedTuple):
    arguments_min: int
    arguments_max: int
    call: Callable[..., Value] | None = None
    # Python source in place of a call, with {0} for the argument; always true or false, never undefined.
    inline: str = ""
    # What comes before the arguments: the execution's Context, and the path that is the first argument ("": none is).
    needs_context: bool = False
    needs_path: bool = False


def starts_with(text: Any, prefix: Any, ignore_case: Any = False) -> Value:
    pair = _folded(text, prefix, ignore_case)
    return UNDEFINED if pair is None else pair[0].startswith(pair[1])


def ends_with(text: Any, suffix: Any, ignore_case: Any = False) -> Value:
    pair = _folded(text, suffix, ignore_case)
    return UNDEFINED if pair is None else pair[0].endswith(pair[1])


def contains(text: Any, part: Any, ignore_case: Any = False) -> Value:
    pair = _folded(text, part, ignore_case)
    return UNDEFINED if pair is None else pair[1] in pair[0]


def _folded(text: Any, part: Any, ignore_case: Any) -> tuple[str, str] | None:
    if text.__class__ is not str or part.__class__ is not str or ignore_case.__class__ is not bool:
        return None
    return (text.lower(), part.lower()) if ignore_case else (text, part)


def array_contains(array: Any, value: Any, is_partial: Any = False) -> Value:
    if array.__class__ is not list or value is UNDEFINED or is_partial.__class__ is not bool:
        return UNDEFINED
    if is_partial and value.__class__ is dict:
        return any(_holds(element, value) for element in array)
    return any(equal(element, value) for element in array)


def _holds(whole: Any, part: dict[str, Any]) -> bool:
    """Whether an object has every property of another. One level: the values of the properties compare fully."""
    if whole.__class__ is not dict:
        return False
    return all(name in whole and equal(whole[name], value) for name, value in part.items())


def array_length(array: Any) -> Value:
    return len(array) if array.__class__ is list else UNDEFINED


def length(text: Any) -> Value:
    """In UTF-16 units, as the service counts."""
    if text.__class__ is not str:
        return UNDEFINED
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def lower(text: Any) -> Value:
    return text.lower() if text.__class__ is str else UNDEFINED


def upper(text: Any) -> Value:
    return text.upper() if text.__class__ is str else UNDEFINED


def absolute(number: Any) -> Value:
    return abs(number) if number.__class__ in (int, float) else UNDEFINED


FUNCTIONS: dict[str, Function] = {
    "ABS": Function(1, 1, absolute),
    "ARRAY_CONTAINS": Function(2, 3, array_contains),
    "ARRAY_LENGTH": Function(1, 1, array_length),
    "CONTAINS": Function(2, 3, contains),
    "ENDSWITH": Function(2, 3, ends_with),
    "IS_ARRAY": Function(1, 1, inline="{0}.__class__ is list"),
    "IS_BOOL": Function(1, 1, inline="{0}.__class__ is bool"),
    "IS_DEFINED": Function(1, 1, inline="{0} is not U"),
    "IS_NULL": Function(1, 1, inline="{0} is None"),
    "IS_NUMBER": Function(1, 1, inline="{0}.__class__ in NUMBERS"),
    "IS_OBJECT": Function(1, 1, inline="{0}.__class__ is dict"),
    "IS_PRIMITIVE": Function(1, 1, inline="{0}.__class__ in PRIMITIVES"),
    "IS_STRING": Function(1, 1, inline="{0}.__class__ is str"),
    "LENGTH": Function(1, 1, length),
    "LOWER": Function(1, 1, lower),
    "STARTSWITH": Function(2, 3, starts_with),
    "UPPER": Function(1, 1, upper),
}

AGGREGATES = frozenset(["AVG", "COUNT", "COUNTIF", "MAKELIST", "MAKESET", "MAX", "MIN", "SUM"])

# In the language, not offered yet: refused by name, and not as unknown.
NOT_YET = frozenset(
    """
    ACOS ASIN ATAN ATN2 CEILING FLOOR COS SIN TAN COT DEGREES RADIANS EXP LOG LOG10 PI RAND POWER SQRT SQUARE ROUND
    SIGN TRUNC NUMBERBIN INTADD INTSUB INTMUL INTDIV INTMOD INTBITAND INTBITOR INTBITXOR INTBITNOT INTBITLEFTSHIFT
    INTBITRIGHTSHIFT CONCAT CONTAINS_ALL_CI CONTAINS_ALL_CS CONTAINS_ANY_CI CONTAINS_ANY_CS INDEX_OF LASTINDEXOF LEFT
    RIGHT REVERSE LTRIM RTRIM TRIM REGEXMATCH REPLACE REPLICATE STRINGEQUALS STRINGJOIN STRINGSPLIT SUBSTRING TOSTRING
    STRINGTONUMBER STRINGTOBOOLEAN STRINGTONULL STRINGTOARRAY STRINGTOOBJECT IS_FINITE_NUMBER IS_INTEGER IS_DATETIME
    ARRAY_CONCAT ARRAY_CONTAINS_ALL ARRAY_CONTAINS_ANY ARRAY_SLICE ARRAY_AVG ARRAY_SUM ARRAY_MEDIAN ARRAY_MIN
    ARRAY_MAX SETUNION SETINTERSECT SETDIFFERENCE SETEQUAL CHOOSE OBJECTTOARRAY DATETIMEADD DATETIMEDIFF DATETIMEPART
    YEAR MONTH DAY DATETIMEBIN DATETIMEFROMPARTS DATETIMEFORMAT DATETIMETOTICKS TICKSTODATETIME DATETIMETOTIMESTAMP
    TIMESTAMPTODATETIME GETCURRENTDATETIME GETCURRENTTICKS GETCURRENTTIMESTAMP GETCURRENTDATETIMESTATIC
    GETCURRENTTICKSSTATIC GETCURRENTTIMESTAMPSTATIC NOW AGO ST_DISTANCE ST_WITHIN ST_INTERSECTS ST_AREA ST_ISVALID
    ST_ISVALIDDETAILED IIF DOCUMENTID VECTORDISTANCE FULLTEXTCONTAINS FULLTEXTCONTAINSALL FULLTEXTCONTAINSANY
    FULLTEXTSCORE RRF _FULLTEXTSCORE _FULLTEXTWORDCOUNT _VECTORSCORE
    """.split()
)

"""The table of built-in functions: name, number of arguments, and the Python function that implements it. An undefined
argument or one of the wrong type makes the result undefined, never an error; only the type checks return true or false
for every value. The implementations are in `library/`, one module for each category.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from armillary.languages.sql.library import (
    arrays,
    conversion,
    date_formats,
    dates,
    fulltext,
    mathematics,
    scores,
    spatial,
    strings,
    vectors,
)
from armillary.model.values import Value

ANY_NUMBER: Final = 1_000_000  # of arguments: no maximum


class Function(NamedTuple):
    arguments_min: int
    arguments_max: int
    call: Callable[..., Value] | None = None
    # Python source that is emitted instead of a call, with {0} for the argument; always true or false, never undefined.
    inline: str = ""
    # Extra leading arguments: the execution's Context, and the index path of the first argument that is a path ("" if
    # none is).
    needs_context: bool = False
    needs_path: bool = False


FUNCTIONS: dict[str, Function] = {
    # Mathematics.
    "ABS": Function(1, 1, mathematics.absolute),
    "ACOS": Function(1, 1, mathematics.arc_cosine),
    "ASIN": Function(1, 1, mathematics.arc_sine),
    "ATAN": Function(1, 1, mathematics.arc_tangent),
    "ATN2": Function(2, 2, mathematics.arc_tangent_2),
    "CEILING": Function(1, 1, mathematics.ceiling),
    "COS": Function(1, 1, mathematics.cosine),
    "COT": Function(1, 1, mathematics.cotangent),
    "DEGREES": Function(1, 1, mathematics.degrees),
    "EXP": Function(1, 1, mathematics.exponential),
    "FLOOR": Function(1, 1, mathematics.floor),
    "INTADD": Function(2, 2, mathematics.int_add),
    "INTBITAND": Function(2, 2, mathematics.int_and),
    "INTBITLEFTSHIFT": Function(2, 2, mathematics.int_shift_left),
    "INTBITNOT": Function(1, 1, mathematics.int_not),
    "INTBITOR": Function(2, 2, mathematics.int_or),
    "INTBITRIGHTSHIFT": Function(2, 2, mathematics.int_shift_right),
    "INTBITXOR": Function(2, 2, mathematics.int_xor),
    "INTDIV": Function(2, 2, mathematics.int_divide),
    "INTMOD": Function(2, 2, mathematics.int_remainder),
    "INTMUL": Function(2, 2, mathematics.int_multiply),
    "INTSUB": Function(2, 2, mathematics.int_subtract),
    "LOG": Function(1, 2, mathematics.logarithm),
    "LOG10": Function(1, 1, mathematics.logarithm_10),
    "NUMBERBIN": Function(1, 2, mathematics.number_bin),
    "PI": Function(0, 0, mathematics.pi),
    "POWER": Function(2, 2, mathematics.power),
    "RADIANS": Function(1, 1, mathematics.radians),
    "RAND": Function(0, 0, mathematics.random_number, needs_context=True),
    "ROUND": Function(1, 1, mathematics.round_number),
    "SIGN": Function(1, 1, mathematics.sign),
    "SIN": Function(1, 1, mathematics.sine),
    "SQRT": Function(1, 1, mathematics.square_root),
    "SQUARE": Function(1, 1, mathematics.square),
    "TAN": Function(1, 1, mathematics.tangent),
    "TRUNC": Function(1, 1, mathematics.truncate),
    # Strings.
    "CONCAT": Function(2, ANY_NUMBER, strings.concat),
    "CONTAINS": Function(2, 3, strings.contains),
    "CONTAINS_ALL_CI": Function(2, ANY_NUMBER, strings.contains_all_ignoring_case),
    "CONTAINS_ALL_CS": Function(2, ANY_NUMBER, strings.contains_all),
    "CONTAINS_ANY_CI": Function(2, ANY_NUMBER, strings.contains_any_ignoring_case),
    "CONTAINS_ANY_CS": Function(2, ANY_NUMBER, strings.contains_any),
    "ENDSWITH": Function(2, 3, strings.ends_with),
    "INDEX_OF": Function(2, 3, strings.index_of),
    "LASTINDEXOF": Function(2, 3, strings.last_index_of),
    "LEFT": Function(2, 2, strings.left),
    "LENGTH": Function(1, 1, strings.length),
    "LOWER": Function(1, 1, strings.lower),
    "LTRIM": Function(1, 2, strings.trim_left),
    "REGEXMATCH": Function(2, 3, strings.regex_match),
    "REPLACE": Function(3, 3, strings.replace),
    "REPLICATE": Function(2, 2, strings.replicate),
    "REVERSE": Function(1, 1, strings.reverse),
    "RIGHT": Function(2, 2, strings.right),
    "RTRIM": Function(1, 2, strings.trim_right),
    "STARTSWITH": Function(2, 3, strings.starts_with),
    "STRINGEQUALS": Function(2, 3, strings.string_equals),
    "STRINGJOIN": Function(2, 2, strings.string_join),
    "STRINGSPLIT": Function(2, 2, strings.string_split),
    "SUBSTRING": Function(3, 3, strings.substring),
    "TRIM": Function(1, 2, strings.trim),
    "UPPER": Function(1, 1, strings.upper),
    # Conversion.
    "STRINGTOARRAY": Function(1, 1, conversion.string_to_array),
    "STRINGTOBOOLEAN": Function(1, 1, conversion.string_to_boolean),
    "STRINGTONULL": Function(1, 1, conversion.string_to_null),
    "STRINGTONUMBER": Function(1, 1, conversion.string_to_number),
    "STRINGTOOBJECT": Function(1, 1, conversion.string_to_object),
    "TOSTRING": Function(1, 1, conversion.to_string),
    # Types.
    "IS_ARRAY": Function(1, 1, inline="{0}.__class__ is list"),
    "IS_BOOL": Function(1, 1, inline="{0}.__class__ is bool"),
    # Not documented: Java's client writes it into ordered queries that it resumes.
    "IS_BOOLEAN": Function(1, 1, inline="{0}.__class__ is bool"),
    "IS_DATETIME": Function(1, 1, conversion.is_datetime),
    "IS_DEFINED": Function(1, 1, inline="{0} is not U"),
    "IS_FINITE_NUMBER": Function(1, 1, conversion.is_finite_number),
    "IS_INTEGER": Function(1, 1, conversion.is_integer),
    "IS_NULL": Function(1, 1, inline="{0} is None"),
    "IS_NUMBER": Function(1, 1, inline="{0}.__class__ in NUMBERS"),
    "IS_OBJECT": Function(1, 1, inline="{0}.__class__ is dict"),
    "IS_PRIMITIVE": Function(1, 1, inline="{0}.__class__ in PRIMITIVES"),
    "IS_STRING": Function(1, 1, inline="{0}.__class__ is str"),
    # Arrays, sets and objects.
    "ARRAY_AVG": Function(1, 1, arrays.array_average),
    "ARRAY_CONCAT": Function(2, ANY_NUMBER, arrays.array_concat),
    "ARRAY_CONTAINS": Function(2, 3, arrays.array_contains),
    "ARRAY_CONTAINS_ALL": Function(2, ANY_NUMBER, arrays.array_contains_all),
    "ARRAY_CONTAINS_ANY": Function(2, ANY_NUMBER, arrays.array_contains_any),
    "ARRAY_LENGTH": Function(1, 1, arrays.array_length),
    "ARRAY_MAX": Function(1, 1, arrays.array_max),
    "ARRAY_MEDIAN": Function(1, 1, arrays.array_median),
    "ARRAY_MIN": Function(1, 1, arrays.array_min),
    "ARRAY_SLICE": Function(2, 3, arrays.array_slice),
    "ARRAY_SUM": Function(1, 1, arrays.array_sum),
    "CHOOSE": Function(2, ANY_NUMBER, arrays.choose),
    "OBJECTTOARRAY": Function(1, 3, arrays.object_to_array),
    "SETDIFFERENCE": Function(2, 2, arrays.set_difference),
    "SETEQUAL": Function(2, 2, arrays.set_equal),
    "SETINTERSECT": Function(2, 2, arrays.set_intersect),
    "SETUNION": Function(2, 2, arrays.set_union),
    # Dates.
    "AGO": Function(2, 2, dates.ago, needs_context=True),
    "DATETIMEADD": Function(3, 3, dates.date_add),
    "DATETIMEBIN": Function(2, 4, dates.date_bin),
    "DATETIMEDIFF": Function(3, 3, dates.date_difference),
    "DATETIMEFORMAT": Function(2, 2, date_formats.date_format),
    "DATETIMEFROMPARTS": Function(3, 7, dates.date_from_parts),
    "DATETIMEPART": Function(2, 2, dates.date_part),
    "DATETIMETOTICKS": Function(1, 1, dates.date_to_ticks),
    "DATETIMETOTIMESTAMP": Function(1, 1, dates.date_to_timestamp),
    "DAY": Function(1, 1, dates.day),
    "GETCURRENTDATETIME": Function(0, 0, dates.current_date, needs_context=True),
    "GETCURRENTDATETIMESTATIC": Function(0, 0, dates.static_date, needs_context=True),
    "GETCURRENTTICKS": Function(0, 0, dates.current_ticks, needs_context=True),
    "GETCURRENTTICKSSTATIC": Function(0, 0, dates.static_ticks, needs_context=True),
    "GETCURRENTTIMESTAMP": Function(0, 0, dates.current_timestamp, needs_context=True),
    "GETCURRENTTIMESTAMPSTATIC": Function(0, 0, dates.static_timestamp, needs_context=True),
    "MONTH": Function(1, 1, dates.month),
    "NOW": Function(0, 2, dates.now, needs_context=True),
    "TICKSTODATETIME": Function(1, 1, dates.ticks_to_date),
    "TIMESTAMPTODATETIME": Function(1, 1, dates.timestamp_to_date),
    "YEAR": Function(1, 1, dates.year),
    # Spatial.
    "ST_AREA": Function(1, 1, spatial.area, needs_context=True),
    "ST_DISTANCE": Function(2, 2, spatial.distance, needs_context=True),
    "ST_INTERSECTS": Function(2, 2, spatial.intersects, needs_context=True),
    "ST_ISVALID": Function(1, 1, spatial.is_valid, needs_context=True),
    "ST_ISVALIDDETAILED": Function(1, 1, spatial.is_valid_detailed, needs_context=True),
    "ST_WITHIN": Function(2, 2, spatial.within, needs_context=True),
    # Vectors and full text. FullTextScore and RRF are allowed in ORDER BY RANK only (`syntax/order_by_rank.py`).
    "FULLTEXTCONTAINS": Function(2, 2, fulltext.contains, needs_context=True, needs_path=True),
    "FULLTEXTCONTAINSALL": Function(2, ANY_NUMBER, fulltext.contains_all, needs_context=True, needs_path=True),
    "FULLTEXTCONTAINSANY": Function(2, ANY_NUMBER, fulltext.contains_any, needs_context=True, needs_path=True),
    "VECTORDISTANCE": Function(2, 4, vectors.vector_distance, needs_context=True, needs_path=True),
    "_FULLTEXTSCORE": Function(4, 5, scores.full_text_score, needs_context=True, needs_path=True),
    "_FULLTEXTWORDCOUNT": Function(1, 1, scores.word_count, needs_context=True, needs_path=True),
    "_VECTORSCORE": Function(2, 4, scores.vector_score, needs_context=True, needs_path=True),
    # Item and conditional functions.
    "DOCUMENTID": Function(1, 1, conversion.document_id),
    "IIF": Function(3, 3, conversion.if_else),
}

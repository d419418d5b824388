"""The type markers of Cosmos binary JSON: the byte that begins each value, the system strings, and the layouts of
numbers and lengths. A body begins with `PREAMBLE`, which no JSON text can begin with. Integers are little-endian.

The values are those of the clients' own codecs: `JsonBinaryEncoding.TypeMarker` of the .NET client and
`binary_json::markers` of the Rust client.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

PREAMBLE: Final = 0x80

# Below 0x20 the marker is the number. Strings take 0x20 to 0xC6, in ranges.
LITERAL_END: Final = 0x20
SYSTEM_STRING: Final = 0x20
USER_STRING_1: Final = 0x40  # 32 strings of a dictionary that is not part of the body
USER_STRING_2: Final = 0x60  # 8 * 256 more, with a second byte
USER_STRING_END: Final = 0x68

BASE64_1, BASE64_2, BASE64_URL_1, BASE64_URL_2 = 0x71, 0x72, 0x73, 0x74
GUID_LOWER, GUID_UPPER, GUID_QUOTED = 0x75, 0x76, 0x77
HEX_LOWER, HEX_UPPER, DATE_TIME = 0x78, 0x79, 0x7A
PACKED_4, PACKED_5, PACKED_6, PACKED_7_1, PACKED_7_2 = 0x7B, 0x7C, 0x7D, 0x7E, 0x7F

STRING: Final = 0x80  # of 0 to 63 bytes: the length is in the marker
STRING_END: Final = 0xC0
STRING_1, STRING_2, STRING_4 = 0xC0, 0xC1, 0xC2  # the length in so many bytes
REFERENCE_1, REFERENCE_2, REFERENCE_3, REFERENCE_4 = 0xC3, 0xC4, 0xC5, 0xC6  # the place of an earlier string
UINT64: Final = 0xC7

NUMBER_UINT8, NUMBER_INT16, NUMBER_INT32, NUMBER_INT64, NUMBER_DOUBLE = 0xC8, 0xC9, 0xCA, 0xCB, 0xCC
FLOAT32, FLOAT64, FLOAT16 = 0xCD, 0xCE, 0xCF
NULL, FALSE, TRUE, GUID = 0xD0, 0xD1, 0xD2, 0xD3
UINT8, INT8, INT16, INT32, INT64, UINT32 = 0xD7, 0xD8, 0xD9, 0xDA, 0xDB, 0xDC
BINARY_1, BINARY_2, BINARY_4 = 0xDD, 0xDE, 0xDF

# Containers: empty, of one value, with a length in 1, 2 or 4 bytes, and with a length and a count of that width.
ARRAY_0, ARRAY_1, ARRAY_L1, ARRAY_L2, ARRAY_L4, ARRAY_LC1, ARRAY_LC2, ARRAY_LC4 = range(0xE0, 0xE8)
OBJECT_0, OBJECT_1, OBJECT_L1, OBJECT_L2, OBJECT_L4, OBJECT_LC1, OBJECT_LC2, OBJECT_LC4 = range(0xE8, 0xF0)
NUMBERS_C1, NUMBERS_C2, ARRAYS_C1, ARRAYS_C2 = range(0xF0, 0xF4)  # arrays of numbers of one type, and arrays of those

# The system strings, in the order of their markers from 0x20.
SYSTEM_STRINGS: Final = (
    *("$s", "$t", "$v", "_attachments", "_etag", "_rid", "_self", "_ts"),
    *("attachments/", "coordinates", "geometry", "GeometryCollection", "id", "url", "Value", "label"),
    *("LineString", "link", "MultiLineString", "MultiPoint", "MultiPolygon", "name", "Name", "Type"),
    *("Point", "Polygon", "properties", "type", "value", "Feature", "FeatureCollection", "_id"),
)
SYSTEM_STRING_MARKERS: Final = {
    text: bytes([marker]) for marker, text in enumerate(SYSTEM_STRINGS, start=SYSTEM_STRING)
}

# The layout of each number after its marker.
NUMBERS: Final = {
    UINT64: Struct("<Q"),
    NUMBER_UINT8: Struct("<B"),
    NUMBER_INT16: Struct("<h"),
    NUMBER_INT32: Struct("<i"),
    NUMBER_INT64: Struct("<q"),
    NUMBER_DOUBLE: Struct("<d"),
    FLOAT32: Struct("<f"),
    FLOAT64: Struct("<d"),
    FLOAT16: Struct("<e"),
    UINT8: Struct("<B"),
    INT8: Struct("<b"),
    INT16: Struct("<h"),
    INT32: Struct("<i"),
    INT64: Struct("<q"),
    UINT32: Struct("<I"),
}
FLOATS: Final = frozenset([NUMBER_DOUBLE, FLOAT32, FLOAT64, FLOAT16])
# The types of numbers that an array of one type may have, as the format characters of `struct`.
ITEM_FORMATS: Final = {
    UINT8: "B", INT8: "b", INT16: "h", INT32: "i", INT64: "q", UINT32: "I", FLOAT16: "e", FLOAT32: "f", FLOAT64: "d",
}  # fmt: skip

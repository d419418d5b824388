"""Partition keys: their definition, their value in a header or an item, and the effective key (epk) they hash to.

The value type and its equality are in `key_values.py`. An epk is bytes here and upper-case hex only on the wire; the
whole space is [b"", b"\\xff"). Hash V1, V2 and MultiHash give what the released clients compute, since they route by
it. Which partition owns an epk is left to `ranges.py`.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple

import mmh3
import orjson

from armillary.errors import Failure, Kind, bad_request
from armillary.limits import KEY_BYTES_MAX, KEY_LEVELS_MAX
from armillary.model.key_values import NO_KEY as NO_KEY
from armillary.model.key_values import Key as Key
from armillary.model.key_values import KeyComponent as KeyComponent
from armillary.model.key_values import key_forms as key_forms
from armillary.model.key_values import same_component as same_component
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, as_double

HASH, MULTI_HASH = "Hash", "MultiHash"
SPACE_LOW, SPACE_HIGH = b"", b"\xff"
KEY_BYTES_PER_LEVEL = 16  # of an effective key of V2 or MultiHash
EMPTY_KEY = bytes(KEY_BYTES_PER_LEVEL)
# The two top bits are cleared, so that every effective key is below "FF" as the clients compare them.
HASH_V2_MAX = 2**126 - 1
HASH_V1_MAX = 2**32 - 1
_VERSION_NAMES: Final = {"V1": 1, "V2": 2}  # as Java's client writes the version of hierarchical keys

# The service's words, which the clients' own tests look for.
WRONG_COUNT: Final = (
    "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key"
    " field values specified in the document."
)
# Strings of so few characters need no look at their size in bytes.
_SHORT: Final = KEY_BYTES_MAX // 4

KEY_DIFFERS: Final = "PartitionKey extracted from document doesn't match the one specified in the header."
KEY_MISSING: Final = "PartitionKey value must be supplied for this operation."


@dataclass(frozen=True, slots=True)
class PartitionKeyDefinition:
    """A container's partition key definition. Made by `parse`, which validates."""

    paths: tuple[str, ...]
    kind: str = HASH
    version: int = 2
    is_system: bool = False  # a migrated container: items may lack the key, whose value is then ()
    takes_objects: bool = False  # a MongoDB collection: an object is a key too, as its JSON text
    steps: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)
    # The property of a single one-step path, by far the commonest definition.
    _property: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        steps = tuple(parse_path(path) for path in self.paths)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "_property", steps[0][0] if len(steps) == 1 and len(steps[0]) == 1 else None)

    @classmethod
    def parse(cls, definition: Any, *, default_version: int = 2) -> PartitionKeyDefinition:
        """From a container's `partitionKey`; `default_version` applies to kind Hash without a version."""
        if not isinstance(definition, dict):
            raise bad_request("The partitionKey of a container must be an object with paths, kind and version.")
        for name in definition:
            if name not in ("paths", "kind", "version", "systemKey"):
                raise bad_request(
                    f"Unknown property {name!r} in partitionKey; known are paths, kind, version, systemKey."
                )
        paths = definition.get("paths")
        if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
            raise bad_request("partitionKey.paths must be a list of at least one path, such as /department.")
        kind = definition.get("kind", HASH)
        if kind not in (HASH, MULTI_HASH):
            raise bad_request(f"partitionKey.kind must be {HASH} or {MULTI_HASH}, not {kind!r}.")
        if len(paths) > (KEY_LEVELS_MAX if kind == MULTI_HASH else 1):
            raise bad_request(
                f"Too many partition key paths: {len(paths)} for kind {kind};"
                f" {HASH} takes one, {MULTI_HASH} up to {KEY_LEVELS_MAX}."
            )
        version = definition.get("version", 2 if kind == MULTI_HASH else default_version)
        version = _VERSION_NAMES.get(version, version) if isinstance(version, str) else version
        if type(version) is not int or version not in (1, 2) or (kind == MULTI_HASH and version != 2):
            raise bad_request(f"partitionKey.version {version!r} is not valid; {HASH} has 1 and 2, {MULTI_HASH} has 2.")
        is_system = definition.get("systemKey", False)
        if type(is_system) is not bool or (is_system and kind != HASH):
            raise bad_request(f"partitionKey.systemKey must be true or false, and true only with kind {HASH}.")
        for path in paths:
            _check_key_path(path)
        return cls(tuple(paths), kind, version, is_system)

    def to_json(self) -> dict[str, Any]:
        definition: dict[str, Any] = {"paths": list(self.paths), "kind": self.kind, "version": self.version}
        if self.is_system:
            definition["systemKey"] = True
        return definition

    def extract(self, document: Mapping[str, Any]) -> Key:
        """The key of an item. A missing value, an object or an array counts as undefined."""
        if self._property is not None:
            value = document.get(self._property, UNDEFINED)
            if type(value) is str and len(value) <= _SHORT:
                return Key((value,))
            component = self._component(value)
            return NO_KEY if self.is_system and component is UNDEFINED else Key((component,))
        key = Key([self._component(_walk(document, steps)) for steps in self.steps])
        return NO_KEY if self.is_system and len(key) == 1 and key[0] is UNDEFINED else key

    def parse_header(self, text: str | bytes) -> Key:
        """Parse a key from a request header: a JSON array. The caller checks the number of components.

        `{}` is undefined. `[]` and `[[]]` are the key without components: the empty key of a migrated container, no key
        at all elsewhere.
        """
        try:
            parts = orjson.loads(text)
        except ValueError:
            raise bad_request(f"Partition key {_excerpt(text)} is not a JSON array.") from None
        if type(parts) is not list:
            raise bad_request(f"Partition key {_excerpt(text)} is not a JSON array.")
        if len(parts) == 1:
            part = parts[0]
            if type(part) is str and len(part) <= _SHORT:
                return Key((part,))
            if type(part) is list and not part:
                return NO_KEY
        for part in parts:
            if type(part) is list or (type(part) is dict and part):
                raise bad_request(
                    f"Partition key {_excerpt(text)} is not valid: a component is a string, a number, true, false,"
                    " null, or {} for undefined."
                )
        return Key([self._component(part) for part in parts])

    def key_of_parts(self, parts: Iterable[Any]) -> Key:
        """A key, or a prefix of one, from the values at its paths. A value that is not a scalar counts as undefined."""
        return Key([self._component(part) for part in parts])

    def check_full(self, key: Key) -> None:
        """Refuse a key that lacks a component of its paths, or has too many."""
        if len(key) != len(self.paths) and not (self.is_system and not key):
            raise Failure(Kind.KEY_MISMATCH, WRONG_COUNT)

    def effective_key(self, key: Key) -> bytes:
        """The place of a key in the hash space. A prefix of a hierarchical key gives a prefix of that."""
        try:
            if len(key) == 1:
                return hash_v2(key[0]) if self.version == 2 else _effective_v1(key[0])
            # The empty key of a migrated container is the lowest point of the space.
            return b"".join([hash_v2(component) for component in key])
        except UnicodeEncodeError:
            raise bad_request("A partition key cannot hold half of a surrogate pair; send valid Unicode.") from None

    def stored_key(self, key: Key) -> bytes:
        """The epk under which items with a full key are stored. The empty key of a migrated container has no hash; it
        gets a value of full length, to keep stored keys prefix-free."""
        return self.effective_key(key) if key else EMPTY_KEY

    def prefix_range(self, key: Key) -> tuple[bytes, bytes]:
        """The effective keys of all items whose key begins with this one: [low, high)."""
        if not key:
            # Nothing lies between "" and "00", which is how the clients write the range of the empty key.
            return (SPACE_LOW, b"\x00") if self.is_system else (SPACE_LOW, SPACE_HIGH)
        if len(key) > len(self.paths):
            self.check_full(key)
        low = self.effective_key(key)
        return low, low + SPACE_HIGH

    def is_one_key(self, low: bytes, high: bytes) -> bool:
        """Whether a range of effective keys is that of one full key as SDKs write it: from its hash to the next."""
        if self.version != 2 or len(low) != KEY_BYTES_PER_LEVEL * len(self.paths) or len(high) != len(low):
            return False
        return int.from_bytes(high, "big") == int.from_bytes(low, "big") + 1

    def is_unsure_of(self, pinned: Iterable[Key]) -> bool:
        """Whether a filter on these keys may match others too: an object counts as undefined in a filter, and is a
        key of its own in a MongoDB collection."""
        return self.takes_objects and any(UNDEFINED in key for key in pinned)

    def component(self, value: Any) -> KeyComponent:
        """The key component of a value."""
        return self._component(value)

    def _component(self, value: Any) -> KeyComponent:
        kind = type(value)
        if kind is str:
            if len(value) > _SHORT and len(value.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
                raise bad_request(f"The partition key value is longer than {KEY_BYTES_MAX} bytes; use a shorter one.")
            return value  # type: ignore[no-any-return]
        if kind is int:
            # Numbers are doubles: beyond this, keys that hash alike must also be equal.
            return value if -EXACT_INT_MAX <= value <= EXACT_INT_MAX else _finite(as_double(value))
        if kind is float:
            return _finite(value) + 0.0 if self.takes_objects else _finite(value)  # 0 and -0 are one key there
        if value is None or kind is bool:
            return value  # type: ignore[no-any-return]
        return _object_key(value) if self.takes_objects and kind is dict else UNDEFINED


_to_json = json.JSONEncoder(separators=(",", ":")).encode


def to_header(key: Key) -> str:
    """A key as `parse_header` reads it, in ASCII."""
    return _to_json([{} if component is UNDEFINED else component for component in key])


class Step(NamedTuple):
    """One step of a path. An unquoted `*`, `?` or `[]` is a wildcard where the caller allows one."""

    name: str
    is_quoted: bool


def parse_path(path: str) -> tuple[str, ...]:
    """The property names of a path: `/a/b`, `/"department name"`, `/'le/vel'/x`."""
    return tuple([step.name for step in path_steps(path)])


def path_steps(path: str) -> list[Step]:
    """The steps of a path, refused with the position where it goes wrong.

    A backslash keeps a quote from ending the step and stays in the name, and blanks around an unquoted name do not
    count: the clients read paths so, and a name read differently here would make every key of the container differ.
    """
    steps: list[Step] = []
    at, end = 0, len(path)
    while at < end or not steps:
        if path[at : at + 1] != "/" or at + 1 == end:
            raise _bad_path(path, at)
        at += 1
        quote = path[at]
        if quote in "\"'":
            close = path.find(quote, at + 1)
            while close > 0 and path[close - 1] == "\\":
                close = path.find(quote, close + 1)
            if close < 0:
                raise _bad_path(path, at)
            steps.append(Step(path[at + 1 : close], True))
            at = close + 1
        else:
            close = path.find("/", at)
            close = end if close < 0 else close
            name = path[at:close].strip()
            if not name:
                raise _bad_path(path, at)
            steps.append(Step(name, False))
            at = close
    return steps


def _bad_path(path: str, position: int) -> Failure:
    return bad_request(
        f"The path '{path}' could not be accepted, failed near position '{position}'. A path is made of steps such as"
        ' /name or /"quoted name" and has no trailing slash.',
        position=position,
    )


# Without quotes a name has neither blanks nor wildcards. The service documents letters, digits and underscores only; of
# the rest, its clients' tests show no more than the blank refused.
_is_plain_name = re.compile(r"(?!\[\]$)[^\s*?]+").fullmatch


def _check_key_path(path: str) -> None:
    position = 0
    try:
        for step in path_steps(path):
            if not step.is_quoted and not _is_plain_name(step.name):
                position = path.index(step.name)
                break
        else:
            return
    except Failure as failure:
        position = failure.details["position"]
    raise bad_request(
        f"The partition key component definition path '{path}' could not be accepted, failed near position"
        f" '{position}'. Partition key paths must contain only valid characters and not contain a trailing slash or"
        " wildcard character. A name with any of these goes in double quotes."
    )


def _walk(document: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if type(document) is not dict or step not in document:
            return UNDEFINED
        document = document[step]
    return document


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise bad_request("The partition key value is beyond the range of a double; use a finite number.")
    return number


# A number that JSON has no place for counts as the nearest double, since equal numbers must be equal keys.
_NUMBER_TAGS: Final = ("$numberLong", "$numberDecimal")
_OBJECT_CHARACTERS_MAX = 256


def _object_key(value: dict[str, Any]) -> KeyComponent:
    if len(value) == 1:
        for tag, text in value.items():
            if tag in _NUMBER_TAGS and type(text) is str:
                number = _number(text)
                if math.isfinite(number):
                    return int(number) if number.is_integer() and abs(number) <= EXACT_INT_MAX else number
    text = orjson.dumps(_canonical(value)).decode()
    return text if len(text) <= _OBJECT_CHARACTERS_MAX else f"{{sha256:{sha256(text.encode()).hexdigest()}}}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _canonical(value: Any) -> Any:
    """Equal values are one text: 1.0 is 1, and NaN is NaN of whatever type."""
    kind = type(value)
    if kind is float and value.is_integer() and abs(value) <= EXACT_INT_MAX:
        return int(value)
    if kind is dict:
        if value.get("$numberDecimal") in ("NaN", "Infinity", "-Infinity"):
            return {"$numberDouble": value["$numberDecimal"]}
        return {name: _canonical(each) for name, each in value.items()}
    return [_canonical(each) for each in value] if kind is list else value


def _excerpt(text: str | bytes) -> str:
    """An excerpt of a header for a message."""
    shown = ascii(text[:100].decode("utf-8", "replace") if isinstance(text, bytes) else text[:100])
    return shown if len(text) <= 100 else shown + "..."


_hash_128 = mmh3.mmh3_x64_128_uintdigest
_hash_32 = mmh3.mmh3_32_uintdigest
_pack_hashed_number = struct.Struct("<cd").pack


def hash_v2(component: KeyComponent) -> bytes:
    """The effective key of one component, and of a key that has no other."""
    if type(component) is str:
        hashed = b"\x08%b\xff" % component.encode()
    else:
        hashed = _hashed_scalar(component)
    # The clients reverse the 16 bytes of the little-endian hash, which is the same number big-endian.
    return (_hash_128(hashed) & HASH_V2_MAX).to_bytes(16, "big")


def _hashed_scalar(component: KeyComponent) -> bytes:
    if component is UNDEFINED:
        return b"\x00"
    if component is None:
        return b"\x01"
    if component is False:
        return b"\x02"
    if component is True:
        return b"\x03"
    return _pack_hashed_number(b"\x05", as_double(component))  # type: ignore[arg-type]


# V1 hashes and keeps only the beginning of a string: keys that begin alike are one logical partition, as the service
# documents. Characters are code points, as in Python; JavaScript counts UTF-16 units and may ask a neighbouring range.
_V1_CHARACTERS = 100
_V1_BYTES = 100
_PLUS_ONE = bytes((byte + 1) & 0xFF for byte in range(256))


def _effective_v1(component: KeyComponent) -> bytes:
    if type(component) is str:
        text = component[:_V1_CHARACTERS].encode()
        hashed = b"\x08" + text + b"\x00"
        if len(text) <= _V1_BYTES:
            kept = b"\x08" + text.translate(_PLUS_ONE) + b"\x00"
        else:
            kept = b"\x08" + text[: _V1_BYTES + 1].translate(_PLUS_ONE)
    else:
        hashed = _hashed_scalar(component)
        kept = hashed if len(hashed) == 1 else encode_number_v1(as_double(component))  # type: ignore[arg-type]
    return encode_number_v1(float(_hash_32(hashed))) + kept


def encode_number_v1(number: float) -> bytes:
    """A number in an effective key of V1: 8 bits, then groups of 7 whose lowest bit says that another follows."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    mask = 2**64 - 1
    payload = (-bits & mask) if bits >> 63 else bits ^ (1 << 63)
    encoded = bytearray((0x05, payload >> 56))
    payload = payload << 8 & mask
    while payload:
        encoded.append(payload >> 56 | 1)
        payload = payload << 7 & mask
    if len(encoded) == 2:
        encoded.append(0)
    encoded[-1] &= 0xFE
    return bytes(encoded)

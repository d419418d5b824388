"""How messages of classes are sent: dataclasses, named tuples, members of enumerations and exceptions that the table of
the codec names. The encoder and the decoders of a class are generated as Python source from its fields, once, because
every request to another process passes them several times.

A message names its class and the fields that it has; the rest have their default. This head is the same bytes for each
message with the same fields, so a decoder is looked up by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import MISSING, dataclass, is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any, Final, get_type_hints

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model.messages import forms
from armillary.model.messages.forms import Append, Decode, Encode, Malformed, length_at
from armillary.model.messages.type_checks import TypeChecks
from armillary.model.sendable import OPTIONAL, sent_fields

_NO_DEFAULT: Final = object()
_SEPARATOR: Final = "\0"
_OPTIONAL_MARK: Final = "?"
_SINGLE: Final = (type(None), bool)  # values that are compared by identity


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: Any
    default: Any = _NO_DEFAULT  # or a factory
    is_factory: bool = False
    is_optional: bool = False  # receivers that do not know the field may leave it out

    @property
    def is_left_out(self) -> bool:
        """Whether it is not sent if it has its default."""
        return not self.is_factory and type(self.default) in (type(None), bool, int, str, bytes, float)


class ClassForms:
    def __init__(self, names: Mapping[str, str]) -> None:
        self._places = names
        self._names = {place: name for name, place in names.items()}
        assert len(self._names) == len(names), "one name for each class"
        self._classes: dict[str, type] = {}  # by short name
        self._encoders: MutableMapping[type, Encode] = {}
        self._decoders: list[Decode] = []
        self._by_head: dict[bytes, Decode] = {}  # generated decoders
        self._members: dict[bytes, Any] = {}  # of enumerations, by what is sent of them

    def register(self, encoders: MutableMapping[type, Encode], decoders: list[Decode]) -> None:
        self._encoders, self._decoders = encoders, decoders
        decoders[forms.RECORD] = self._decode_record
        decoders[forms.MEMBER] = self._decode_member

    # Names.

    def name_of(self, kind: type) -> str:
        """The short name of a class. A kind of Failure that has none is sent as a Failure."""
        name = self._names.get(f"{kind.__module__}:{kind.__qualname__}")
        if name is None:
            if issubclass(kind, Failure) and kind is not Failure:
                return self.name_of(Failure)
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be sent: it has no name in messages")
        self._classes.setdefault(name, kind)
        return name

    def class_of(self, name: str) -> type:
        kind = self._classes.get(name)
        if kind is None:
            place = self._places.get(name)
            if place is None:
                raise Malformed(f"'{name[:60]}' is unknown")
            module, _, qualname = place.partition(":")
            kind = getattr(import_module(module), qualname)
            self._classes[name] = kind
        return kind

    # Encoding.

    def encoder(self, kind: type, encoders: MutableMapping[type, Encode]) -> Encode:
        name = self.name_of(kind)
        if issubclass(kind, Enum):
            return _member_encoder(name)
        fields = fields_of(kind)
        left_out = [each for each in fields if each.is_left_out]
        heads: dict[int, bytes] = {}

        def head(mask: int) -> bytes:
            """`mask`: which of the fields that may be left out are there."""
            absent = {each.name for place, each in enumerate(left_out) if not mask >> place & 1}
            heads[mask] = made = _head(name, [each for each in fields if each.name not in absent])
            return made

        known: dict[str, Any] = {"encoders": encoders, "heads": heads, "head": head}
        lines = ["def encode(value, append):"]
        lines += [f"    field_{place} = value.{each.name}" for place, each in enumerate(fields)]
        bits: list[str] = []
        for place, each in enumerate(fields):
            if each.is_left_out:
                known[f"default_{place}"] = each.default
                if type(each.default) in _SINGLE or isinstance(each.default, float):
                    lines.append(f"    is_{place} = field_{place} is not default_{place}")
                else:
                    same = f"field_{place} == default_{place} and type(field_{place}) is type(default_{place})"
                    lines.append(f"    is_{place} = not ({same})")
                bits.append(f"is_{place} << {len(bits)}" if bits else f"is_{place}")
        lines.append(f"    mask = {' | '.join(bits) or 0}")
        lines.append("    append(heads.get(mask) or head(mask))")
        for place, each in enumerate(fields):
            indent = "    "
            if each.is_left_out:
                lines.append(f"    if is_{place}:")
                indent += "    "
            lines.append(f"{indent}encoders[type(field_{place})](field_{place}, append)")
        return _compiled(lines, "encode", known)

    # Decoding.

    def _decode_record(self, message: bytes, at: int, depth: int) -> tuple[Any, int]:
        size, at = length_at(message, at)
        end = at + size
        head = message[at:end]
        decode = self._by_head.get(head)
        if decode is None:
            decode = self._generate(head)
            if len(self._by_head) >= limits.MESSAGE_FORMS_MAX:
                self._by_head.clear()
            self._by_head[head] = decode
        if depth <= 0:
            raise Malformed("it is nested too deeply")
        return decode(message, end, depth - 1)

    def _generate(self, head: bytes) -> Decode:
        """The decoder of messages with this head."""
        name, *sent = head.decode().split(_SEPARATOR)
        kind = self.class_of(name)
        if issubclass(kind, Enum):
            raise Malformed("a value stands for a record")
        fields = {each.name: each for each in fields_of(kind)}
        known: dict[str, Any] = {"decoders": self._decoders, "kind": kind, "Malformed": Malformed}
        checks = TypeChecks(known)
        lines = ["def decode(message, at, depth):"]
        values: dict[str, str] = {}
        for place, marked in enumerate(sent):
            each = fields.get(marked.removeprefix(_OPTIONAL_MARK))
            lines.append(f"    field_{place}, at = decoders[message[at]](message, at + 1, depth)")
            if each is None:
                if not marked.startswith(_OPTIONAL_MARK):
                    raise Malformed(f"'{name}' has a field '{marked[:60]}', which is unknown")
                continue
            if each.name in values:
                raise Malformed(f"'{name}' has a field twice")
            check = checks.check(each.type, f"field_{place}")
            if check:
                lines.append(f"    if not {check}:")
                lines.append(f"        raise Malformed({f'the field {each.name} of {name} has a wrong type'!r})")
            values[each.name] = f"field_{place}"
        for place, each in enumerate(fields.values()):
            if each.name in values:
                continue
            if each.default is _NO_DEFAULT:
                raise Malformed(f"'{name}' has no field '{each.name}'")
            known[f"default_{place}"] = each.default
            values[each.name] = f"default_{place}()" if each.is_factory else f"default_{place}"
        lines += _construction(kind, values, known)
        lines.append("    return made, at")
        return _compiled(lines, "decode", known)

    def _decode_member(self, message: bytes, at: int, depth: int) -> tuple[Any, int]:
        size, at = length_at(message, at)
        end = at + size
        sent = message[at:end]
        member = self._members.get(sent)
        if member is None:
            name, _, member_name = sent.decode().partition(_SEPARATOR)
            kind = self.class_of(name)
            if not issubclass(kind, Enum) or member_name not in kind.__members__:
                raise Malformed("a member of an enumeration is unknown")
            member = self._members[sent] = kind[member_name]
        return member, end


def fields_of(kind: type) -> list[_Field]:
    """What is sent of a class. Raises TypeError if nothing can be."""
    if issubclass(kind, Failure):
        hints = get_type_hints(_FailureFields)
        return [_Field(name, hint) for name, hint in hints.items()]
    if issubclass(kind, Exception):
        sent = getattr(kind, "SENT", None)
        if sent is None:
            raise TypeError(f"{kind.__qualname__} does not say what is sent of it")
        return [_Field(name, hint) for name, hint in sent.items()]
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        return [_field(each, hints[each.name]) for each in sent_fields(kind) if each.init]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        defaults: Mapping[str, Any] = getattr(kind, "_field_defaults", {})
        return [_Field(name, hints[name], defaults.get(name, _NO_DEFAULT)) for name in kind._fields]
    raise TypeError(f"{kind.__qualname__} is neither a dataclass nor a named tuple nor an enumeration")


class _FailureFields:
    kind: Kind
    message: str
    retry_after_ms: int | None
    charge_ru: float
    details: dict[Any, Any]
    is_metered: bool


def _field(each: Any, hint: Any) -> _Field:
    is_optional = OPTIONAL in each.metadata
    if each.default_factory is not MISSING:
        return _Field(each.name, hint, each.default_factory, True, is_optional)
    return _Field(each.name, hint, _NO_DEFAULT if each.default is MISSING else each.default, False, is_optional)


def _construction(kind: type, values: Mapping[str, str], known: dict[str, Any]) -> list[str]:
    """The lines that make the object of its values."""
    named = ", ".join([f"{name}={value}" for name, value in values.items()])
    if issubclass(kind, Failure):
        flag = values["is_metered"]
        named = ", ".join([f"{name}={value}" for name, value in values.items() if name != "is_metered"])
        return [f"    made = kind({named})", f"    made.is_metered = {flag}"]
    if not is_dataclass(kind) or hasattr(kind, "__post_init__"):
        return [f"    made = kind({named})"]
    lines = ["    made = new(kind)"]
    known["new"] = object.__new__
    is_frozen = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if is_frozen:
        known["set_field"] = object.__setattr__
    for name, value in [*values.items(), *_local_values(kind, known)]:
        lines.append(f"    set_field(made, {name!r}, {value})" if is_frozen else f"    made.{name} = {value}")
    return lines


def _local_values(kind: Any, known: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields that are not sent, with what they have where the message arrives."""
    found = []
    for place, each in enumerate(kind.__dataclass_fields__.values()):
        if not each.metadata.get("is_local"):
            continue
        if each.default_factory is MISSING:
            found.append((each.name, "None"))
        else:
            known[f"local_{place}"] = each.default_factory
            found.append((each.name, f"local_{place}()"))
    return found


def _head(name: str, fields: list[_Field]) -> bytes:
    marked = [_OPTIONAL_MARK * each.is_optional + each.name for each in fields]
    sent = _SEPARATOR.join([name, *marked]).encode()
    return bytes([forms.RECORD]) + forms.length(len(sent)) + sent


def _member_encoder(name: str) -> Encode:
    sent: dict[Any, bytes] = {}

    def encode(member: Any, append: Append) -> None:
        known = sent.get(member)
        if known is None:
            text = f"{name}{_SEPARATOR}{member.name}".encode()
            known = sent[member] = bytes([forms.MEMBER]) + forms.length(len(text)) + text
        append(known)

    return encode


def _compiled(lines: list[str], name: str, known: dict[str, Any]) -> Callable[..., Any]:
    namespace = dict(known)
    source = "\n".join(lines)
    exec(compile(source, f"<{name} of messages>", "exec"), namespace)  # noqa: S102 (of our own making: names of fields)
    made: Callable[..., Any] = namespace[name]
    return made

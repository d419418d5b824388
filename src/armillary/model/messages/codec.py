"""The codec of messages between the processes of a cluster: what is asked of a partition that another process holds,
and what it answers. Each value is a tag of one byte and its content; any value of any class that is known arrives as it
was: tuples are not lists, -0.0 is not 0.0, an Int64 is not an int.

Classes are known by short names (`Codec` is given a table), their fields by their own names. A message of a newer
version that has a field which is not known here is refused, unless the field is marked OPTIONAL; a field that an older
version lacks has its default. Fields that have their default are not sent, so defaults of sent fields never change.

What cannot be read is refused with a Failure and no other exception, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model.messages import bson_forms, plain_forms
from armillary.model.messages.classes import ClassForms
from armillary.model.messages.forms import Decode, Encode, Malformed, refuse_tag

FORMAT = 1  # the first byte of every message


class _Encoders(dict[type, Encode]):
    """By the exact class of a value. Classes of the table are prepared when the first value of them is sent."""

    def __init__(self, classes: ClassForms) -> None:
        super().__init__()
        self._classes = classes

    def __missing__(self, kind: type) -> Encode:
        made = self[kind] = self._classes.encoder(kind, self)
        return made


class Codec:
    def __init__(self, names: Mapping[str, str]) -> None:
        """`names`: where each class is, as `module:name`, by the short name that stands for it in messages. They are
        imported when they are needed."""
        classes = ClassForms(names)
        self._encoders = _Encoders(classes)
        self._decoders: list[Decode] = [refuse_tag] * 256
        plain_forms.register(self._encoders, self._decoders)
        bson_forms.register(self._encoders, self._decoders)
        classes.register(self._encoders, self._decoders)

    def encode(self, value: Any) -> bytes:
        """Raises TypeError for a value of a class that is not known, and a Failure for one that is too large."""
        parts: list[bytes] = [_HEAD]
        try:
            self._encoders[type(value)](value, parts.append)
        except RecursionError:
            raise _too_large("is nested too deeply") from None
        encoded = b"".join(parts)
        if len(encoded) > limits.MESSAGE_BYTES_MAX:
            raise _too_large(f"has {len(encoded)} bytes, and {limits.MESSAGE_BYTES_MAX} are the most")
        return encoded

    def decode(self, encoded: bytes) -> Any:
        if len(encoded) > limits.MESSAGE_BYTES_MAX:
            raise malformed("it is too large")
        try:
            if encoded[0] != FORMAT:
                raise Malformed(f"its format is {encoded[0]}, and {FORMAT} is known")
            value, end = self._decoders[encoded[1]](encoded, 2, limits.MESSAGE_DEPTH_MAX)
        except Malformed as reason:
            raise malformed(str(reason)) from None
        except Exception as error:  # the bytes may be anything, and classes of values have exceptions of their own
            raise malformed(type(error).__name__) from None
        if end != len(encoded):  # content that ends too early was read as if it were shorter
            raise malformed("its length is wrong")
        return value


_HEAD = bytes([FORMAT])


def malformed(reason: str) -> Failure:
    return Failure(Kind.INTERNAL, f"A message of another process of the cluster cannot be read: {reason}.")


def _too_large(reason: str) -> Failure:
    return Failure(Kind.TOO_LARGE, f"What would be sent to another process of the cluster {reason}.")

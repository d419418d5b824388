"""Small failures of the wire: what cannot even be answered, and the codes that the protocol has for messages."""

from __future__ import annotations

from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal


class Hopeless(Exception):
    """What came is no message of this protocol, so nothing after it can be trusted: the connection ends."""


def bad_message(code: int, text: str) -> Failure:
    """A whole frame with something wrong inside: it is answered, and the connection goes on."""
    return refusal(code, text)

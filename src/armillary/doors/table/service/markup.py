"""The XML of service properties, statistics and access policies: small, flat, and read without anything that XML could
do beyond elements and text."""

from __future__ import annotations

import codecs
import re
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from armillary.doors.table.errors import refused
from armillary.errors import Failure

_BYTES_MAX: Final = 64 * 1024
_DEPTH_MAX: Final = 8
_DECLARATION: Final = b'<?xml version="1.0" encoding="utf-8"?>'


def parse(body: bytes, root: str) -> Element:
    """The root element of a body, without namespaces."""
    if len(body) > _BYTES_MAX:
        raise bad_document("it is too large")
    text = _decoded(body)
    if "<!" in text:
        raise bad_document("it has a declaration, a comment or a CDATA section")
    try:
        # Characters, not bytes: the parser then ignores the encoding that the document declares, and reads just what
        # was looked through above.
        found = ElementTree.fromstring(text)  # noqa: S314 (nothing is declared in it, so nothing can be expanded)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise bad_document("it is not well-formed") from None
    _check(found, 1)
    if found.tag != root:
        raise bad_document(f"its root is not {root}")
    return found


def _decoded(body: bytes) -> str:
    """UTF-16 if a byte order mark says so, and UTF-8 otherwise, whatever encoding the document declares."""
    encoding = "utf-16" if body[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        raise bad_document("it is neither UTF-8 nor UTF-16 with a byte order mark") from None
    if "\0" in text:  # UTF-16 or UTF-32 that does not say so
        raise bad_document("it is neither UTF-8 nor UTF-16 with a byte order mark")
    return text


def _check(element: Element, depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise bad_document("it is nested too deep")
    element.tag = re.sub(r"\A\{[^}]*\}", "", element.tag)
    for child in element:
        _check(child, depth + 1)


def children(element: Element, known: frozenset[str]) -> dict[str, Element]:
    """Its children by name, each at most once; others than the known ones are refused."""
    found: dict[str, Element] = {}
    for child in element:
        if child.tag not in known:
            raise bad_document(f"{element.tag} has the unknown element {child.tag[:40]}")
        if child.tag in found:
            raise bad_document(f"{element.tag} has {child.tag} twice")
        found[child.tag] = child
    return found


def text_of(element: Element | None) -> str:
    return (element.text or "").strip() if element is not None else ""


def render(root: Element) -> bytes:
    text: str = ElementTree.tostring(root, encoding="unicode")
    return _DECLARATION + text.encode()


def add(parent: Element, name: str, text: str | None = None) -> Element:
    child = ElementTree.SubElement(parent, name)
    child.text = text
    return child


def bad_document(reason: str) -> Failure:
    return refused("InvalidXmlDocument", f"XML specified is not syntactically valid: {reason}.")

"""Refusals in the words of the Table protocol: clients look for its codes and for the beginnings of its texts. The
table from every Kind to a status is in `errors.py`; here are the finer codes that only this door knows.
"""

from __future__ import annotations

from armillary.errors import Failure, Kind

BAD_INPUT = "One of the input values is invalid."
# What Azure Storage says in its place.
STORAGE_BAD_INPUT = "One of the request inputs is not valid."
STORAGE_BAD_VALUE = "An error occurred while processing this request."


def refused(code: str, message: str, kind: Kind = Kind.BAD_REQUEST) -> Failure:
    return Failure(kind, message, details={"table_code": code})


def bad_input(reason: str, storage_text: str = STORAGE_BAD_INPUT) -> Failure:
    details = {"table_code": "InvalidInput", "storage_text": storage_text}
    return Failure(Kind.BAD_REQUEST, f"{BAD_INPUT} {reason}", details=details)


def bad_url(reason: str) -> Failure:
    return refused("InvalidInput", f"Request url is invalid. {reason}")

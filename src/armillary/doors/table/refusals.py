"""Refusals in the words of the Table protocol: clients look for its codes and for the beginnings of its texts. The
table from every Kind to a status is in `errors.py`; here are the finer codes that only this door knows.
"""

from __future__ import annotations

from armillary.errors import Failure, Kind

BAD_INPUT = "One of the input values is invalid."


def refused(code: str, message: str, kind: Kind = Kind.BAD_REQUEST) -> Failure:
    return Failure(kind, message, details={"table_code": code})


def bad_input(reason: str) -> Failure:
    return refused("InvalidInput", f"{BAD_INPUT} {reason}")


def bad_url(reason: str) -> Failure:
    return refused("InvalidInput", f"Request url is invalid. {reason}")

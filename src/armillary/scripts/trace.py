"""What a run of a script has done, step by step: each read and write with what came of it and what it cost. Kept for
whoever wants to see it; the steps are done by `calls.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Step:
    operation: str  # create, read, query, ...
    subject: str  # the item's id, or the text of the query
    status: int
    items: int | None  # of a page
    charge_ru: float

    def to_json(self) -> dict[str, Any]:
        told = {"operation": self.operation, "subject": self.subject, "status": self.status}
        if self.items is not None:
            told["items"] = self.items
        return {**told, "chargeRu": round(self.charge_ru, 2)}


Trace = list[Step]


def step_of(asked: dict[str, Any], answer: dict[str, Any], items: int | None, charge_ru: float) -> Step:
    """A call as the script made it, and what it was answered."""
    error = answer.get("error")
    status = error["number"] if error is not None else answer["options"]["statusCode"]
    return Step(asked["verb"], _subject(asked)[:_CHARACTERS_MAX], status, items, charge_ru)


def _subject(asked: dict[str, Any]) -> str:
    body, query, link = asked.get("body"), asked.get("query"), asked["link"]
    if isinstance(query, dict):
        return str(query.get("query"))
    if isinstance(body, dict):
        return str(body.get("id", ""))
    return "" if asked["verb"] == "feed" else str(link).rstrip("/").rpartition("/")[2]

"""The advice as `armillary advise` prints it: the verdict, candidates side by side, reasons, and what was assumed.
Lines fit 80 columns.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.insight.advice.gates import size_text
from armillary.insight.advice.ranking import WORDS
from armillary.tools.foresight.inputs import COLUMNS, say_points, say_wrapped
from armillary.tools.screen import Screen, counted, one_line, size

_KEY_CHARACTERS: Final = 24
_LISTED_MAX: Final = 12
_REASONED_MAX: Final = 4
_UNKNOWN: Final = "–"


def draw_advice(screen: Screen, content: dict[str, Any]) -> None:
    say_wrapped(screen, one_line(content["text"]))
    rows = content["rows"]
    say_wrapped(
        screen,
        f"By {counted(rows['read'], 'row')} of {size_text(rows['itemBytes'] or 0)} on average"
        + (f", {counted(content['inputs']['captured'], 'captured request')}" if content["inputs"]["captured"] else "")
        + f", for {size_text(content['inputs']['horizonBytes'] or 0)}.",
    )
    say_points(screen, "What each is good for", content["conditions"])
    if content["candidates"]:
        screen.say("")
        _draw_table(screen, content)
    for each in content["candidates"][:_REASONED_MAX]:
        _draw_reasons(screen, each)
    others = content["candidates"][_REASONED_MAX:_LISTED_MAX]
    say_points(
        screen, "Of the other keys", [f"{one_line(each['key'])}: {'; '.join(each['figures'])}" for each in others]
    )
    say_points(screen, "What would change the verdict", content["wouldChange"])
    say_points(screen, "What the figures rest on", list(content["restsOn"].values()))
    say_points(screen, "Assumptions", content["assumptions"])
    say_points(screen, "Warnings", content["warnings"])


def _draw_table(screen: Screen, content: dict[str, Any]) -> None:
    header = ("key", "verdict", "RU/s", "a month", "largest", "full day", "visits")
    widths = (_KEY_CHARACTERS, 10, 9, 9, 8, 8, 6)
    screen.heading(_line(header, widths))
    listed = content["candidates"][:_LISTED_MAX]
    for each in listed:
        scores = each["scores"]
        days = scores["daysToLimit"]
        screen.say(
            _line(
                (
                    one_line(each["key"]),
                    each["verdict"],
                    f"{each['requiredRu']:,}" if each["requiredRu"] is not None else _UNKNOWN,
                    f"{each['monthly']['total']:,.0f}" if each["monthly"] is not None else _UNKNOWN,
                    size(int(scores["largestBytes"]["value"] or 0)),
                    _day(days, content["inputs"]["horizonDays"]),
                    f"{scores['fanOut']['value']:.1f}",
                ),
                widths,
            )
        )
    left = len(content["candidates"]) - len(listed) + content["dropped"]
    if left:
        screen.say(f"{left} more are left out (--json has those that no other is better than).")
    prices = content["inputs"]["prices"]
    say_wrapped(screen, f"Amounts in {prices['currency']}, prices of {prices['asOf']}: {prices['source']}.")


def _day(days: dict[str, float] | None, horizon_days: float) -> str:
    """A dash: not within the horizon."""
    return f"{days['value']:,.0f}" if days is not None and days["value"] <= horizon_days else _UNKNOWN


def _line(cells: tuple[str, ...], widths: tuple[int, ...]) -> str:
    """Columns of fixed widths, numbers to the right; what is too long is cut."""
    shown = [cell if len(cell) <= width else cell[: width - 1] + "…" for cell, width in zip(cells, widths, strict=True)]
    parts = [
        cell.ljust(width) if index < 2 else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(shown, widths, strict=True))
    ]
    return " ".join(parts)[:COLUMNS].rstrip()


def _draw_reasons(screen: Screen, candidate: dict[str, Any]) -> None:
    screen.say("")
    say_wrapped(screen, f"{one_line(candidate['key'])}: {WORDS[candidate['verdict']]}")
    for reason in candidate["reasons"]:
        example = f" ({one_line(reason['example'])})" if reason["example"] else ""
        say_wrapped(screen, one_line(reason["text"]) + example, "  + " if reason["for"] else "  - ")
    say_wrapped(screen, "; ".join(candidate["figures"]), "    ")

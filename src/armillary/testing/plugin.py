"""The plugin for pytest (entry point `pytest11`): fixtures with a server and the clients of its protocols, and the
marker `armillary` with settings of the server. pytest loads it in every project that has Armillary installed, so it
imports nothing of the server and no client until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from azure.cosmos import ContainerProxy, CosmosClient, DatabaseProxy
    from azure.data.tables import TableClient, TableServiceClient
    from pymongo import MongoClient

    from armillary.testing.controls import Controls
    from armillary.testing.server_process import ServerProcess

_MARKER: Final = (
    "armillary(**settings): settings of the server that the test's fixtures are connected to, as of `armillary serve`, "
    "for example throughput='enforce', partition_storage='1MB', clock='movable'"
)
DATABASE: Final = "test"  # of cosmos_database and gremlin_client
TABLE: Final = "test"  # of table_client
GRAPH: Final = "graph"  # of gremlin_client
GRAPH_KEY: Final = "/pk"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


class Servers:
    """The servers of this process, which is one of pytest-xdist's workers if there are any: one for each set of
    settings and seed, started when it is first needed."""

    def __init__(self) -> None:
        self._servers: dict[Any, ServerProcess] = {}

    def ready(
        self, settings: Mapping[str, Any], seed: Callable[[Controls], object] | None, fixtures: Collection[str]
    ) -> ServerProcess:
        """The server with these settings, with what the seed has put there and nothing else. `fixtures`: of the test,
        whose clients are imported while a server starts."""
        from armillary.testing.clients import preload
        from armillary.testing.server_process import ServerProcess
        from armillary.testing.server_settings import environment_settings

        name = (*sorted(environment_settings(settings).items()), seed)
        found = self._servers.get(name)
        if found is not None and found.is_running:
            found.restore_clean()
            return found
        server = ServerProcess(**settings)
        server.launch()
        try:
            preload(fixtures)
            server.wait_until_ready()
            if seed is not None:
                seed(server)
            server.keep_clean()
        except BaseException:
            server.stop()
            raise
        self._servers[name] = server
        return server

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()
        self._servers.clear()


@pytest.fixture(scope="session")
def _armillary_servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def armillary_settings() -> Mapping[str, Any]:
    """Settings of all servers, which markers add to: override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def armillary_seed() -> Callable[[Controls], object] | None:
    """A function that is given each new server, and fills it with what every test finds: override it in conftest.py."""
    return None


@pytest.fixture
def armillary(
    request: pytest.FixtureRequest,
    _armillary_servers: Servers,
    armillary_settings: Mapping[str, Any],
    armillary_seed: Callable[[Controls], object] | None,
) -> Iterator[ServerProcess]:
    """A server in memory with the settings of the test's markers, as it was when it was new."""
    from armillary.errors import Failure

    settings = dict(armillary_settings)
    for marker in reversed(list(request.node.iter_markers("armillary"))):  # the nearest comes last
        if marker.args:
            _refuse("@pytest.mark.armillary takes settings by name, such as throughput='enforce'.")
        settings |= marker.kwargs
    refusal = ""
    try:
        server = _armillary_servers.ready(settings, armillary_seed, request.fixturenames)
    except Failure as failure:
        refusal = failure.message
    if refusal:  # outside of the handler: pytest would show both errors
        _refuse(refusal)
    _, line = server.log_since(0)
    yield server
    logged, _ = server.log_since(line)
    if logged:  # pytest shows it with tests that fail
        request.node.add_report_section("teardown", "armillary log", logged)


@pytest.fixture
def cosmos_client(armillary: ServerProcess) -> Iterator[CosmosClient]:
    """azure-cosmos' client of the account."""
    with _client("cosmos_client", armillary) as client:
        yield client


@pytest.fixture
def cosmos_database(cosmos_client: CosmosClient) -> DatabaseProxy:
    """A database without containers."""
    return cosmos_client.create_database(DATABASE)


@pytest.fixture
def cosmos_container(cosmos_database: DatabaseProxy) -> Callable[..., ContainerProxy]:
    """Makes containers: cosmos_container("orders", "/customer", throughput=400)."""
    from functools import partial

    from armillary.testing.clients import create_container

    return partial(create_container, cosmos_database)


@pytest.fixture
def mongo_client(armillary: ServerProcess) -> Iterator[MongoClient[dict[str, Any]]]:
    """pymongo's client of the account."""
    with _client("mongo_client", armillary) as client:
        yield client


@pytest.fixture
def table_service_client(armillary: ServerProcess) -> Iterator[TableServiceClient]:
    """azure-data-tables' client of the account."""
    with _client("table_service_client", armillary) as client:
        yield client


@pytest.fixture
def table_client(table_service_client: TableServiceClient) -> Iterator[TableClient]:
    """azure-data-tables' client of a table without entities."""
    with table_service_client.create_table(TABLE) as client:
        yield client


@pytest.fixture
def gremlin_client(armillary: ServerProcess) -> Iterator[Any]:
    """gremlinpython's client of a graph without vertices, whose partition key is the property pk."""
    client = _client("gremlin_client", armillary, DATABASE, GRAPH)
    definition = {"name": GRAPH, "partitionKey": GRAPH_KEY}
    control = armillary.control
    if DATABASE not in [each["name"] for each in control.get("databases")["databases"]]:
        control.post("databases", body={"name": DATABASE})
    control.post("databases", DATABASE, "containers", body=definition)
    yield client
    client.close()


def _client(name: str, server: Controls, *names: str) -> Any:
    from armillary.testing import clients

    try:
        return getattr(clients, name)(server, *names)
    except clients.MissingClient as error:
        refusal = str(error)
    _refuse(refusal)


def _refuse(message: str) -> NoReturn:
    pytest.fail(message, pytrace=False)

"""The management SDK of Python against the management API: databases, containers, collections, graphs and tables with
their throughput, the account and its keys. Over https with a token credential, as in Azure; over http with a policy
that sends the same bearer token, since the SDK's own policy refuses to send tokens without TLS.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from azure.core.credentials import AccessToken, AzureKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.policies import AzureKeyCredentialPolicy
from azure.mgmt.cosmosdb import CosmosDBManagementClient
from azure.mgmt.cosmosdb import models as m
from clients.program_steps import DATABASE, ENDPOINT, KEY, Steps, equal

CONTROL_KEY = os.environ["ARMILLARY_CONTROL_KEY"]
PLACE = os.environ["ARMILLARY_MANAGEMENT"].partition("://")[2]
IS_TLS = ENDPOINT.startswith("https:")
SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP, ACCOUNT = "group", "localhost"
PROVIDER = "Microsoft.DocumentDB/databaseAccounts"
PREFIX = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{PROVIDER}/{ACCOUNT}"


class ControlKey:
    """A token credential that needs no identity provider."""

    def __init__(self, key: str) -> None:
        self.key = key

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.key, int(time.time()) + 3600)


def connected(key: str) -> CosmosDBManagementClient:
    options: dict[str, Any] = {"polling_interval": 0, "retry_total": 0}
    if IS_TLS:
        options["connection_verify"] = os.environ["ARMILLARY_CERTIFICATE"]
    else:
        options["authentication_policy"] = AzureKeyCredentialPolicy(
            AzureKeyCredential(key), "Authorization", prefix="Bearer"
        )
    base_url = f"{'https' if IS_TLS else 'http'}://{PLACE}"
    return CosmosDBManagementClient(ControlKey(key), SUBSCRIPTION, base_url=base_url, **options)


step = Steps()
client: Any = connected(CONTROL_KEY)
sql, mongo = client.sql_resources, client.mongo_db_resources
gremlin, tables = client.gremlin_resources, client.table_resources


def step_with_tls(function: Callable[[], None]) -> Callable[[], None]:
    """A step whose answers hold keys or addresses, which recordings must not: it is left out where they are made."""
    return step(function) if IS_TLS else function


def refused(status: int, words: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except HttpResponseError as error:
        equal(error.status_code, status)
        if words not in str(error):
            raise AssertionError(f"{words!r} is not in {error}") from None
        return
    raise AssertionError(f"nothing was refused, {status} was expected")


def autoscale(max_ru: int) -> m.AutoscaleSettings:
    return m.AutoscaleSettings(max_throughput=max_ru)


def options(throughput: int | None = None, max_ru: int | None = None) -> m.CreateUpdateOptions:
    made = m.CreateUpdateOptions()
    if throughput is not None:
        made.throughput = throughput
    if max_ru is not None:
        made.autoscale_settings = autoscale(max_ru)
    return made


def scaled(throughput: int | None = None, max_ru: int | None = None) -> m.ThroughputSettingsUpdateParameters:
    resource = m.ThroughputSettingsResource()
    if throughput is not None:
        resource.throughput = throughput
    if max_ru is not None:
        resource.autoscale_settings = autoscale(max_ru)
    return m.ThroughputSettingsUpdateParameters(resource=resource)


def sql_database(name: str, chosen: m.CreateUpdateOptions | None = None) -> m.SqlDatabaseCreateUpdateParameters:
    resource = m.SqlDatabaseResource(id=name)
    return m.SqlDatabaseCreateUpdateParameters(resource=resource, options=chosen or options())


def container(resource: m.SqlContainerResource, chosen: m.CreateUpdateOptions | None = None) -> Any:
    return m.SqlContainerCreateUpdateParameters(resource=resource, options=chosen or options())


def keyed(*paths: str) -> m.ContainerPartitionKey:
    kind = "Hash" if len(paths) == 1 else "MultiHash"
    return m.ContainerPartitionKey(paths=list(paths), kind=kind, version=2)


# The account.


@step_with_tls
def show_account() -> None:
    found = client.database_accounts.get(GROUP, ACCOUNT)
    equal((found.id, found.name, found.provisioning_state), (PREFIX, ACCOUNT, "Succeeded"))
    equal(found.consistency_policy.default_consistency_level, "Session")
    equal([each.failover_priority for each in found.write_locations], [0])
    if not found.document_endpoint.startswith("http"):
        raise AssertionError(found.document_endpoint)


@step_with_tls
def list_accounts() -> None:
    equal([each.name for each in client.database_accounts.list()], [ACCOUNT])
    equal([each.id for each in client.database_accounts.list_by_resource_group(GROUP)], [PREFIX])


@step
def account_name_exists() -> None:
    equal(client.database_accounts.check_name_exists(ACCOUNT), True)
    equal(client.database_accounts.check_name_exists("another"), False)


@step
def read_missing_account_404() -> None:
    refused(404, "this server has the account", lambda: client.database_accounts.get(GROUP, "another"))


@step_with_tls
def wrong_token_401() -> None:
    try:
        connected("d3JvbmcgY29udHJvbCBrZXkgb2YgdGhlIGNsaWVudHM=").database_accounts.get(GROUP, ACCOUNT)
    except ClientAuthenticationError as error:
        equal(error.status_code, 401)
        return
    raise AssertionError("a wrong token was accepted")


@step_with_tls
def list_keys() -> None:
    equal(client.database_accounts.list_keys(GROUP, ACCOUNT).primary_master_key, KEY)


@step
def list_read_only_keys() -> None:
    found = client.database_accounts.list_read_only_keys(GROUP, ACCOUNT)
    equal(found.primary_readonly_master_key, None)  # the server was started without one


@step_with_tls
def list_connection_strings() -> None:
    found = client.database_accounts.list_connection_strings(GROUP, ACCOUNT).connection_strings
    equal({each.type for each in found if each.key_kind == "Primary"}, {"Sql", "MongoDB", "Table", "Gremlin"})


@step_with_tls
def regenerate_key() -> None:
    parameters = m.DatabaseAccountRegenerateKeyParameters(key_kind="secondary")
    client.database_accounts.begin_regenerate_key(GROUP, ACCOUNT, parameters).result()
    if not client.database_accounts.list_keys(GROUP, ACCOUNT).secondary_master_key:
        raise AssertionError("there is no secondary key")


# SQL.


@step
def create_database() -> None:
    made = sql.begin_create_update_sql_database(GROUP, ACCOUNT, DATABASE, sql_database(DATABASE)).result()
    equal((made.name, made.resource.id), (DATABASE, DATABASE))
    equal((made.id, made.type), (f"{PREFIX}/sqlDatabases/{DATABASE}", f"{PROVIDER}/sqlDatabases"))
    if not (made.resource.rid and made.resource.ts and made.resource.etag):
        raise AssertionError("a system property is missing")


@step
def create_database_again() -> None:
    made = sql.begin_create_update_sql_database(GROUP, ACCOUNT, DATABASE, sql_database(DATABASE)).result()
    equal(made.resource.id, DATABASE)


@step
def show_database() -> None:
    equal(sql.get_sql_database(GROUP, ACCOUNT, DATABASE).resource.id, DATABASE)


@step
def list_databases() -> None:
    equal([each.name for each in sql.list_sql_databases(GROUP, ACCOUNT)], [DATABASE])


@step
def read_missing_database_404() -> None:
    try:
        sql.get_sql_database(GROUP, ACCOUNT, "missing")
    except ResourceNotFoundError as error:
        equal(error.error.code if error.error is not None else None, "NotFound")
        return
    raise AssertionError("a database that does not exist was found")


@step
def database_without_throughput_404() -> None:
    refused(404, "no throughput of its own", lambda: sql.get_sql_database_throughput(GROUP, ACCOUNT, DATABASE))


@step
def create_database_with_throughput() -> None:
    parameters = sql_database("shared", options(throughput=1000))
    sql.begin_create_update_sql_database(GROUP, ACCOUNT, "shared", parameters).result()
    found = sql.get_sql_database_throughput(GROUP, ACCOUNT, "shared")
    equal((found.resource.throughput, found.resource.minimum_throughput), (1000, "400"))
    equal(found.id, f"{PREFIX}/sqlDatabases/shared/throughputSettings/default")


@step
def database_throughput_replace() -> None:
    sql.begin_update_sql_database_throughput(GROUP, ACCOUNT, "shared", scaled(2000)).result()
    equal(sql.get_sql_database_throughput(GROUP, ACCOUNT, "shared").resource.throughput, 2000)


@step
def database_migrate_to_autoscale() -> None:
    made = sql.begin_migrate_sql_database_to_autoscale(GROUP, ACCOUNT, "shared").result()
    equal(made.resource.autoscale_settings.max_throughput, 2000)


@step
def database_autoscale_replace() -> None:
    sql.begin_update_sql_database_throughput(GROUP, ACCOUNT, "shared", scaled(max_ru=4000)).result()
    found = sql.get_sql_database_throughput(GROUP, ACCOUNT, "shared").resource
    equal((found.autoscale_settings.max_throughput, found.throughput), (4000, 400))


@step
def manual_throughput_of_autoscale_400() -> None:
    refused(
        400,
        "migrateToManualThroughput",
        lambda: sql.begin_update_sql_database_throughput(GROUP, ACCOUNT, "shared", scaled(500)).result(),
    )


@step
def database_migrate_to_manual() -> None:
    made = sql.begin_migrate_sql_database_to_manual_throughput(GROUP, ACCOUNT, "shared").result()
    equal((made.resource.throughput, made.resource.autoscale_settings), (4000, None))


POLICY = m.IndexingPolicy(
    indexing_mode="consistent",
    automatic=True,
    included_paths=[m.IncludedPath(path="/*")],
    excluded_paths=[m.ExcludedPath(path="/quiet/*")],
    composite_indexes=[[m.CompositePath(path="/a", order="ascending"), m.CompositePath(path="/b", order="descending")]],
)


@step
def create_container() -> None:
    resource = m.SqlContainerResource(
        id="orders",
        partition_key=keyed("/customer"),
        indexing_policy=POLICY,
        default_ttl=1000,
        unique_key_policy=m.UniqueKeyPolicy(unique_keys=[m.UniqueKey(paths=["/number"])]),
        conflict_resolution_policy=m.ConflictResolutionPolicy(
            mode="LastWriterWins", conflict_resolution_path="/changed"
        ),
    )
    parameters = container(resource, options(throughput=1200))
    made = sql.begin_create_update_sql_container(GROUP, ACCOUNT, DATABASE, "orders", parameters).result()
    equal((made.resource.id, made.resource.default_ttl), ("orders", 1000))
    equal(made.id, f"{PREFIX}/sqlDatabases/{DATABASE}/containers/orders")
    equal((made.resource.partition_key.paths, made.resource.partition_key.version), (["/customer"], 2))
    equal([each.paths for each in made.resource.unique_key_policy.unique_keys], [["/number"]])
    equal(made.resource.conflict_resolution_policy.conflict_resolution_path, "/changed")


@step
def show_container() -> None:
    found = sql.get_sql_container(GROUP, ACCOUNT, DATABASE, "orders").resource
    paths = [each.path for each in found.indexing_policy.excluded_paths]
    equal("/quiet/*" in paths, True)
    orders = [[each.order for each in every] for every in found.indexing_policy.composite_indexes]
    equal(orders, [["ascending", "descending"]])


@step
def list_containers() -> None:
    equal([each.name for each in sql.list_sql_containers(GROUP, ACCOUNT, DATABASE)], ["orders"])


@step
def update_container() -> None:
    """As `az cosmosdb sql container update` does: what was read is sent back with the change."""
    found = sql.get_sql_container(GROUP, ACCOUNT, DATABASE, "orders").resource
    resource = m.SqlContainerResource(
        id="orders",
        partition_key=found.partition_key,
        indexing_policy=found.indexing_policy,
        default_ttl=2000,
        unique_key_policy=found.unique_key_policy,
        conflict_resolution_policy=found.conflict_resolution_policy,
        client_encryption_policy=None,
    )
    made = sql.begin_create_update_sql_container(GROUP, ACCOUNT, DATABASE, "orders", container(resource)).result()
    equal(made.resource.default_ttl, 2000)
    equal(made.resource.unique_key_policy.unique_keys[0].paths, ["/number"])


@step
def change_partition_key_400() -> None:
    resource = m.SqlContainerResource(id="orders", partition_key=keyed("/other"))
    refused(
        400,
        "Partition key",
        lambda: sql.begin_create_update_sql_container(GROUP, ACCOUNT, DATABASE, "orders", container(resource)).result(),
    )


@step
def throughput_read() -> None:
    found = sql.get_sql_container_throughput(GROUP, ACCOUNT, DATABASE, "orders")
    equal((found.resource.throughput, found.resource.minimum_throughput), (1200, "400"))


@step
def throughput_replace() -> None:
    made = sql.begin_update_sql_container_throughput(GROUP, ACCOUNT, DATABASE, "orders", scaled(600)).result()
    equal(made.resource.throughput, 600)


@step
def throughput_below_minimum_400() -> None:
    refused(
        400,
        "minimum",
        lambda: sql.begin_update_sql_container_throughput(GROUP, ACCOUNT, DATABASE, "orders", scaled(100)).result(),
    )


@step
def migrate_to_autoscale() -> None:
    made = sql.begin_migrate_sql_container_to_autoscale(GROUP, ACCOUNT, DATABASE, "orders").result()
    equal(made.resource.autoscale_settings.max_throughput, 1000)


@step
def migrate_to_manual() -> None:
    made = sql.begin_migrate_sql_container_to_manual_throughput(GROUP, ACCOUNT, DATABASE, "orders").result()
    equal(made.resource.autoscale_settings, None)


@step
def create_container_autoscale() -> None:
    resource = m.SqlContainerResource(id="events", partition_key=keyed("/id"))
    parameters = container(resource, options(max_ru=4000))
    sql.begin_create_update_sql_container(GROUP, ACCOUNT, DATABASE, "events", parameters).result()
    found = sql.get_sql_container_throughput(GROUP, ACCOUNT, DATABASE, "events").resource
    equal(found.autoscale_settings.max_throughput, 4000)


@step
def hierarchical_keys_create() -> None:
    resource = m.SqlContainerResource(id="levels", partition_key=keyed("/tenant", "/user"))
    made = sql.begin_create_update_sql_container(GROUP, ACCOUNT, DATABASE, "levels", container(resource)).result()
    equal((made.resource.partition_key.kind, made.resource.partition_key.paths), ("MultiHash", ["/tenant", "/user"]))


@step
def container_shares_throughput() -> None:
    resource = m.SqlContainerResource(id="part", partition_key=keyed("/pk"))
    sql.begin_create_update_sql_container(GROUP, ACCOUNT, "shared", "part", container(resource)).result()
    refused(404, "no throughput", lambda: sql.get_sql_container_throughput(GROUP, ACCOUNT, "shared", "part"))


@step
def analytical_store_refused_400() -> None:
    resource = m.SqlContainerResource(id="cold", partition_key=keyed("/pk"), analytical_storage_ttl=-1)
    refused(
        400,
        "analyticalStorageTtl",
        lambda: sql.begin_create_update_sql_container(GROUP, ACCOUNT, DATABASE, "cold", container(resource)).result(),
    )
    refused(404, "cold", lambda: sql.get_sql_container(GROUP, ACCOUNT, DATABASE, "cold"))


@step
def stored_procedures_404() -> None:
    refused(404, "storedProcedures", lambda: list(sql.list_sql_stored_procedures(GROUP, ACCOUNT, DATABASE, "orders")))


@step
def delete_container() -> None:
    sql.begin_delete_sql_container(GROUP, ACCOUNT, DATABASE, "orders").result()
    refused(404, "orders", lambda: sql.get_sql_container(GROUP, ACCOUNT, DATABASE, "orders"))


@step
def delete_missing_container_404() -> None:
    refused(404, "orders", lambda: sql.begin_delete_sql_container(GROUP, ACCOUNT, DATABASE, "orders").result())


@step
def delete_database() -> None:
    for name in (DATABASE, "shared"):
        sql.begin_delete_sql_database(GROUP, ACCOUNT, name).result()
    equal(list(sql.list_sql_databases(GROUP, ACCOUNT)), [])


# MongoDB.


def index(*fields: str, **chosen: Any) -> m.MongoIndex:
    return m.MongoIndex(key=m.MongoIndexKeys(keys_property=list(fields)), options=m.MongoIndexOptions(**chosen))


def collection(resource: m.MongoDBCollectionResource, chosen: m.CreateUpdateOptions | None = None) -> Any:
    return m.MongoDBCollectionCreateUpdateParameters(resource=resource, options=chosen or options())


def described(resource: Any) -> list[tuple[Any, ...]]:
    found = []
    for each in resource.indexes:
        keys = each["key"]["keys"]
        found.append((tuple(keys), each.options.unique, each.options.expire_after_seconds))
    return found


@step
def mongo_create_database() -> None:
    resource = m.MongoDBDatabaseResource(id="library")
    parameters = m.MongoDBDatabaseCreateUpdateParameters(resource=resource, options=options(throughput=500))
    made = mongo.begin_create_update_mongo_db_database(GROUP, ACCOUNT, "library", parameters).result()
    equal((made.name, made.type), ("library", f"{PROVIDER}/mongodbDatabases"))
    equal([each.name for each in mongo.list_mongo_db_databases(GROUP, ACCOUNT)], ["library"])
    equal(mongo.get_mongo_db_database(GROUP, ACCOUNT, "library").resource.id, "library")


@step
def mongo_database_throughput() -> None:
    mongo.begin_update_mongo_db_database_throughput(GROUP, ACCOUNT, "library", scaled(800)).result()
    equal(mongo.get_mongo_db_database_throughput(GROUP, ACCOUNT, "library").resource.throughput, 800)


@step
def mongo_create_collection() -> None:
    resource = m.MongoDBCollectionResource(
        id="books",
        shard_key={"author": "Hash"},
        indexes=[index("_id"), index("title", "year"), index("_ts", expire_after_seconds=5000)],
    )
    parameters = collection(resource, options(throughput=700))
    made = mongo.begin_create_update_mongo_db_collection(GROUP, ACCOUNT, "library", "books", parameters).result()
    equal(dict(made.resource.shard_key), {"author": "Hash"})
    expected = [(("_id",), None, None), (("title", "year"), None, None), (("_ts",), None, 5000)]
    equal(described(made.resource), expected)


@step
def mongo_show_and_list_collections() -> None:
    equal(mongo.get_mongo_db_collection(GROUP, ACCOUNT, "library", "books").resource.id, "books")
    equal([each.name for each in mongo.list_mongo_db_collections(GROUP, ACCOUNT, "library")], ["books"])


@step
def mongo_update_indexes() -> None:
    resource = m.MongoDBCollectionResource(
        id="books",
        shard_key={"author": "Hash"},
        indexes=[index("_id"), index("_ts", expire_after_seconds=9000), index("author", "isbn", unique=True)],
    )
    made = mongo.begin_create_update_mongo_db_collection(
        GROUP, ACCOUNT, "library", "books", collection(resource)
    ).result()
    expected = [(("_id",), None, None), (("_ts",), None, 9000), (("author", "isbn"), True, None)]
    equal(described(made.resource), expected)


@step
def mongo_change_shard_key_400() -> None:
    resource = m.MongoDBCollectionResource(id="books", shard_key={"title": "Hash"})
    refused(
        400,
        "shard key",
        lambda: mongo.begin_create_update_mongo_db_collection(
            GROUP, ACCOUNT, "library", "books", collection(resource)
        ).result(),
    )


@step
def mongo_collection_throughput() -> None:
    mongo.begin_update_mongo_db_collection_throughput(GROUP, ACCOUNT, "library", "books", scaled(900)).result()
    equal(mongo.get_mongo_db_collection_throughput(GROUP, ACCOUNT, "library", "books").resource.throughput, 900)


@step
def mongo_migrate_throughput() -> None:
    made = mongo.begin_migrate_mongo_db_collection_to_autoscale(GROUP, ACCOUNT, "library", "books").result()
    equal(made.resource.autoscale_settings.max_throughput, 1000)
    made = mongo.begin_migrate_mongo_db_collection_to_manual_throughput(GROUP, ACCOUNT, "library", "books").result()
    equal(made.resource.autoscale_settings, None)


@step
def mongo_delete_collection() -> None:
    mongo.begin_delete_mongo_db_collection(GROUP, ACCOUNT, "library", "books").result()
    refused(404, "books", lambda: mongo.get_mongo_db_collection(GROUP, ACCOUNT, "library", "books"))


@step
def mongo_delete_database() -> None:
    mongo.begin_delete_mongo_db_database(GROUP, ACCOUNT, "library").result()
    equal(list(mongo.list_mongo_db_databases(GROUP, ACCOUNT)), [])


# Gremlin.


@step
def gremlin_create_database() -> None:
    resource = m.GremlinDatabaseResource(id="people")
    parameters = m.GremlinDatabaseCreateUpdateParameters(resource=resource, options=options())
    gremlin.begin_create_update_gremlin_database(GROUP, ACCOUNT, "people", parameters).result()
    equal([each.name for each in gremlin.list_gremlin_databases(GROUP, ACCOUNT)], ["people"])


def graph(key: m.ContainerPartitionKey, chosen: m.CreateUpdateOptions | None = None) -> Any:
    resource = m.GremlinGraphResource(id="friends", partition_key=key, default_ttl=3000)
    return m.GremlinGraphCreateUpdateParameters(resource=resource, options=chosen or options())


@step
def gremlin_create_graph() -> None:
    parameters = graph(keyed("/city"), options(throughput=600))
    made = gremlin.begin_create_update_gremlin_graph(GROUP, ACCOUNT, "people", "friends", parameters).result()
    equal((made.resource.id, made.resource.default_ttl), ("friends", 3000))
    equal([each.name for each in gremlin.list_gremlin_graphs(GROUP, ACCOUNT, "people")], ["friends"])
    equal(gremlin.get_gremlin_graph(GROUP, ACCOUNT, "people", "friends").resource.partition_key.paths, ["/city"])


@step
def gremlin_graph_by_label_400() -> None:
    refused(
        400,
        "'/label' are not supported",
        lambda: gremlin.begin_create_update_gremlin_graph(
            GROUP, ACCOUNT, "people", "friends", graph(keyed("/label"))
        ).result(),
    )


@step
def gremlin_graph_throughput() -> None:
    gremlin.begin_update_gremlin_graph_throughput(GROUP, ACCOUNT, "people", "friends", scaled(800)).result()
    equal(gremlin.get_gremlin_graph_throughput(GROUP, ACCOUNT, "people", "friends").resource.throughput, 800)


@step
def gremlin_delete_graph() -> None:
    gremlin.begin_delete_gremlin_graph(GROUP, ACCOUNT, "people", "friends").result()
    equal(list(gremlin.list_gremlin_graphs(GROUP, ACCOUNT, "people")), [])


@step
def gremlin_delete_database() -> None:
    gremlin.begin_delete_gremlin_database(GROUP, ACCOUNT, "people").result()
    refused(404, "people", lambda: gremlin.get_gremlin_database(GROUP, ACCOUNT, "people"))


# Tables.


@step
def create_table() -> None:
    parameters = m.TableCreateUpdateParameters(resource=m.TableResource(id="parts"), options=options(throughput=500))
    made = tables.begin_create_update_table(GROUP, ACCOUNT, "parts", parameters).result()
    equal((made.id, made.resource.id), (f"{PREFIX}/tables/parts", "parts"))


@step
def show_and_list_tables() -> None:
    equal(tables.get_table(GROUP, ACCOUNT, "parts").resource.id, "parts")
    equal([each.name for each in tables.list_tables(GROUP, ACCOUNT)], ["parts"])


@step
def table_throughput() -> None:
    tables.begin_update_table_throughput(GROUP, ACCOUNT, "parts", scaled(700)).result()
    equal(tables.get_table_throughput(GROUP, ACCOUNT, "parts").resource.throughput, 700)


@step
def table_migrate_throughput() -> None:
    made = tables.begin_migrate_table_to_autoscale(GROUP, ACCOUNT, "parts").result()
    equal(made.resource.autoscale_settings.max_throughput, 1000)
    made = tables.begin_migrate_table_to_manual_throughput(GROUP, ACCOUNT, "parts").result()
    equal(made.resource.autoscale_settings, None)


@step
def delete_table() -> None:
    tables.begin_delete_table(GROUP, ACCOUNT, "parts").result()
    equal(list(tables.list_tables(GROUP, ACCOUNT)), [])


@step
def cassandra_404() -> None:
    cassandra = client.cassandra_resources
    refused(404, "cassandraKeyspaces", lambda: list(cassandra.list_cassandra_keyspaces(GROUP, ACCOUNT)))


step.run()

"""The released azure-data-tables clients, synchronous and asynchronous, on the Table door of a real server; and one
table used through the SQL door at the same time."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.cosmos import CosmosClient
from azure.data.tables import (
    AccountSasPermissions,
    EdmType,
    EntityProperty,
    ResourceTypes,
    TableAccessPolicy,
    TableClient,
    TableCorsRule,
    TableSasPermissions,
    TableServiceClient,
    TableTransactionError,
    UpdateMode,
    generate_account_sas,
    generate_table_sas,
)
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient
from support.process import ServerProcess, run_armillary
from support.server_operator import Operator

_numbers = count(1)
ACCOUNT = "localhost"


def address(server: ServerProcess, host: str = "localhost") -> str:
    """A client that finds localhost in an address takes it for Cosmos, with 127.0.0.1 for Storage."""
    return server.doors["table"].replace("127.0.0.1", host)


def credential(server: ServerProcess) -> AzureNamedKeyCredential:
    return AzureNamedKeyCredential(ACCOUNT, server.key)


@pytest.fixture(params=["localhost", "127.0.0.1"])
def service(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[TableServiceClient]:
    with TableServiceClient(address(server, request.param), credential=credential(server)) as client:
        yield client


@pytest.fixture
def table(service: TableServiceClient) -> Iterator[TableClient]:
    client = service.create_table(f"people{next(_numbers)}")
    yield client
    client.delete_table()


def full_entity() -> dict[str, Any]:
    return {
        "PartitionKey": "Smith & O'Brien",
        "RowKey": "Ben %2F+@",
        "text": "ünïcode 日本語 '",
        "empty": "",
        "whole": -(2**31),
        "long": EntityProperty(2**53 + 1, EdmType.INT64),
        "ratio": 3.1,
        "even": 3.0,
        "nan": math.nan,
        "most": math.inf,
        "truth": True,
        "bytes": b"\x00\xff",
        "guid": uuid.UUID("c9da6455-213d-42c9-9a79-3e9149a57833"),
        "time": EntityProperty("2013-08-22T01:12:06.2608595Z", EdmType.DATETIME),
        "ttl": 5,
        "id": "not the row key",
        "none": None,
    }


def test_tables_are_made_listed_and_deleted(service: TableServiceClient) -> None:
    names = [f"listed{next(_numbers)}" for _ in range(3)]
    for name in names:
        service.create_table(name)
    with pytest.raises(ResourceExistsError):
        service.create_table(names[0])
    assert service.create_table_if_not_exists(names[0]).table_name == names[0]
    pages = list(service.query_tables("TableName ge 'listed' and TableName lt 'listee'", results_per_page=2).by_page())
    assert [len(list(page)) for page in pages] == [2, 1]
    for name in names:
        service.delete_table(name)
    service.delete_table(names[0])  # the client takes a missing table for deleted
    assert not [each for each in service.list_tables() if each.name in names]


def test_tables_have_the_throughput_of_their_creation(server: ServerProcess, service: TableServiceClient) -> None:
    name = f"fast{next(_numbers)}"
    service.create_table(name, headers={"x-ms-offer-throughput": "800"})
    with pytest.raises(HttpResponseError):
        service.create_table(name + "x", headers={"x-ms-offer-throughput": "450"})
    with CosmosClient(server.url, server.key) as client:
        container = client.get_database_client("TablesDB").get_container_client(name)
        assert container.get_throughput().offer_throughput == 800
    service.delete_table(name)


def test_entities_come_back_as_they_went(table: TableClient) -> None:
    entity = full_entity()
    made = table.create_entity(entity)
    got = table.get_entity(entity["PartitionKey"], entity["RowKey"])
    assert got.metadata["etag"] == made["etag"]
    assert math.isnan(got.pop("nan"))
    assert got.pop("time").tables_service_value == entity["time"].value
    for name in ("nan", "none", "time"):
        entity.pop(name)
    assert dict(got) == entity
    assert type(got["even"]) is float


def test_inserting_twice_is_a_conflict(table: TableClient) -> None:
    table.create_entity({"PartitionKey": "p", "RowKey": "r"})
    with pytest.raises(ResourceExistsError):
        table.create_entity({"PartitionKey": "p", "RowKey": "r"})


def test_updates_merge_or_replace(table: TableClient) -> None:
    table.upsert_entity({"PartitionKey": "p", "RowKey": "r", "a": 1, "b": 2})
    table.update_entity({"PartitionKey": "p", "RowKey": "r", "b": 3, "c": None}, mode=UpdateMode.MERGE)
    assert dict(table.get_entity("p", "r")) == {"PartitionKey": "p", "RowKey": "r", "a": 1, "b": 3}
    table.upsert_entity({"PartitionKey": "p", "RowKey": "r", "c": 4}, mode=UpdateMode.REPLACE)
    assert dict(table.get_entity("p", "r")) == {"PartitionKey": "p", "RowKey": "r", "c": 4}
    with pytest.raises(ResourceNotFoundError):
        table.update_entity({"PartitionKey": "p", "RowKey": "nobody"}, mode=UpdateMode.MERGE)
    with pytest.raises(ResourceNotFoundError):
        table.update_entity({"PartitionKey": "p", "RowKey": "nobody"}, mode=UpdateMode.REPLACE)


@pytest.mark.parametrize("mode", [UpdateMode.MERGE, UpdateMode.REPLACE])
def test_etags_guard_updates(table: TableClient, mode: UpdateMode) -> None:
    first = table.create_entity({"PartitionKey": "p", "RowKey": "r", "n": 1})["etag"]
    entity = {"PartitionKey": "p", "RowKey": "r", "n": 2}
    guard = {"match_condition": MatchConditions.IfNotModified}
    second = table.update_entity(entity, mode=mode, etag=first, **guard)["etag"]
    assert first != second
    with pytest.raises(ResourceModifiedError):
        table.update_entity(entity, mode=mode, etag=first, **guard)
    with pytest.raises(ResourceModifiedError):
        table.delete_entity(entity, etag=first, **guard)
    table.delete_entity(entity, etag=second, **guard)
    with pytest.raises(ResourceNotFoundError):
        table.get_entity("p", "r")


def test_queries_filter_select_and_page(table: TableClient) -> None:
    for number in range(25):
        table.create_entity({"PartitionKey": f"p{number % 2}", "RowKey": f"{number:02}", "n": number, "name": "x"})
    found = list(table.query_entities("n ge @low and PartitionKey eq 'p1'", parameters={"low": 10}, select=["n"]))
    assert [dict(each) for each in found] == [{"n": number} for number in range(11, 25, 2)]
    pages: Any = table.query_entities("n lt 20", results_per_page=8).by_page()
    first = list(next(pages))
    rest = [
        entity
        for page in table.query_entities("n lt 20", results_per_page=8).by_page(pages.continuation_token)
        for entity in page
    ]
    assert len(first) == 8
    assert sorted(entity["n"] for entity in first + rest) == list(range(20))
    with pytest.raises(HttpResponseError) as refused:
        list(table.query_entities("n is 5"))
    assert refused.value.status_code == 400


def test_transactions_are_all_or_nothing(table: TableClient) -> None:
    table.create_entity({"PartitionKey": "p", "RowKey": "there", "n": 1})
    answers = table.submit_transaction(
        [
            ("create", {"PartitionKey": "p", "RowKey": "new", "n": 1}),
            ("update", {"PartitionKey": "p", "RowKey": "there", "m": 2}, {"mode": "merge"}),
            ("upsert", {"PartitionKey": "p", "RowKey": "other"}, {"mode": "replace"}),
        ]
    )
    assert [each["etag"].startswith("W/") for each in answers] == [True] * 3
    assert dict(table.get_entity("p", "there"))["m"] == 2
    with pytest.raises(TableTransactionError) as failed:
        table.submit_transaction(
            [
                ("delete", {"PartitionKey": "p", "RowKey": "new"}),
                ("create", {"PartitionKey": "p", "RowKey": "never"}),
                ("create", {"PartitionKey": "p", "RowKey": "there"}),
            ]
        )
    assert failed.value.index == 2
    assert getattr(failed.value, "error_code", None) == "EntityAlreadyExists"
    assert {each["RowKey"] for each in table.list_entities()} == {"new", "there", "other"}


def test_signatures_of_a_table_allow_what_they_say(server: ServerProcess, service: TableServiceClient) -> None:
    name = f"signed{next(_numbers)}"
    table = service.create_table(name)
    table.create_entity({"PartitionKey": "b", "RowKey": "1"})
    table.create_entity({"PartitionKey": "z", "RowKey": "1"})
    expiry = datetime.now(UTC) + timedelta(hours=1)

    def signed(**given: Any) -> TableClient:
        token = generate_table_sas(credential(server), name, **{"expiry": expiry, **given})
        return TableClient(service.url, name, credential=AzureSasCredential(token))

    reader = signed(permission=TableSasPermissions(read=True), start_pk="a", start_rk="", end_pk="c", end_rk="9")
    assert [each["PartitionKey"] for each in reader.list_entities()] == ["b"]
    assert reader.get_entity("b", "1")
    for refused in (
        lambda: reader.get_entity("z", "1"),
        lambda: reader.create_entity({"PartitionKey": "b", "RowKey": "2"}),
    ):
        with pytest.raises(HttpResponseError) as error:
            refused()
        assert error.value.status_code == 403
    adder = signed(permission="a")
    adder.create_entity({"PartitionKey": "b", "RowKey": "2"})
    with pytest.raises(HttpResponseError):
        adder.upsert_entity({"PartitionKey": "b", "RowKey": "2"})
    with pytest.raises(HttpResponseError):
        signed(permission="r", expiry=datetime.now(UTC) - timedelta(minutes=1)).get_entity("b", "1")
    with pytest.raises(HttpResponseError):
        signed(permission="r", ip_address_or_range="10.0.0.1-10.0.0.9").get_entity("b", "1")
    with pytest.raises(HttpResponseError):
        signed(permission="r", protocol="https").get_entity("b", "1")
    policy = TableAccessPolicy(permission="r", expiry=expiry, start=datetime.now(UTC) - timedelta(hours=1))
    table.set_table_access_policy({"readers": policy})
    readers = table.get_table_access_policy()["readers"]
    assert readers is not None and readers.permission == "r"
    token = generate_table_sas(credential(server), name, policy_id="readers")
    by_policy = TableClient(service.url, name, credential=AzureSasCredential(token))
    assert by_policy.get_entity("b", "1")
    table.set_table_access_policy({})
    with pytest.raises(HttpResponseError):
        by_policy.get_entity("b", "1")
    table.delete_table()


def test_signatures_of_the_account(server: ServerProcess, service: TableServiceClient) -> None:
    def signed(types: str, permissions: str) -> TableServiceClient:
        token = generate_account_sas(
            credential(server),
            resource_types=ResourceTypes.from_string(types),
            permission=AccountSasPermissions.from_string(permissions),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
        return TableServiceClient(service.url, credential=AzureSasCredential(token))

    name = f"account{next(_numbers)}"
    everything = signed("sco", "rwdlacu")
    table = everything.create_table(name)
    table.upsert_entity({"PartitionKey": "p", "RowKey": "r"})
    assert name in [each.name for each in signed("c", "l").list_tables()]
    with pytest.raises(HttpResponseError):
        signed("c", "r").get_table_client(name).get_entity("p", "r")
    with pytest.raises(HttpResponseError):
        signed("o", "r").create_table(name + "x")
    everything.delete_table(name)


def test_wrong_keys_are_refused(server: ServerProcess, service: TableServiceClient) -> None:
    wrong = AzureNamedKeyCredential(ACCOUNT, "A" * 84 + "AA==")
    with TableServiceClient(service.url, credential=wrong) as client, pytest.raises(HttpResponseError) as refused:
        list(client.list_tables())
    assert refused.value.status_code == 401


def test_service_properties_and_statistics(server: ServerProcess, service: TableServiceClient) -> None:
    service.set_service_properties(cors=[TableCorsRule(["https://example.com"], ["GET"], max_age_in_seconds=5)])
    properties: dict[str, Any] = service.get_service_properties()
    assert properties["cors"][0].allowed_origins == ["https://example.com"]
    service.set_service_properties(cors=[])
    # Statistics are asked of an account's copy, which here is the account itself.
    place = service.url.partition("//")[2]
    with TableServiceClient(service.url, credential=credential(server), secondary_hostname=place) as client:
        statistics: dict[str, Any] = client.get_service_stats()
        assert statistics["geo_replication"]["status"] == "live"


def test_the_account_may_stand_in_the_path(server: ServerProcess) -> None:
    url = f"{address(server, '127.0.0.1')}/{ACCOUNT}"
    with TableServiceClient(url, credential=credential(server)) as client:
        table = client.create_table(f"inpath{next(_numbers)}")
        table.submit_transaction([("create", {"PartitionKey": "p", "RowKey": "it's"})])
        assert table.get_entity("p", "it's")
        table.delete_table()


def test_the_copy_of_an_account_may_stand_in_the_path(server: ServerProcess) -> None:
    url = f"{address(server, '127.0.0.1')}/{ACCOUNT}"
    with TableServiceClient(url, credential=credential(server)) as client:
        table = client.create_table(f"copied{next(_numbers)}")
        table.create_entity({"PartitionKey": "p", "RowKey": "r"})
        statistics: dict[str, Any] = client.get_service_stats()
        assert statistics["geo_replication"]["status"] == "live"
        with TableServiceClient(url, credential=credential(server), location_mode="secondary") as copy:
            assert copy.url == f"{url}-secondary"
            found = copy.get_table_client(table.table_name)
            assert found.get_entity("p", "r")
            assert len(list(found.query_entities("PartitionKey eq 'p'"))) == 1
        table.delete_table()


@pytest.mark.parametrize("flavour", ["aio"])
async def test_the_asynchronous_client_does_the_same(server: ServerProcess, flavour: str) -> None:
    async with AsyncTableServiceClient(address(server), credential=credential(server)) as client:
        table = await client.create_table(f"aio{next(_numbers)}")
        entity = full_entity()
        made = await table.create_entity(entity)
        got = await table.get_entity(entity["PartitionKey"], entity["RowKey"])
        assert got.metadata["etag"] == made["etag"]
        await table.update_entity(
            {"PartitionKey": entity["PartitionKey"], "RowKey": entity["RowKey"], "x": 1}, mode=UpdateMode.MERGE
        )
        await table.submit_transaction([("upsert", {"PartitionKey": "q", "RowKey": str(n)}) for n in range(5)])
        assert len([each async for each in table.query_entities("PartitionKey eq 'q'", results_per_page=2)]) == 5
        await table.delete_table()


def test_tables_and_sql_see_the_same(server: ServerProcess, service: TableServiceClient) -> None:
    name = f"shared{next(_numbers)}"
    table = service.create_table(name)
    charges: dict[str, float] = {}

    def note(response: Any) -> None:
        charges["table"] = float(response.http_response.headers["x-ms-request-charge"])

    with CosmosClient(server.url, server.key) as client:
        container = client.get_database_client("TablesDB").get_container_client(name)
        made = table.create_entity({"PartitionKey": "Smith", "RowKey": "Ben", "Age": 39, "Email": "ben@contoso.com"})
        item = container.read_item("Ben", "Smith")
        assert item["Age"] == {"$t": 16, "$v": 39}
        assert (item["id"], item["$id"], item["$pk"]) == ("Ben", "Ben", "Smith")
        table.get_entity("Smith", "Ben", raw_response_hook=note)
        container.read_item(
            "Ben", "Smith", response_hook=lambda headers, _: charges.update(sql=float(headers["x-ms-request-charge"]))
        )
        assert charges["table"] == charges["sql"]
        item["Age"]["$v"] = 40
        container.replace_item("Ben", item)
        with pytest.raises(ResourceModifiedError):
            table.update_entity(
                {"PartitionKey": "Smith", "RowKey": "Ben"},
                etag=made["etag"],
                match_condition=MatchConditions.IfNotModified,
            )
        assert table.get_entity("Smith", "Ben")["Age"] == 40
        container.create_item({"id": "Ann", "$id": "Ann", "$pk": "Smith", "Age": {"$t": 16, "$v": 7}})
        container.create_item({"id": "plain", "$pk": "Smith", "Age": 7})
        assert [each["RowKey"] for each in table.query_entities("Age lt 10")] == ["Ann"]
        rows = container.query_items('SELECT VALUE c.id FROM c WHERE c.Age["$v"] > 10', partition_key="Smith")
        assert list(rows) == ["Ben"]
    table.delete_table()


def test_tables_go_on_while_they_split(server: ServerProcess, service: TableServiceClient) -> None:
    name = f"split{next(_numbers)}"
    table = service.create_table(name)
    for key in range(20):
        table.submit_transaction(
            [("create", {"PartitionKey": f"p{key}", "RowKey": f"{row:02}", "n": row}) for row in range(10)]
        )
    pages = table.query_entities("n lt 9", results_per_page=25).by_page()
    seen = [(entity["PartitionKey"], entity["RowKey"]) for entity in next(pages)]
    etag = table.get_entity("p3", "05").metadata["etag"]
    split = run_armillary("split", f"TablesDB/{name}", "--data", str(server.directory))
    assert split.returncode == 0, split.stderr
    seen += [(entity["PartitionKey"], entity["RowKey"]) for page in pages for entity in page]
    assert sorted(seen) == sorted((f"p{key}", f"{row:02}") for key in range(20) for row in range(9))
    table.update_entity(
        {"PartitionKey": "p3", "RowKey": "05", "n": 1}, etag=etag, match_condition=MatchConditions.IfNotModified
    )
    with CosmosClient(server.url, server.key) as client:
        container = client.get_database_client("TablesDB").get_container_client(name)
        assert len(list(container.read_feed_ranges())) == 2
        assert list(container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)) == [200]
    table.delete_table()


def test_tables_over_budget_are_asked_again(start_server: Callable[..., ServerProcess]) -> None:
    """The clients' own retries: every write is done in the end, though many were refused at first."""
    enforcing = start_server("--durability", "relaxed", "--throughput", "enforce", "--clock", "movable")
    operator = Operator(enforcing)
    operator.ask("POST", "clock", {"frozen": True})  # a second ends when it is over for the client
    refused: list[int] = []

    def note(response: Any) -> None:
        if response.http_response.status_code == 429:
            refused.append(429)
            operator.ask("POST", "clock", {"advanceSeconds": 1})

    with TableServiceClient(address(enforcing), credential=credential(enforcing)) as service:
        table = service.create_table("busy")
        for number in range(45):
            entity = {"PartitionKey": "p", "RowKey": f"{number:02}", "text": "x" * 100, "n": number}
            table.create_entity(entity, raw_response_hook=note)
            mode = UpdateMode.REPLACE if number % 2 else UpdateMode.MERGE
            table.upsert_entity({**entity, "n": -number}, mode=mode, raw_response_hook=note)
        assert sorted(each["n"] for each in table.list_entities()) == [-number for number in reversed(range(45))]
    assert refused

"""Rules of faults as the released client of the SQL protocol sees them: what it repeats, and what reaches the
application. Counts are exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from support.process import KEY
from support.server_operator import Operator

AddRule = Callable[..., int]


@pytest.fixture
def container(operator: Operator, name: str) -> Iterator[ContainerProxy]:
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.create_database(name)
        yield database.create_container("items", PartitionKey("/pk"), offer_throughput=18_000)
        client.delete_database(name)


@pytest.fixture
def add(operator: Operator, name: str) -> Iterator[AddRule]:
    """add(status=429, every=2): a rule for the container of the test."""

    def make(**rule: Any) -> int:
        made = operator.ask("POST", "faults", {"database": name, "container": "items", **rule})
        return int(made["id"])

    yield make
    operator.ask("DELETE", "faults")


def hits(operator: Operator, rule: int) -> tuple[int, int]:
    found = operator.ask("GET", f"faults/{rule}")
    return found["seen"], found["hits"]


def test_every_third_write_to_a_key_is_throttled_and_repeated(
    operator: Operator, container: ContainerProxy, add: AddRule
) -> None:
    rule = add(operations="write", key="K", every=3, status=429, retryAfterMs=20)
    for number in range(10):
        container.create_item({"id": str(number), "pk": "K"})
        container.create_item({"id": str(number), "pk": "other"})
    # Ten writes arrive; each third one that comes is refused and comes again: 4 refusals in 14 requests.
    assert hits(operator, rule) == (14, 4)
    assert len(list(container.query_items("SELECT * FROM c", partition_key="K"))) == 10


def test_a_client_gives_up_after_nine_times(operator: Operator, container: ContainerProxy, add: AddRule) -> None:
    rule = add(operations=["create"], status=429, retryAfterMs=1)
    with pytest.raises(CosmosHttpResponseError) as caught:
        container.create_item({"id": "1", "pk": "K"})
    assert (caught.value.status_code, caught.value.sub_status) == (429, 3200)
    assert f"Fault rule {rule} asked for this failure." in caught.value.message
    assert hits(operator, rule) == (10, 10)
    assert list(container.read_all_items()) == []


def test_the_next_requests_to_a_range_find_it_gone(operator: Operator, container: ContainerProxy, add: AddRule) -> None:
    for number in range(30):
        container.create_item({"id": "i", "pk": str(number)})
    rule = add(operations=["query"], range=1, count=2, status=410, subStatus=1002)
    rows: list[Any] = list(
        container.query_items("SELECT VALUE c.pk FROM c ORDER BY c.pk", enable_cross_partition_query=True)
    )
    assert rows == sorted(str(number) for number in range(30))
    assert hits(operator, rule)[1] == 2
    assert operator.ask("GET", f"faults/{rule}")["spent"] is True


@pytest.mark.parametrize(("status", "sub_status"), [(408, 0), (449, 0), (503, 0), (410, 1002), (410, 1007), (500, 0)])
def test_other_statuses_arrive(
    operator: Operator, container: ContainerProxy, add: AddRule, status: int, sub_status: int
) -> None:
    container.create_item({"id": "1", "pk": "K"})
    rule = add(operations=["patch"], status=status, **({"subStatus": sub_status} if sub_status else {}), count=1)
    operations = [{"op": "set", "path": "/n", "value": 1}]
    seen = None
    try:
        container.patch_item("1", "K", operations)
    except CosmosHttpResponseError as error:
        seen = (error.status_code, error.sub_status or 0)
    assert hits(operator, rule)[1] == 1
    # What it does not repeat reaches the application as it is; what it repeats is done.
    read = container.read_item("1", "K")
    assert seen in (None, (status, sub_status))
    assert (read.get("n") == 1) == (seen is None)


def test_a_dropped_connection_is_no_answer(operator: Operator, container: ContainerProxy, add: AddRule) -> None:
    rule = add(operations=["create"], drop=True)
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        container.create_item({"id": "1", "pk": "K"})
    assert hits(operator, rule)[1] >= 1
    operator.ask("DELETE", f"faults/{rule}")
    assert list(container.read_all_items()) == []
    rule = add(operations=["read"], drop=True, count=1)
    container.create_item({"id": "1", "pk": "K"})
    assert container.read_item("1", "K")["id"] == "1"  # reads are repeated
    assert hits(operator, rule) == (1, 1)


def test_a_write_whose_answer_is_lost_has_happened(operator: Operator, container: ContainerProxy, add: AddRule) -> None:
    rule = add(operations=["create"], drop=True, after=True, count=1)
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        container.create_item({"id": "1", "pk": "K"})
    assert hits(operator, rule) == (1, 1)
    assert [each["id"] for each in container.read_all_items()] == ["1"]


def test_a_delayed_request_comes_later_and_is_done(operator: Operator, container: ContainerProxy, add: AddRule) -> None:
    rule = add(operations=["create"], key="K", delayMs=300)
    begun_s = time.monotonic()
    container.create_item({"id": "1", "pk": "K"})
    assert time.monotonic() - begun_s >= 0.3
    assert hits(operator, rule) == (1, 1)
    assert container.read_item("1", "K")["id"] == "1"


def test_chances_are_the_same_with_the_same_seed(operator: Operator, container: ContainerProxy, add: AddRule) -> None:
    def row(seed: int) -> list[bool]:
        rule = add(operations=["patch"], probability=0.5, seed=seed, status=408)
        outcomes = []
        for _ in range(20):
            before = hits(operator, rule)[1]
            try:
                container.patch_item("1", "K", [{"op": "set", "path": "/n", "value": 1}])
            except CosmosHttpResponseError:
                pass
            outcomes.append(hits(operator, rule)[1] > before)
        operator.ask("DELETE", f"faults/{rule}")
        return outcomes

    container.create_item({"id": "1", "pk": "K"})
    first = row(7)
    assert first == row(7)
    assert True in first and False in first


def test_metrics_count_hits(operator: Operator, container: ContainerProxy, add: AddRule) -> None:
    rule = add(operations=["upsert"], count=3, status=429, retryAfterMs=1)
    container.upsert_item({"id": "1", "pk": "K"})
    assert operator.metric("fault_hits_total", rule=str(rule)) == 3

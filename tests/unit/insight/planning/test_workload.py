"""The workload file: what it says, and what is refused with its place."""

from __future__ import annotations

import pytest

from armillary.errors import Failure
from armillary.insight.planning.toml_tables import duration_s, size_bytes
from armillary.insight.planning.workload import Workload, parse_workload
from armillary.insight.planning.workload_demands import WorkloadDemands, charge_ru, created_items, route_of, visited
from armillary.limits import GB

DAY_S = 86_400.0
TEXT = """
container = { partition_key = ["/customerId"], throughput = 20000 }
changes = [{ at = "P30D", throughput = 40000 }]
data = { size = "10GB", item_bytes = 1024, terms = 10, ttl_days = 0, keys = { zipf = 1.0, count = 1_000_000 } }
operations = [
    { kind = "create", rate = 1000 },
    { kind = "read", rate = 5000 },
    { kind = "query", rate = 60, filter = ["/customerId"], rows = 10, loaded = 10 },
]
shape = { weekly = [1, 1, 1, 1, 1, 0.3, 0.2], growth_per_month = 1.03, spikes = [{ at = "P20D", hours = 2, factor = 5, key = "k1" }] }
"""  # noqa: E501


def parse(text: str, files: dict[str, str] | None = None, seed: int = 1) -> Workload:
    return parse_workload(text, (files or {}).__getitem__, seed)


def test_the_example_of_the_documentation() -> None:
    workload = parse(TEXT)
    assert workload.partition_key == ("/customerId",)
    assert workload.provision is not None
    assert (workload.provision.kind, workload.provision.ru) == ("manual", 20_000)
    assert [(each.at_s, each.ru) for each in workload.changes] == [(30 * DAY_S, 40_000)]
    assert workload.data.size_bytes == 10 * GB
    assert workload.data.keys.shares.count == 1_000_000
    assert [each.kind for each in workload.operations] == ["create", "read", "query"]
    assert workload.operations[1].keys is workload.data.keys
    assert workload.shape.spikes[0].key == "k1"
    assert workload.shape.regular(5 * DAY_S) == pytest.approx(0.3, rel=0.01)
    assert workload.shape.highest(0.0) == 1.0
    assert workload.retries == "sdk"


def test_another_seed_lays_keys_elsewhere() -> None:
    workload = parse(TEXT, seed=2)
    assert workload.data.keys.shares.named[0][0] == "k1.2"
    assert workload.shape.spikes[0].key == "k1.2"


@pytest.mark.parametrize(
    ("keys", "count", "first"),
    [
        ("{ uniform = 1000 }", 1_000, ("k1", 0.001)),
        ("{ explicit = { de = 0.76, at = 0.24 } }", 2, ("de", 0.76)),
        ('{ file = "shares.csv" }', 2, ("at", 0.75)),
    ],
)
def test_distributions_of_keys(keys: str, count: int, first: tuple[str, float]) -> None:
    text = TEXT.replace("{ zipf = 1.0, count = 1_000_000 }", keys)
    shares = parse(text, {"shares.csv": "value,share\nde,1\n\nat,3\n"}).data.keys.shares
    assert shares.count == count
    assert shares.named[0][0] == first[0]
    assert shares.largest == pytest.approx(first[1])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("partition_key = [", 'partition_keys = ["', "not valid TOML"),
        ('partition_key = ["/customerId"]', "partition_key = []", r"container.partition_key is \[\]"),
        ('["/customerId"], t', '["/a*b"], t', "partition key component"),
        ("throughput = 20000 }", "throughput = 20050 }", "container.throughput: The offer should have"),
        ("throughput = 20000 }", "throughput = 20000, autoscale = 1000 }", "container has throughput and autoscale"),
        ("throughput = 20000 }", "serverless = false }", "container.serverless is False"),
        ("throughput = 20000 }", "serverless = true }", r"changes\[0\]: a container without throughput"),
        ("throughput = 20000 }", "autoscale = 20000 }", r"changes\[0\].autoscale is missing"),
        ("throughput = 20000 }", "throughput = 20000, regoins = 2 }", "container.regoins is not known; known are"),
        ("P30D", "1 month", r"changes\[0\].at is '1 month'; expected a time"),
        ('size = "10GB"', 'size = "10 gigabytes"', "data.size is '10 gigabytes'; expected a size"),
        ("item_bytes = 1024", "item_bytes = 3_000_000", "data.item_bytes is 3000000; expected a whole number"),
        ("item_bytes = 1024, ", "", "data.item_bytes is missing"),
        ("item_bytes = 1024, ", "item_byte = 9, ", "missing; .* data.item_byte is not known: is it meant"),
        ("operations = [", "operatons = [", "operations is missing; .* operatons is not known: is it meant"),
        ("zipf = 1.0, count", "zipf = -1.0, count", r"data.keys.zipf is -1.0; expected a number from 0 to 5"),
        ("zipf = 1.0, count = 1_000_000", "", "data.keys needs one of zipf"),
        ("zipf = 1.0, count = 1_000_000", "explicit = { de = -1 }", "the share of 'de' is -1"),
        ("zipf = 1.0, count = 1_000_000", "explicit = { de = 0 }", "at least one key"),
        ("zipf = 1.0, count = 1_000_000", "uniform = 5, second_level = 3", "data.keys.second_level is not known"),
        ("zipf = 1.0, count = 1_000_000", 'file = "shares.csv"', "data.keys.file, line 2: expected a value"),
        ('kind = "read"', 'kind = "scan"', r"operations\[1\].kind is 'scan'; expected one of read, create"),
        ("rate = 5000", "rate = true", r"operations\[1\].rate is True; expected a number"),
        ("rate = 5000", "rate = 5000, rows = 3", r"operations\[1\].rows is not known; known are"),
        ('filter = ["/customerId"]', 'filter = ["customerId"]', r"operations\[2\].filter is \['customerId'\]"),
        ("0.3, 0.2]", "0.3]", "shape.weekly is .*; expected a list of 7 numbers"),
        ("factor = 5, ", "factor = 0.5, ", r"shape.spikes\[0\].factor is 0.5; expected a number from 1"),
        ("shape =", "shapes =", "shapes is not known; known are changes, container, data"),
        ("operations = [", "operation = [", "operations is missing"),
        ("changes =", 'retries = "always"\nchanges =', "retries is 'always'; expected one of sdk, none, unlimited"),
    ],
)
def test_wrong_fields_are_refused_with_their_place(old: str, new: str, expected: str) -> None:
    assert old in TEXT
    with pytest.raises(Failure, match=expected):
        parse(TEXT.replace(old, new), {"shares.csv": "value,share\nde,x\n"})


def test_hierarchical_keys() -> None:
    text = TEXT.replace('["/customerId"], t', '["/tenant", "/user"], t').replace(
        "count = 1_000_000", "count = 200, second_level = 500"
    )
    workload = parse(text.replace('filter = ["/customerId"]', 'filter = ["/tenant"]'))
    assert workload.is_hierarchical
    assert workload.data.keys.second_level == 500
    query = workload.operations[2]
    assert route_of(workload, query) == "a prefix"
    assert visited(workload, query, 4) == 1.0
    assert 1.0 < visited(workload, query, 20) < 3.0
    demands = WorkloadDemands(workload)
    total = sum(each.total_ru(20) for each in demands.at())
    charged = sum(each.rate * charge_ru(workload, each, 20) for each in workload.operations)
    assert total == pytest.approx(charged)


def test_routes_and_charges() -> None:
    text = TEXT.replace(
        "operations = [",
        """operations = [
        { kind = "query", rate = 1, rows = 1 },
        { kind = "query", rate = 1, filter = ["/customerId"], values = 5 },
        { kind = "upsert", rate = 1, existing = 0.25 },
        { kind = "patch", rate = 1, operations = 2 },
        { kind = "batch", rate = 1, items = 4 },
        { kind = "delete", rate = 1 },
        { kind = "replace", rate = 1, changed_values = 2 },""",
    )
    workload = parse(text)
    cross, listed, upsert, patch, batch, delete, replace = workload.operations[:7]
    assert [visited(workload, each, 10) for each in (cross, listed, upsert)] == pytest.approx([10, 4.095, 1], rel=0.001)
    assert charge_ru(workload, cross, 40) == pytest.approx(100.6)
    assert [created_items(each) for each in (upsert, batch, delete, replace)] == [0.75, 4.0, -1.0, 0.0]
    assert charge_ru(workload, patch, 1) == pytest.approx(10.4 + 0.8)
    assert charge_ru(workload, batch, 1) == pytest.approx(28.0)
    assert charge_ru(workload, replace, 1) == pytest.approx(10.8)


def test_strong_consistency_doubles_reads() -> None:
    workload = parse(TEXT.replace("throughput = 20000 }", 'throughput = 20000, consistency = "Strong" }'))
    assert charge_ru(workload, workload.operations[1], 1) == 2.0


def test_times_and_sizes() -> None:
    assert [duration_s(text) for text in ("P1D", "PT12H", "P1DT1H30M", "P2W", "90s", "5min", "1.5h", "30d", "1mo")] == [
        DAY_S,
        DAY_S / 2,
        DAY_S + 5_400,
        14 * DAY_S,
        90,
        300,
        5_400,
        30 * DAY_S,
        730 * 3600,
    ]
    for wrong in ("P", "PT", "P1Y", "12", "-1d", "1 month", " "):
        with pytest.raises(ValueError, match=wrong):
            duration_s(wrong)
    assert size_bytes("1.5 TB") == 1.5 * 1024 * GB
    assert size_bytes("0GB") == 0
    for wrong in ("5", "GB", "-1GB", "1 PB"):
        with pytest.raises(ValueError, match=wrong):
            size_bytes(wrong)

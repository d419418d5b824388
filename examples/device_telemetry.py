"""Device telemetry, the example of Microsoft's 2016 article on partitioned collections: readings partitioned by device,
every kind of request, and the migration of a collection that has no partition key.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from azure.cosmos import ContainerProxy, PartitionKey
from connection import armillary, fresh_database, items_by_partition, picture

DATABASE = "example-telemetry"
DEVICES = 12

# Marks one reading as the device's latest, and its others as not: one transaction in one logical partition.
SET_LATEST_STATE = """
function SetLatestStateAcrossReadings(readingId) {
    var collection = getContext().getCollection(), link = collection.getSelfLink(), changed = 0;
    var isAccepted = collection.queryDocuments(link, "SELECT * FROM r", {pageSize: -1}, function (error, readings) {
        if (error) throw error;
        if (!readings.some(function (each) { return each.id === readingId; })) throw new Error("no such reading");
        readings.forEach(function (reading) {
            reading.isLatest = reading.id === readingId;
            collection.replaceDocument(reading._self, reading, function (error) {
                if (error) throw error;
                getContext().getResponse().setBody(++changed);
            });
        });
    });
    if (!isAccepted) throw new Error("not accepted");
}
"""


def reading(device: int, number: int) -> dict[str, Any]:
    return {
        "id": f"XMS-{device:03}-FE{24 + number}C",
        "deviceId": f"XMS-{device:04}",
        "readingTime": f"2014-08-{1 + number:02}T12:{device:02}:00Z",
        "metricType": "Temperature",
        "unit": "Fahrenheit",
        "metricValue": 60.0 + 5 * device + number,
    }


def single_requests(container: ContainerProxy) -> None:
    """The server extracts the partition key of a new item from the item; reads and deletes must give it."""
    container.create_item(reading(1, 0) | {"metricValue": 105.0})
    read = container.read_item("XMS-001-FE24C", partition_key="XMS-0001")
    read["metricValue"] = 104.0
    container.replace_item("XMS-001-FE24C", read)
    replaced = container.read_item("XMS-001-FE24C", partition_key="XMS-0001")
    print("read, replaced and read again:", replaced["deviceId"], replaced["metricValue"])
    container.create_item(reading(1, 9))
    container.delete_item("XMS-001-FE33C", partition_key="XMS-0001")


def queries(container: ContainerProxy) -> None:
    # The filter fixes the partition key: only one partition is queried.
    warm = container.query_items(
        "SELECT VALUE r.id FROM r WHERE r.deviceId = 'XMS-0001' AND r.metricValue > 66", partition_key="XMS-0001"
    )
    print("readings of one device:", sorted(warm))
    # No partition key: all partitions are queried, each with its own index.
    hot = container.query_items(
        "SELECT VALUE COUNT(1) FROM r WHERE r.metricType = 'Temperature' AND r.metricValue > 100",
        enable_cross_partition_query=True,
    )
    print("above 100 degrees on all devices:", next(hot))
    # The ordered results of all partitions are merged into one order.
    hottest = container.query_items(
        "SELECT TOP 3 r.deviceId, r.metricValue FROM r ORDER BY r.metricValue DESC",
        enable_cross_partition_query=True,
        max_item_count=2,
    )
    print("hottest:", [f"{each['deviceId']} {each['metricValue']:g}" for each in hottest])


def procedure(container: ContainerProxy) -> None:
    container.scripts.create_stored_procedure({"id": "SetLatestStateAcrossReadings", "body": SET_LATEST_STATE})
    changed = container.scripts.execute_stored_procedure(
        "SetLatestStateAcrossReadings", partition_key="XMS-0001", params=["XMS-001-FE24C"]
    )
    latest = container.query_items("SELECT VALUE r.id FROM r WHERE r.isLatest", enable_cross_partition_query=True)
    print(f"{changed} readings in one transaction, the latest:", list(latest))


def migration(container: ContainerProxy) -> None:
    """From a collection without a key to a partitioned one: by export and import, and without downtime."""
    armillary("containers", "create", f"{DATABASE}/single", "--fixed")
    with tempfile.TemporaryDirectory() as directory:
        lines, exported = Path(directory) / "readings.jsonl", Path(directory) / "readings.json"
        lines.write_text("".join(json.dumps(reading(device, 5)) + "\n" for device in range(DEVICES)))
        state = ("--state", str(Path(directory) / "state"))
        print("import:", armillary("import", str(lines), f"{DATABASE}/single", *state))
        print("export:", armillary("export", f"{DATABASE}/single", str(exported), *state))
        # The article advises at least 100 concurrent requests, which is the default.
        print("import:", armillary("import", str(exported), f"{DATABASE}/{container.id}", "--parallel", "100", *state))
    print("import brought:", container.read_item("XMS-007-FE29C", partition_key="XMS-0007")["metricValue"])
    print(armillary("migrate", f"{DATABASE}/single", f"{DATABASE}/new", "--partition-key", "/deviceId"))


def main() -> None:
    database = fresh_database(DATABASE)
    container = database.create_container("coll", PartitionKey("/deviceId"), offer_throughput=20_000)
    single_requests(container)
    for device in range(DEVICES):
        for number in range(1, 5):
            container.create_item(reading(device, number))
    picture("readings by /deviceId at 20,000 RU/s:", items_by_partition(container))
    queries(container)
    procedure(container)
    migration(container)
    moved = database.get_container_client("single")
    print("the single-partition container now has the key", moved.read()["partitionKey"]["paths"][0])
    print("and answers by it:", moved.read_item("XMS-003-FE29C", partition_key="XMS-0003")["metricValue"])


if __name__ == "__main__":
    main()

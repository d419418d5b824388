"""Synthetic partition keys: two properties put together when neither alone is a good key.

A device writes for years, so its id alone would gather too much under one value; the date alone would send all of
today's writes to one partition. `deviceId` and year together keep a year of one device in one logical partition, where
it is read by one request to one partition.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from azure.cosmos import PartitionKey
from connection import armillary, fresh_database, items_by_partition, picture

DEVICES, YEARS, READINGS = 20, (2016, 2017, 2018), 4


def with_key(reading: dict[str, object]) -> dict[str, object]:
    """The item with its key: "abc-123" and 2018 make "abc-123-2018"."""
    return {**reading, "partitionKey": f"{reading['deviceId']}-{reading['date']}"}


def main() -> None:
    database = fresh_database("example-synthetic")
    container = database.create_container("readings", PartitionKey("/partitionKey"), offer_throughput=24_000)
    for device in range(DEVICES):
        for year in YEARS:
            for number in range(READINGS):
                reading = {
                    "id": f"{device}-{year}-{number}",
                    "deviceId": f"abc-{device}",
                    "date": year,
                    "metricValue": number,
                }
                container.create_item(with_key(reading))
    picture("readings by /partitionKey:", items_by_partition(container))

    one_year = container.query_items(
        "SELECT VALUE r.metricValue FROM r ORDER BY r.metricValue", partition_key="abc-7-2018"
    )
    print("abc-7 in 2018, from one partition:", list(one_year))

    # All years of a device: the keys are known, so only the partitions that hold them are queried.
    keys = [f"abc-7-{year}" for year in YEARS]
    all_years = container.query_items(
        "SELECT VALUE COUNT(1) FROM r WHERE ARRAY_CONTAINS(@keys, r.partitionKey)",
        parameters=[{"name": "@keys", "value": keys}],
        enable_cross_partition_query=True,
    )
    print("abc-7 in all years:", next(all_years), "readings")

    # Readings without a key get one during the import.
    with tempfile.TemporaryDirectory() as directory:
        lines = Path(directory) / "readings.jsonl"
        lines.write_text("".join(json.dumps({"deviceId": "xyz", "date": 2018, "n": n}) + "\n" for n in range(5)))
        key = ("--synthetic-key", "/partitionKey={deviceId}-{date}", "--id", "{deviceId}-{date}-{n}")
        armillary("import", str(lines), "example-synthetic/readings", *key, "--state", f"{directory}/state")
    imported = container.query_items("SELECT VALUE r.id FROM r", partition_key="xyz-2018")
    print("imported under xyz-2018:", sorted(imported))


if __name__ == "__main__":
    main()

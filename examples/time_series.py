"""Time series: a container per month with a fine key inside it, and throughput where the writes are.

With the date alone as key all writes of a day go to one partition. So the host is the key, time decides the container,
the current month has the throughput, and a past month is scaled down or dropped as a whole, which costs no deletes.
"""

from __future__ import annotations

from azure.cosmos import ContainerProxy, DatabaseProxy, PartitionKey
from connection import fresh_database, items_by_partition, picture

MONTHS = ("2018-05", "2018-06", "2018-07")
CURRENT_RU, PAST_RU = 12_000, 400
HOSTS, EVENTS = 30, 5


def open_month(database: DatabaseProxy, month: str) -> ContainerProxy:
    """Create the container for this month's events."""
    # Events expire after 90 days (TTL).
    return database.create_container(
        f"events-{month}", PartitionKey("/host"), default_ttl=90 * 86_400, offer_throughput=CURRENT_RU
    )


def close_month(container: ContainerProxy) -> None:
    """A past month gets no more writes and needs little throughput."""
    container.replace_throughput(PAST_RU)


def main() -> None:
    database = fresh_database("example-time-series")
    months: dict[str, ContainerProxy] = {}
    for month in MONTHS:
        if months:
            close_month(list(months.values())[-1])
        months[month] = open_month(database, month)
        for host in range(HOSTS):
            for number in range(EVENTS):
                event = {"id": f"{host}-{number}", "host": f"host-{host}", "time": f"{month}-{number + 1:02}T12:00:00Z"}
                months[month].create_item(event)
    for month, container in months.items():
        ru = container.get_throughput().offer_throughput
        picture(f"{month}, {ru} RU/s:", items_by_partition(container))

    # A time range of one host reads one partition of each month in the range.
    found = [
        event
        for month in MONTHS[1:]
        for event in months[month].query_items(
            "SELECT VALUE e.time FROM e WHERE e.time >= @from ORDER BY e.time",
            parameters=[{"name": "@from", "value": "2018-06-04"}],
            partition_key="host-7",
        )
    ]
    print("host-7 since June 4:", found)
    database.delete_container(f"events-{MONTHS[0]}")
    print("dropped:", MONTHS[0])


if __name__ == "__main__":
    main()

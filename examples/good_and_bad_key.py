"""The same orders in two containers: by customer, of whom there are many, and by country, where one outweighs the rest.

A partition key is good when it has many values that are asked for and written to evenly. With few values, or one that
most items share, the partitions fill unevenly, and the busiest one decides when requests are refused.
"""

from __future__ import annotations

import random

from azure.cosmos import PartitionKey
from connection import fresh_database, items_by_partition, picture

COUNTRIES = ["US"] * 90 + ["DE"] * 6 + ["FR"] * 4
ORDERS = 400


def main() -> None:
    database = fresh_database("example-keys")
    dice = random.Random(1)
    orders = [
        {"id": str(number), "customer": f"customer-{dice.randrange(200)}", "country": dice.choice(COUNTRIES)}
        for number in range(ORDERS)
    ]
    for path, verdict in (("/customer", "good"), ("/country", "bad")):
        # 24,000 RU/s of manual throughput make four physical partitions.
        container = database.create_container(verdict, PartitionKey(path), offer_throughput=24_000)
        for order in orders:
            container.create_item(order)
        counts = items_by_partition(container)
        picture(f"{path}, a {verdict} key:", counts)
        print(f"  the fullest partition holds {max(counts.values()) / ORDERS:.0%} of the items\n")


if __name__ == "__main__":
    main()

"""Many tenants: the small ones share a container with the tenant as key, a large one gets a container of its own.

Sharing costs least, and a tenant's items can still change in one transaction; but tenants share the throughput too. A
tenant that has outgrown that is moved: copied, and its logical partition in the shared container deleted.
"""

from __future__ import annotations

from azure.cosmos import ContainerProxy, PartitionKey
from connection import fresh_database, items_by_partition, picture

SMALL, LARGE = [f"tenant-{number}" for number in range(40)], "tenant-large"


def move(tenant: str, source: ContainerProxy, target: ContainerProxy) -> int:
    """Copy a tenant's items to a container of its own, where the user is the key, and delete them here."""
    moved = 0
    for item in source.query_items("SELECT * FROM c", partition_key=tenant):
        target.upsert_item({name: value for name, value in item.items() if not name.startswith("_")})
        moved += 1
    source.delete_all_items_by_partition_key(tenant)
    return moved


def main() -> None:
    database = fresh_database("example-tenants")
    shared = database.create_container("shared", PartitionKey("/tenant"), offer_throughput=12_000)
    for tenant in (*SMALL, LARGE):
        for number in range(100 if tenant == LARGE else 3):
            shared.create_item({"id": str(number), "tenant": tenant, "user": f"user-{number % 25}", "balance": 100})

    # Two items of one tenant in one transaction: both change, or neither does.
    shared.execute_item_batch(
        [
            ("patch", ("0", [{"op": "incr", "path": "/balance", "value": -30}])),
            ("patch", ("1", [{"op": "incr", "path": "/balance", "value": 30}])),
        ],
        partition_key="tenant-7",
    )
    balances = shared.query_items("SELECT VALUE c.balance FROM c", partition_key="tenant-7")
    print("tenant-7 after a transfer:", list(balances))

    picture("before the move, all tenants:", items_by_partition(shared))
    own = database.create_container("large", PartitionKey("/user"), offer_throughput=12_000)
    print("moved:", move(LARGE, shared, own), "items of", LARGE)
    picture("the shared container:", items_by_partition(shared))
    picture(f"{LARGE} on its own:", items_by_partition(own))


if __name__ == "__main__":
    main()

"""Employees by department: an item is identified by partition key and id together, so an id may occur in several
partitions. Key paths may lead into an object, and may contain spaces.
"""

from __future__ import annotations

from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosResourceExistsError
from connection import fresh_database

EMPLOYEES = (
    {"department": "Marketing", "id": "0001", "name": "Ben Smith"},
    {"department": "Marketing", "id": "0002", "name": "Ann Jones"},
    {"department": "Sales", "id": "0001", "name": "Walter Harp"},
)


def main() -> None:
    database = fresh_database("example-employees")
    employees = database.create_container("employees", PartitionKey("/department"))
    for employee in EMPLOYEES:
        employees.create_item(employee)
    for department in ("Marketing", "Sales"):
        print(f"0001 of {department}:", employees.read_item("0001", partition_key=department)["name"])
    try:
        employees.create_item({"department": "Sales", "id": "0001", "name": "somebody else"})
    except CosmosResourceExistsError:
        print("another 0001 of Sales: refused, it exists")

    marketing = employees.query_items("SELECT VALUE e.name FROM e ORDER BY e.id", partition_key="Marketing")
    print("Marketing, from one partition:", list(marketing))
    departments = employees.query_items("SELECT DISTINCT VALUE e.department FROM e", enable_cross_partition_query=True)
    print("departments, from all partitions:", sorted(departments))

    # Changing the department means a new item: the partition key of an item cannot change, and one transaction cannot
    # span two keys.
    moved = employees.read_item("0002", partition_key="Marketing") | {"department": "Sales"}
    employees.create_item(moved)
    employees.delete_item("0002", partition_key="Marketing")
    print("Sales now:", list(employees.query_items("SELECT VALUE e.name FROM e ORDER BY e.id", partition_key="Sales")))

    inside = database.create_container("inside", PartitionKey("/properties/name"))
    inside.create_item({"id": "1", "properties": {"name": "Ben"}})
    print("/properties/name:", inside.read_item("1", partition_key="Ben")["properties"])
    quoted = database.create_container("quoted", PartitionKey('/"department name"'))
    quoted.create_item({"id": "1", "department name": "Research and Development"})
    print('/"department name":', quoted.read_item("1", partition_key="Research and Development")["department name"])


if __name__ == "__main__":
    main()

"""What a container uses of what it may have, in the words of the service: the texts that answers to clients carry and
that post-triggers may ask for.
"""

from __future__ import annotations

from typing import NamedTuple

from armillary import limits
from armillary.account.catalog.catalog import Catalog
from armillary.account.container import Container
from armillary.model.resources import ResourceType


class Quotas(NamedTuple):
    usage: str
    quota: str


def quotas_of(catalog: Catalog, container: Container) -> Quotas:
    heads = [partition.head for partition in container.partitions.values()]
    size_kb = sum(head.size_bytes for head in heads) // limits.KB
    count = sum(head.item_count for head in heads)
    functions, procedures, triggers = [
        len(catalog.children(each, container.record.rid))
        for each in (ResourceType.FUNCTION, ResourceType.PROCEDURE, ResourceType.TRIGGER)
    ]
    quota_kb = len(heads) * limits.PARTITION_QUOTA_BYTES // limits.KB
    return Quotas(
        usage=f"functions={functions};storedProcedures={procedures};triggers={triggers};documentSize=0;"
        f"documentsSize={size_kb};documentsCount={count};collectionSize={size_kb};",
        quota=f"functions=50;storedProcedures=100;triggers=25;documentSize={limits.ITEM_BYTES_MAX // limits.KB};"
        f"documentsSize={quota_kb};documentsCount=-1;collectionSize={quota_kb};",
    )

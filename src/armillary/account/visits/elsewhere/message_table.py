"""The classes whose values are sent between the processes of a cluster, and the short names that stand for them there.
A name is never given to another class. What is not listed cannot be sent.
"""

from __future__ import annotations

from typing import Final

from armillary.model.messages.codec import Codec

_VISITS: Final = "armillary.account.visits"
_PARTITION: Final = "armillary.partition"

CLASSES: Final = {
    # What is asked of a place, and what it answers.
    "asked": f"{_VISITS}.elsewhere.questions:Asked",
    "answered": f"{_VISITS}.elsewhere.questions:Answered",
    "figures": f"{_VISITS}.elsewhere.questions:Figures",
    # Visits and their answers.
    "read-item": f"{_VISITS}.read_visits:ReadItem",
    "answer": f"{_VISITS}.read_visits:Answer",
    "find-item": f"{_VISITS}.read_visits:FindItem",
    "item-found": f"{_VISITS}.read_visits:ItemFound",
    "count-items": f"{_VISITS}.read_visits:CountItems",
    "item-count": f"{_VISITS}.read_visits:ItemCount",
    "write-item": f"{_VISITS}.write_visits:WriteItem",
    "write-batch": f"{_VISITS}.write_visits:WriteBatch",
    "batch-answer": f"{_VISITS}.write_visits:BatchAnswer",
    "refused": f"{_VISITS}.write_visits:Refused",
    "delete-by-key": f"{_VISITS}.write_visits:DeleteByKey",
    "write-many": f"{_VISITS}.write_visits:WriteMany",
    "write-bulk": f"{_VISITS}.write_visits:WriteBulk",
    "written": f"{_VISITS}.write_visits:Written",
    "count-refusal": f"{_VISITS}.elsewhere.questions:CountRefusal",
    "count-keys": f"{_VISITS}.uncounted_visits:CountKeys",
    "key-count": f"{_VISITS}.uncounted_visits:KeyCount",
    "find-records": f"{_VISITS}.uncounted_visits:FindRecords",
    "records-found": f"{_VISITS}.uncounted_visits:RecordsFound",
    "find-several": f"{_VISITS}.uncounted_visits:FindSeveral",
    "several-found": f"{_VISITS}.uncounted_visits:SeveralFound",
    "read-points": "armillary.account.graphs.graph_reads:ReadPoints",
    "points-read": "armillary.account.graphs.graph_reads:PointsRead",
    "point": "armillary.account.graphs.graph_reads:Point",
    "read-naming": "armillary.account.graphs.graph_reads:ReadNaming",
    "naming-read": "armillary.account.graphs.graph_reads:NamingRead",
    "naming": "armillary.account.graphs.graph_reads:Naming",
    "named-items": "armillary.account.graphs.graph_reads:NamedItems",
    "tail": "armillary.account.collections.tailing:Tail",
    "tailed": "armillary.account.collections.tailing:Tailed",
    "run-procedure": "armillary.account.items.procedures:RunProcedure",
    "procedure-answer": "armillary.account.items.procedures:ProcedureAnswer",
    "write-triggered": "armillary.account.items.triggers:WriteTriggered",
    "batch-triggered": "armillary.account.items.triggers:BatchTriggered",
    "triggered": "armillary.account.items.triggers:Triggered",
    "triggers": "armillary.account.items.triggers:Triggers",
    "member": "armillary.account.items.items:Member",
    "item-options": "armillary.account.items.items:ItemOptions",
    "script": "armillary.scripts.run:Script",
    "script-role": "armillary.scripts.run:Role",
    # What they consist of.
    "verb": f"{_PARTITION}.operations:Verb",
    "operation": f"{_PARTITION}.operations:Operation",
    "draft": f"{_PARTITION}.operations:Draft",
    "result": f"{_PARTITION}.operations:Result",
    "outcome": f"{_PARTITION}.operations:Outcome",
    "member-failed": f"{_PARTITION}.operations:MemberFailed",
    "record": f"{_PARTITION}.history.retryable_write_records:Record",
    "repeated": f"{_PARTITION}.history.retryable_write_records:Repeated",
    "change-statement": f"{_PARTITION}.document_changes:ChangeStatement",
    "returning": f"{_PARTITION}.document_changes:Returning",
    "changed": f"{_PARTITION}.document_changes:Changed",
    "decided": f"{_PARTITION}.document_changes:Decided",
    "ask": f"{_PARTITION}.budget:Ask",
    "patch": "armillary.model.patch:Patch",
    "patch-operation": "armillary.model.patch:Operation",
    "failure": "armillary.errors:Failure",
    "outlasted": "armillary.work:Outlasted",
    "kind": "armillary.errors:Kind",
    "reason": "armillary.errors:Reason",
}

MESSAGES: Final = Codec(CLASSES)

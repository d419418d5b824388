"""getLastRequestStatistics: what the last command on this connection has cost."""

from __future__ import annotations

from bson.int64 import Int64

from armillary.doors.mongo.call import Call, Reply


async def last_request(call: Call) -> Reply:
    last = call.client.statistics
    return {
        "_t": "GetRequestStatisticsResponse",
        "CommandName": last.command,
        "RequestCharge": float(last.charge_ru),
        "RequestDurationInMilliSeconds": Int64(last.duration_ms),
        "EstimatedDelayFromRateLimitingInMilliseconds": Int64(last.retry_after_ms),
        "RetriedDueToRateLimiting": False,
        "ActivityId": last.activity_id,
    }

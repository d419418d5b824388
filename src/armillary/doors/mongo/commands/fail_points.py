"""Fail points (configureFailPoint): commands that fail on request, for the test suites of drivers. Only where test
commands are enabled.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from armillary import audit, limits
from armillary.doors.mongo.client import Client, application_in
from armillary.doors.mongo.errors import RETRYABLE, out_of_time
from armillary.doors.mongo.fields import Fields
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

_OUT_OF_TIME: Final = "maxTimeAlwaysTimeOut"  # every command with maxTimeMS times out
_GET_MORE: Final = "failGetMoreAfterCursorCheckout"  # failCommand for getMore
_RETRYABLE_WRITE: Final = (
    "onPrimaryTransactionalWrite"  # a retryable write fails before it is done, or its answer is lost
)
_KNOWN: Final = frozenset(
    "failCommands errorCode closeConnection writeConcernError errorLabels blockConnection blockTimeMS appName "
    "failInternalCommands errorExtraInfo namespace".split()
)


class Loss(Protocol):
    """A fail point of single statements of retryable writes."""

    @property
    def is_before(self) -> bool:
        """The statement itself is lost, not only its answer."""

    def is_due(self) -> bool:
        """Whether the next statement is the one."""

    def failure(self) -> Failure: ...


class FailPoints:
    def __init__(self) -> None:
        self._rules: dict[str, _Rule] = {}
        self.are_elsewhere = False  # the first process of the server has some, and counts how often they are met

    @property
    def are_set(self) -> bool:
        return bool(self._rules) or self.are_elsewhere

    @property
    def is_out_of_time(self) -> bool:
        return _OUT_OF_TIME in self._rules

    def set(self, name: str, rule: _Rule | None) -> None:
        self._rules.pop(name, None)
        if rule is not None:
            if len(self._rules) >= limits.MONGO_FAIL_POINTS_MAX:
                raise refusal(2, "There are too many fail points")
            self._rules[name] = rule
        audit.record("fault.set" if rule is not None else "fault.removed", name=name[:64])

    @property
    def loss(self) -> Loss | None:
        """The fail point of retryable writes, if set."""
        return self._rules.get(_RETRYABLE_WRITE)

    async def meet(self, name: str, body: Document, client: Client) -> Document | None:
        """Raise the failure of a fail point for this command, or give the fields that it adds to the answer."""
        for rule in self._rules.values():
            if rule.is_for(name, body, client):
                return await rule.apply(body, client)
        return None


class _Rule:
    def __init__(self, times: int | None, skips: int, data: Document) -> None:
        self._times = times  # None: always
        self._skips = skips
        self.data = data

    @property
    def is_before(self) -> bool:
        return "failBeforeCommitExceptionCode" in self.data

    def failure(self) -> Failure:
        if self.data.get("closeConnection", True):
            return Failure(Kind.DROPPED, "The connection is closed by a fail point")
        code = int(self.data.get("failBeforeCommitExceptionCode", 91))
        return Failure(Kind.BAD_REQUEST, "Failing a write via a failpoint", details={"code": code})

    def is_for(self, name: str, body: Document, client: Client) -> bool:
        if "isOutOfTime" in self.data:
            return "maxTimeMS" in body
        wanted = self.data.get("failCommands")
        name = "isMaster" if name == "ismaster" else name
        if not isinstance(wanted, list) or name not in wanted:
            return False
        application = self.data.get("appName")
        if application is not None and application not in (
            client.app_name,
            application_in(body.get("client")),
        ):
            return False
        return self.is_due()

    def is_due(self) -> bool:
        if self._skips > 0:
            self._skips -= 1
            return False
        if self._times is None:
            return True
        self._times -= 1
        return self._times >= 0

    async def apply(self, body: Document, client: Client) -> Document | None:
        data = self.data
        if "isOutOfTime" in data:
            raise out_of_time()
        if data.get("blockConnection"):
            await client.pause(float(data.get("blockTimeMS", 0)) / 1000)
        if data.get("closeConnection"):
            raise Failure(Kind.DROPPED, "The connection is closed by a fail point")
        code = data.get("errorCode")
        if code is not None:
            details: dict[str, Any] = {"code": int(code), "fields": data.get("errorExtraInfo") or {}}
            details["is_before"] = not data.get("isInside")  # the command has not begun
            if "errorLabels" in data:
                details["labels"] = tuple(data["errorLabels"])
                details["has_own_labels"] = True
            raise Failure(Kind.BAD_REQUEST, "Failing command via 'failCommand' failpoint", details=details)
        error = data.get("writeConcernError")
        if error is None:
            return None
        shown: Document = dict(error)
        extra: Document = {"writeConcernError": shown}
        if "errorLabels" in data:
            extra["errorLabels"] = list(data["errorLabels"])
        elif "errorLabels" in shown:
            extra["errorLabels"] = shown.pop("errorLabels")
        elif shown.get("code") in RETRYABLE and "txnNumber" in body and "autocommit" not in body:
            extra["errorLabels"] = ["RetryableWriteError"]
        return extra


def configure(fail_points: FailPoints, fields: Fields) -> None:
    """configureFailPoint."""
    name = fields.text("configureFailPoint")
    mode = fields.body.get("mode")
    if mode == "off":
        fail_points.set(name, None)
        return
    if name not in ("failCommand", _GET_MORE, _OUT_OF_TIME, _RETRYABLE_WRITE):
        raise refusal(115, f"The fail point '{name[:64]}' is not offered; failCommand is")
    data = fields.document("data", {}) if name != _OUT_OF_TIME else {"isOutOfTime": True}
    unknown = [each for each in data if each not in _KNOWN and name == "failCommand"]
    if unknown:
        raise refusal(40415, f"BSON field 'failCommand.{unknown[0]}' is an unknown field.")
    if name == _GET_MORE:
        data = {"failCommands": ["getMore"], "isInside": True, **data}
    times: int | None = None
    skips = 0
    if isinstance(mode, dict) and isinstance(mode.get("times"), int):
        times = int(mode["times"])
    elif isinstance(mode, dict) and isinstance(mode.get("skip"), int):
        skips = int(mode["skip"])
    elif mode != "alwaysOn":
        raise refusal(9, "The mode of a fail point is 'off', 'alwaysOn', {times: n} or {skip: n}")
    fail_points.set(name, _Rule(times, skips, data))

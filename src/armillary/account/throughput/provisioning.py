"""Provisioned throughput as a resource: what may be asked for, how many partitions it makes, and the offer document.

Charging requests is `model/charges.py`, spending the budget `partition/budget.py`, and giving partitions their budgets
`budgets.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from armillary import limits
from armillary.account.catalog.container_state import Body
from armillary.errors import bad_request

_VALID = (
    f"The offer should have valid throughput values between {limits.THROUGHPUT_MIN_RU} and "
    f"{limits.THROUGHPUT_MAX_RU} inclusive in increments of {limits.THROUGHPUT_STEP_RU}."
)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Request units a second: a fixed number, or the top of an autoscale range."""

    ru: int
    is_autoscale: bool = False
    increment_percent: int | None = None  # of an autoscale range; comes back as given, also when 0
    has_minute_pool: bool = False  # historical: ten times as many units again for each minute

    @classmethod
    def manual(cls, ru: int, *, has_minute_pool: bool = False) -> Throughput:
        if ru < limits.THROUGHPUT_MIN_RU:
            raise bad_request(
                f"{_VALID} Requested throughput {ru} is less than required minimum throughput "
                f"{limits.THROUGHPUT_MIN_RU}."
            )
        if ru > limits.THROUGHPUT_MAX_RU or ru % limits.THROUGHPUT_STEP_RU:
            raise bad_request(f"{_VALID} Requested: {ru}.")
        return cls(ru, has_minute_pool=has_minute_pool)

    @classmethod
    def autoscale(cls, max_ru: int, increment_percent: int | None) -> Throughput:
        if max_ru < limits.AUTOSCALE_MIN_RU:
            raise bad_request(
                f"Requested throughput {max_ru} is less than required minimum throughput {limits.AUTOSCALE_MIN_RU}."
            )
        if max_ru > limits.THROUGHPUT_MAX_RU or max_ru % limits.AUTOSCALE_STEP_RU:
            raise bad_request(
                f"The autoscale maximum throughput must be a multiple of {limits.AUTOSCALE_STEP_RU} between "
                f"{limits.AUTOSCALE_MIN_RU} and {limits.THROUGHPUT_MAX_RU}. Requested: {max_ru}."
            )
        if increment_percent is not None and not 0 <= increment_percent <= 100:
            raise bad_request(f"incrementPercent must be between 0 and 100, not {increment_percent}.")
        return cls(max_ru, True, increment_percent)

    def check_range(self, least_ru: int, most_ru: int) -> None:
        """What the settings of the account allow, which may be less than the product does."""
        if least_ru <= self.ru <= most_ru:
            return
        step = limits.AUTOSCALE_STEP_RU if self.is_autoscale else limits.THROUGHPUT_STEP_RU
        valid = (
            f"The offer should have valid throughput values between {least_ru} and {most_ru} inclusive in increments "
            f"of {step}."
        )
        if self.ru < least_ru:
            raise bad_request(
                f"{valid} Requested throughput {self.ru} is less than required minimum throughput {least_ru}."
            )
        raise bad_request(f"{valid} Requested: {self.ru}.")

    def partition_count(self, partition_ru: int, initial_share: float = limits.INITIAL_PARTITION_SHARE) -> int:
        """How many partitions a new container gets: its throughput by what one partition carries, with the headroom
        that the service keeps for manual throughput."""
        carried_ru = partition_ru if self.is_autoscale else partition_ru * initial_share
        return max(1, -int(-self.ru // carried_ru))

    def check_minute_pool(self, partition_count: int) -> None:
        if self.has_minute_pool and self.ru > limits.MINUTE_POOL_PARTITION_RU_MAX * partition_count:
            raise bad_request(
                f"Request units per minute are for containers with at most {limits.MINUTE_POOL_PARTITION_RU_MAX} RU/s "
                f"per partition; {self.ru} RU/s on {partition_count} partitions are more."
            )

    @property
    def least_ru(self) -> int:
        """What is never gone below: an autoscale range ends at a tenth."""
        return self.ru // 10 if self.is_autoscale else self.ru


def parse_autopilot(settings: Any) -> Throughput:
    """Autoscale settings as JSON: an offer's `offerAutopilotSettings`, or those of a request that creates it."""
    if not isinstance(settings, dict):
        raise bad_request("The autoscale settings must be a JSON object with 'maxThroughput'.")
    max_ru = settings.get("maxThroughput")
    if not isinstance(max_ru, int) or isinstance(max_ru, bool):
        raise bad_request("'maxThroughput' of the autoscale settings must be an integer.")
    upgrade = settings.get("autoUpgradePolicy") or {}
    policy = (upgrade.get("throughputPolicy") or {}) if isinstance(upgrade, dict) else None
    if not isinstance(policy, dict):
        raise bad_request("'autoUpgradePolicy' of the autoscale settings must be an object with 'throughputPolicy'.")
    percent = policy.get("incrementPercent")
    if percent is not None and (not isinstance(percent, int) or isinstance(percent, bool)):
        raise bad_request("'incrementPercent' of the autoscale settings must be an integer.")
    return Throughput.autoscale(max_ru, percent)


def offer_body(throughput: Throughput, resource: str, resource_rid: str, highest_ru: int) -> Body:
    content: Body = {
        "offerThroughput": throughput.least_ru,
        "offerIsRUPerMinuteThroughputEnabled": throughput.has_minute_pool,
        "offerMinimumThroughputParameters": {
            "maxThroughputEverProvisioned": highest_ru,
            "maxConsumedStorageEverInKB": 0,
        },
    }
    if throughput.is_autoscale:
        settings: Body = {
            "tier": 0,
            "maximumTierThroughput": throughput.ru,
            "autoUpgrade": False,
            "maxThroughput": throughput.ru,
        }
        if throughput.increment_percent is not None:
            settings["autoUpgradePolicy"] = {"throughputPolicy": {"incrementPercent": throughput.increment_percent}}
        content["offerAutopilotSettings"] = settings
    return {
        "offerVersion": "V2",
        "offerType": "Invalid",
        "resource": resource,
        "offerResourceId": resource_rid,
        "content": content,
    }


def throughput_of(offer: Body) -> Throughput:
    """What a stored offer document says."""
    content = offer["content"]
    settings = content.get("offerAutopilotSettings")
    if settings is not None:
        return parse_autopilot(settings)
    has_minute_pool = content.get("offerIsRUPerMinuteThroughputEnabled", False)
    return Throughput(content["offerThroughput"], has_minute_pool=has_minute_pool)


def changed_throughput(present: Throughput, wanted: Any, *, to_autoscale: bool, to_manual: bool) -> Throughput:
    """What a replacing offer document asks for, or one of the two changes between manual and autoscale."""
    if to_autoscale and to_manual:
        raise bad_request("An offer cannot be migrated to autoscale and to manual throughput at once.")
    if to_autoscale:
        # The service chooses the maximum: at least what is provisioned now, in whole steps.
        steps = -(-max(present.ru, limits.AUTOSCALE_MIN_RU) // limits.AUTOSCALE_STEP_RU)
        return present if present.is_autoscale else Throughput.autoscale(steps * limits.AUTOSCALE_STEP_RU, None)
    if to_manual:
        return Throughput.manual(present.ru) if present.is_autoscale else present
    if not isinstance(wanted, dict) or not isinstance(content := wanted.get("content"), dict):
        raise bad_request("The offer must be a JSON object with 'content'.")
    has_minute_pool = content.get("offerIsRUPerMinuteThroughputEnabled", False)
    if not isinstance(has_minute_pool, bool):
        raise bad_request("'offerIsRUPerMinuteThroughputEnabled' must be true or false.")
    settings = content.get("offerAutopilotSettings")
    if settings is not None:
        if has_minute_pool:
            raise bad_request("Request units per minute go with manual throughput, not with autoscale.")
        if not present.is_autoscale:
            raise bad_request("This offer has manual throughput: migrate it to autoscale first.")
        return parse_autopilot(settings)
    if present.is_autoscale:
        raise bad_request("This offer has autoscale throughput: migrate it to manual throughput first.")
    ru = content.get("offerThroughput")
    if not isinstance(ru, int) or isinstance(ru, bool):
        raise bad_request("'offerThroughput' must be an integer.")
    return Throughput.manual(ru, has_minute_pool=has_minute_pool)


class Minimum(NamedTuple):
    ru: int
    reason: str


def minimum(
    throughput: Throughput, highest_ru: int, storage_bytes: int = 0, sharing_count: int = 0, least_ru: int = 0
) -> Minimum:
    """The least that an offer may be set to: what is stored, what was provisioned before and how many containers share
    it all leave a floor behind. `least_ru`: of all containers of its kind."""
    if throughput.is_autoscale:
        least, step, per_gb, of_highest = limits.AUTOSCALE_MIN_RU, limits.AUTOSCALE_STEP_RU, 10, 10
    else:
        least, step, per_gb, of_highest = limits.THROUGHPUT_MIN_RU, limits.THROUGHPUT_STEP_RU, 1, 100
    beyond = max(0, sharing_count - limits.SHARED_DATABASE_CONTAINERS_MAX)
    floors = [
        Minimum(max(least, least_ru), "that is the least there is"),
        Minimum(-(-highest_ru // of_highest), f"up to {highest_ru} RU/s were provisioned here before"),
        Minimum(-(-storage_bytes * per_gb // limits.GB), f"{storage_bytes / limits.GB:.1f} GB are stored here"),
        Minimum(least + step * beyond, f"{sharing_count} containers share it"),
    ]
    highest = max(floors, key=lambda floor: floor.ru)
    return Minimum(-(-highest.ru // step) * step, highest.reason)

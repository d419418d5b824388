"""Runs a shrunk workload on the small account up to a horizon, and looks at it some times on the way."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from armillary.insight.planning.distributions import KeyShares, KeyValue
from armillary.insight.planning.workload import Keys, Operation, Workload
from armillary.insight.scale_model.model_items import ItemForm, KeyDraws
from armillary.insight.scale_model.player import PlayedOperation, Player, Seen
from armillary.insight.scale_model.scaling import Scaling, added_items, throughput_of
from armillary.insight.scale_model.small_account import SmallAccount, StoredFigures

LOOKS_MAX: Final = 8
REQUESTS_DEFAULT: Final = 12_000  # at a look
_PLAYED_SECONDS: Final = (3, 60)  # at least, and at most
_SLICES_OF_TTL: Final = 20  # so that items of one slice do not all expire at once


@dataclass(frozen=True, slots=True)
class Look:
    at_s: float
    stored: StoredFigures
    initial: Counter[KeyValue]  # items that were there at the beginning, by the first level of their key
    written: Counter[KeyValue]  # those that were to be stored since, likewise
    full: int  # of them, refused with 403/1014
    seen: Seen


class ScaleModel:
    def __init__(self, workload: Workload, scaling: Scaling, seed: int) -> None:
        self._workload = workload
        self._scaling = scaling
        self._seed = seed
        self._owed = 0.0  # items that are not written yet

    async def run(self, for_s: float, looks: int = LOOKS_MAX, requests: int = REQUESTS_DEFAULT) -> list[Look]:
        """`requests`: about so many are played at each look."""
        workload, scaling = self._workload, self._scaling
        assert workload.provision is not None, "checked by Scaling"
        small = await SmallAccount.begin(
            scaling.bounds(workload.bounds),
            throughput_of(workload, workload.provision.ru // scaling.throughput),
            levels=len(workload.partition_key),
            ttl_s=round(workload.data.ttl_s),
            has_burst=workload.has_burst,
        )
        try:
            return await self._run(small, for_s, looks, requests)
        finally:
            await small.close()

    async def _run(self, small: SmallAccount, for_s: float, looks: int, requests: int) -> list[Look]:
        workload = self._workload
        fanned = [each for each in workload.operations if each.kind == "query" and not self._pinned_levels(each)]
        rows = max([1, *(round(each.query.rows) for each in fanned)])
        first_key = self._draws(workload.data.keys, "form").draw()
        forms = {
            item: await ItemForm.measured(small, first_key, item.size_bytes, item.terms, rows)
            for item in {workload.data.item, *(each.item for each in workload.operations)}
        }
        player = Player(small, self._seed, ttl_s=workload.data.ttl_s)
        initial = round(workload.data.size_bytes / workload.data.item.size_bytes / self._scaling.storage)
        form = forms[workload.data.item]
        await player.fill(initial, [(1.0, self._draws(workload.data.keys, "data"), form)])
        begun_with, player.written, player.full = player.written, Counter(), 0
        played = [
            self._played(each, self._draws(each.keys, f"operation {index}"), forms[each.item])
            for index, each in enumerate(workload.operations)
        ]
        found = []
        at_s = 0.0
        for number in range(1, looks + 1):
            await self._grow(small, player, played, at_s, at_s := for_s * number / looks)
            operations = self._at(played, at_s)
            # Before the requests are played: a partition that they fill is split after them, and the requests had the
            # budgets of the partitions before.
            stored = await small.stored()
            seen = await player.play(_seconds(operations, requests), operations)
            found.append(Look(at_s, stored, begun_with, player.written.copy(), player.full, seen))
        return found

    async def _grow(
        self, small: SmallAccount, player: Player, played: list[PlayedOperation], from_s: float, to_s: float
    ) -> None:
        """What is stored between two looks, with the changes of throughput in that time."""
        workload = self._workload
        stops = [each.at_s for each in workload.changes if from_s < each.at_s <= to_s]
        if workload.data.ttl_s:
            slice_s = min(to_s - from_s, workload.data.ttl_s / _SLICES_OF_TTL)
            # Before the last lifetime nothing is left at the end: it need not be written.
            from_s = max(from_s, to_s - 2 * workload.data.ttl_s)
            count = max(1, round((to_s - from_s) / slice_s))
            stops += [from_s + (to_s - from_s) * index / count for index in range(1, count)]
        for stop_s in sorted({*stops, to_s}):
            weights = [added_items(each, workload, from_s, stop_s) for each in workload.operations]
            self._owed += sum(weights) / self._scaling.storage
            count = max(0, int(self._owed))
            self._owed -= count
            writers = [(weight, each.keys, each.form) for weight, each in zip(weights, played, strict=True) if weight]
            await player.fill(count if writers else 0, writers)
            await small.pass_s(stop_s - from_s)
            for change in workload.changes:
                if change.at_s == stop_s:
                    await small.scale(throughput_of(workload, change.ru // self._scaling.throughput))
            from_s = stop_s

    def _at(self, played: list[PlayedOperation], at_s: float) -> list[PlayedOperation]:
        """The operations with their rates at a time, spikes included."""
        shape = self._workload.shape
        found = [each.times(shape.regular(at_s)) for each in played]
        for spike in shape.spikes_at(at_s):
            if spike.key is None:
                found = [each.times(spike.factor) for each in found]
            else:
                shares = KeyShares.of_weights({spike.key: 1.0})
                found += [
                    each.times(spike.factor - 1).at(self._draws(Keys(shares, each.keys.second_level, ""), "spike"))
                    for each in found
                ]
        return found

    def _played(self, operation: Operation, keys: KeyDraws, form: ItemForm) -> PlayedOperation:
        return PlayedOperation(
            operation.kind,
            operation.rate / self._scaling.throughput,
            keys,
            form,
            pinned_levels=self._pinned_levels(operation),
            rows=max(1, round(operation.query.rows)),
            creates=operation.batch_items,
            existing=operation.existing,
            changed_values=operation.changed_values,
        )

    def _pinned_levels(self, operation: Operation) -> int:
        """How many levels of the partition key a query's filter pins, from the first on."""
        count = 0
        for path in self._workload.partition_key:
            if path not in operation.filter:
                break
            count += 1
        return count

    def _draws(self, keys: Keys, name: str) -> KeyDraws:
        levels = len(self._workload.partition_key)
        return KeyDraws(keys.shares, random.Random(f"{name} {self._seed}"), levels - 1, keys.second_level)


def _seconds(operations: list[PlayedOperation], requests: int) -> int:
    """How long is played: fewer seconds of many requests tell as much as more of few."""
    low, high = _PLAYED_SECONDS
    rate = sum(each.rate for each in operations)
    return max(low, min(high, round(requests / rate))) if rate else low

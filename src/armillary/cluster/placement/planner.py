"""Which steps bring the logs of a cluster to where they should be: each has as many replicas as the rules want, spread
over regions, on nodes with room, with about the same load for each node; and is led by a node that may lead, in the
first region, with request units evened out.

Pure and deterministic: the next step follows from the state alone, and a plan is the next step of the state that the
steps before it lead to. Rules are tried in the order of their urgency. Those that even out loads take a step only if
loads differ by more than a step changes, and by a margin: so a plan ends, and the state that it leads to needs none.

A replica is removed only when as many others as the rules want are whole, on live nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from armillary import limits, work
from armillary.cluster.placement.draft import Draft, LogNode
from armillary.cluster.placement.figures import Figures
from armillary.cluster.placement.record import PlacementRecord
from armillary.cluster.placement.steps import Action, Cause, Step

_Rule = Callable[["_Planner"], Step | None]
_UNITS_LOG = 15  # of work, to look at one log


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...]
    unmet: tuple[str, ...]  # what the rules want and no step brings about, in words

    @property
    def copied_bytes(self) -> int:
        return sum(each.copied_bytes for each in self.steps)


def plan(
    figures: Figures,
    record: PlacementRecord,
    *,
    under_way: Collection[LogNode] = frozenset(),
    avoided: Collection[LogNode] = frozenset(),
    resting: Collection[int] = frozenset(),
    left_out: Collection[int] = frozenset(),
    may_copy: bool = True,
    steps_max: int = limits.PLACEMENT_STEPS_MAX,
) -> Plan:
    """`under_way`: copies that were begun, and are not waited for: no other step counts on them. `avoided`: replicas
    that nodes are not to get. `resting`: logs that are not moved to even out loads. `left_out`: logs that are not
    touched. `may_copy`: whether steps may begin copies."""
    planner = _Planner(Draft(figures, record, under_way, avoided), resting, left_out, may_copy=may_copy)
    steps: list[Step] = []
    while len(steps) < steps_max and (step := planner.next_step()) is not None:
        steps.append(step)
        planner.draft.apply(step)
    return Plan(tuple(steps), tuple(planner.unmet()))


class _Planner:
    def __init__(self, draft: Draft, resting: Collection[int], left_out: Collection[int], *, may_copy: bool) -> None:
        self.draft = draft
        self._resting = resting
        self._logs = [each for each in draft.logs if each not in left_out]
        self._last = [each for each in draft.holders if each == 0 and each not in left_out]
        self._may_copy = may_copy
        self._wanted = draft.record.rules.replicas

    def next_step(self) -> Step | None:
        rules: list[_Rule] = [_Planner._move_leaders, *[_Planner._complete] * self._may_copy, _Planner._thin_out]
        if self.draft.record.rules.is_balancing:
            rules += [_Planner._spread_regions, _Planner._make_room, _Planner._even_out] * self._may_copy
            rules.append(_Planner._even_out_leaders)
        return next((step for rule in rules if (step := rule(self)) is not None), None)

    def _decided(self) -> list[int]:
        """Logs whose number of replicas and whose leaders are looked after."""
        draft = self.draft
        if draft.record.rules.is_balancing:
            return draft.logs
        return [
            log for log in draft.logs if draft.pinned(log) or any(draft.is_emptied(node) for node in draft.holders[log])
        ]

    # Leaders that must not lead, or should not.

    def _move_leaders(self) -> Step | None:
        draft = self.draft
        # A new leader of log 0 opens the account anew: last.
        for log in (*self._logs, *self._last):
            leader = draft.leaders[log]
            able = draft.may_lead_next(log)
            if not draft.is_alive(leader) or not able:
                continue  # without a live leader, the nodes choose one
            chosen = draft.pinned(log)
            if chosen in able:
                if leader != chosen:
                    return _hand_over(log, chosen, Cause.OPERATOR, "an operator has chosen it")
            elif not draft.may_lead(leader):
                is_emptied = draft.is_emptied(leader)
                state = "is to be emptied" if is_emptied else "is drained"
                return _hand_over(log, able[0], Cause.OPERATOR, f"{leader} {state}")
            elif not chosen and draft.record.rules.is_balancing and draft.rank(able[0]) < draft.rank(leader):
                region = draft.nodes[able[0]].region
                reason = f"leaders are to be in the region {region}, and {leader} is in {draft.nodes[leader].region}"
                return _hand_over(log, able[0], Cause.REGIONS, reason)
        return None

    # The number of replicas.

    def _complete(self) -> Step | None:
        draft = self.draft
        for log in self._decided():
            for node, is_whole in draft.holders[log].items():
                place = log, node
                is_due = place not in draft.under_way and not draft.is_stuck(log, node)
                if not is_whole and is_due and draft.may_lead(node):
                    return self._carry(log, node, Cause.REPLICAS, "its replica there is not complete")
        for log in self._decided():
            chosen, kept = draft.pinned(log), draft.kept(log)
            if chosen and draft.is_target(chosen) and draft.may_get(log, chosen):
                return self._carry(log, chosen, Cause.OPERATOR, "an operator has chosen it to lead")
            if len(kept) < self._wanted and (targets := draft.open_targets(log)):
                best = min(targets, key=lambda each: draft.crowding([*kept, each.name]))
                leaving = [node for node in draft.holders[log] if draft.is_emptied(node)]
                gone = [node for node in draft.holders[log] if draft.is_gone(node)]
                has = f"log {log} has {len(kept)} of {self._wanted} replicas"
                if leaving:
                    return self._carry(log, best.name, Cause.OPERATOR, f"{leaving[0]} is to be emptied")
                return self._carry(log, best.name, Cause.REPLICAS, f"{gone[0]} is gone: {has}" if gone else has)
        return None

    def _thin_out(self) -> Step | None:
        draft = self.draft
        for log in self._decided():
            good, kept = draft.good(log), draft.kept(log)
            if len(good) < self._wanted or not draft.is_alive(draft.leaders[log]):
                continue
            for node in draft.holders[log]:
                if node in kept or node == draft.leaders[log]:
                    continue
                if draft.is_emptied(node):
                    return Step(Action.GIVE_UP, log, node, Cause.OPERATOR, f"{node} is to be emptied")
                reason = f"{node} is gone" if draft.is_gone(node) else f"it could not be copied to {node}"
                return Step(Action.GIVE_UP, log, node, Cause.REPLICAS, reason)
            if len(good) > self._wanted:
                node = draft.surplus(log)
                reason = f"log {log} has {len(good)} replicas, and {self._wanted} are wanted"
                if node != draft.leaders[log]:
                    return Step(Action.GIVE_UP, log, node, Cause.REPLICAS, reason)
                others = [each for each in draft.may_lead_next(log) if each != node]
                if others:
                    return _hand_over(log, others[0], Cause.REPLICAS, f"{node} is to give its replica up: {reason}")
        return None

    # Where replicas are.

    def _is_settled(self, log: int) -> bool:
        """Whether it has just the replicas that it is to have, so that one of them may move."""
        draft = self.draft
        return len(draft.good(log)) == self._wanted == len(draft.holders[log]) and draft.is_alive(draft.leaders[log])

    def _spread_regions(self) -> Step | None:
        draft = self.draft
        for log in self._logs:
            if not self._is_settled(log):
                continue
            present = draft.crowding(list(draft.holders[log]))
            first_of = {each.region: each.name for each in reversed(draft.open_targets(log))}
            for _, target in sorted(first_of.items()):
                source, crowding = self._moved(log, target)
                if source != target and crowding < present:
                    reason = f"the replicas of log {log} are to be spread over regions: {source} has one too many"
                    return self._carry(log, target, Cause.REGIONS, reason)
        return None

    def _make_room(self) -> Step | None:
        draft = self.draft
        for node in sorted(draft.nodes):
            if not draft.is_short(node):
                continue
            on_it = [log for log in self._logs if node in draft.holders[log] and self._is_settled(log)]
            for log in sorted(on_it, key=lambda each: (-draft.sizes[each], each)):
                present = draft.crowding(list(draft.holders[log]))
                for target in draft.open_targets(log):
                    source, crowding = self._moved(log, target.name)
                    if source == node and crowding <= present:
                        return self._carry(log, target.name, Cause.ROOM, f"the disk of {node} is nearly full")
        return None

    def _even_out(self) -> Step | None:
        draft = self.draft
        settled = [log for log in self._logs if log not in self._resting and self._is_settled(log)]
        margin = int(limits.PLACEMENT_UNEVEN * sum(draft.carried.values()) / max(1, len(draft.targets)))
        for target in sorted(draft.targets, key=lambda each: (draft.carried[each.name], each.name)):
            best: tuple[int, int, str] | None = None
            work.spend(_UNITS_LOG * len(settled))
            for log in settled:
                step_load, target_load = draft.loads[log].replica, draft.carried[target.name]
                heaviest = max(draft.carried[node] for node in draft.holders[log])
                if heaviest - target_load <= step_load + margin or (best and heaviest - target_load < best[0]):
                    continue
                if not draft.may_get(log, target.name):
                    continue
                present = draft.crowding(list(draft.holders[log]))
                source, crowding = self._moved(log, target.name)
                gap = draft.carried[source] - target_load - step_load
                if source != target.name and crowding <= present and gap > margin and (best is None or gap > best[0]):
                    best = gap, log, source
            if best is not None:
                reason = f"{best[2]} has more load than {target.name}"
                return self._carry(best[1], target.name, Cause.LOAD, reason)
        return None

    def _moved(self, log: int, target: str) -> tuple[str, int]:
        """Which node would give its replica up if another one got one, and how crowded regions would be then."""
        draft = self.draft
        with draft.with_replica(log, target):
            source = draft.surplus(log)
            return source, draft.crowding([each for each in draft.holders[log] if each != source])

    # Where leaders are.

    def _even_out_leaders(self) -> Step | None:
        draft = self.draft
        able = [each.name for each in draft.nodes.values() if draft.may_lead(each.name)]
        margin = int(limits.PLACEMENT_UNEVEN * sum(draft.led.values()) / max(1, len(able)))
        best: tuple[int, int, str] | None = None
        for log in self._logs:
            leader = draft.leaders[log]
            if log in self._resting or draft.pinned(log) or not draft.may_lead(leader):
                continue
            step_load = draft.loads[log].leader
            for node in draft.may_lead_next(log):
                gap = draft.led[leader] - draft.led[node] - step_load
                is_near = draft.lags.get((log, node), 0) <= limits.PLACEMENT_LAG_ROWS_MAX
                if is_near and draft.rank(node) == draft.rank(leader) and gap > margin and (not best or gap > best[0]):
                    best = gap, log, node
        if best is None:
            return None
        _, log, node = best
        units = next(each.units_per_s for each in draft.figures.logs if each.number == log)
        reason = f"{draft.leaders[log]} leads more than {node}; log {log} spends {units:,.0f} RU/s"
        return _hand_over(log, node, Cause.LOAD, reason)

    # What no step brings about.

    def unmet(self) -> list[str]:
        """In the state that the steps lead to."""
        draft = self.draft
        found = []
        for node in draft.record.emptied:
            left = [log for log in draft.logs if node in draft.holders[log]]
            if left:
                names = ", ".join(map(str, left))
                found.append(f"{node} cannot be emptied of {names}: no other node may have as many replicas.")
        for log in self._decided():
            kept = draft.kept(log)
            if len(kept) < self._wanted:
                found.append(
                    f"Log {log} has {len(kept)} of {self._wanted} replicas: no other live node with room is there."
                )
            chosen = draft.record.leaders.get(log, "")
            if chosen and draft.leaders[log] != chosen:
                found.append(f"Log {log} is to be led by {chosen}, which is gone, drained, full or has no replica yet.")
        return found

    def _carry(self, log: int, node: str, cause: Cause, reason: str) -> Step:
        return Step(Action.CARRY, log, node, cause, reason, self.draft.sizes[log])


def _hand_over(log: int, node: str, cause: Cause, reason: str) -> Step:
    return Step(Action.HAND_OVER, log, node, cause, reason)

"""Runs that differ in fields of the workload: `--vary container.throughput=20000,40000`. All combinations of the lists
are simulated, up to 64, and compared with the first.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final

from armillary.errors import bad_request

RUNS_MAX: Final = 64
# Short names of fields that are varied often. One kind of throughput replaces the others.
_SHORT: Final = {
    "throughput": "container.throughput",
    "autoscale": "container.autoscale",
    "serverless": "container.serverless",
    "zipf": "data.keys.zipf",
    "keys": "data.keys.count",
    "item_bytes": "data.item_bytes",
    "ttl_days": "data.ttl_days",
    "size": "data.size",
    "growth_per_month": "shape.growth_per_month",
}
_FIELDS: Final = ("changes", "container", "data", "limits", "operations", "retries", "shape")  # of a workload
_RATES: Final = "rates"  # a factor of all of them
SEED: Final = "seed"  # not of the workload, but of the place of its keys
_KINDS: Final = ("throughput", "autoscale", "serverless")
_COMPARED: Final = (
    ("totals", "partitions"),
    ("totals", "refusedShare"),
    ("totals", "fullShareOfWrites"),
    ("totals", "normalizedP99"),
    ("totals", "fullKeys"),
)


def parse_variations(texts: Sequence[str]) -> list[dict[str, Any]]:
    """All combinations of `NAME=A,B,C`, in order."""
    names, lists = [], []
    for text in texts:
        name, separator, values = text.partition("=")
        if not separator or not name or not values:
            raise bad_request(f"--vary is {text!r}; expected a name and values, as in container.throughput=400,1000.")
        if name in names:
            raise bad_request(f"--vary names {name} twice; give all its values at once.")
        names.append(name)
        lists.append([_value(each, text) for each in values.split(",")])
    count = 1
    for values_of_one in lists:
        count *= len(values_of_one)
    if count > RUNS_MAX:
        raise bad_request(f"--vary makes {count} runs; at most {RUNS_MAX} are computed.")
    return [dict(zip(names, values, strict=True)) for values in product(*lists)]


def _value(text: str, whole: str) -> Any:
    """A number, a truth, or else a text."""
    if not text:
        raise bad_request(f"--vary is {whole!r}; a value is empty.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, int | float | bool) else text


def varied(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A workload's content with other values. Whether these are right is checked when it is read."""
    changed = copy.deepcopy(dict(document))
    for name, value in values.items():
        if name == _RATES:
            _multiply(changed, value)
        elif name != SEED and name.partition(".")[0] not in _FIELDS and name not in _SHORT:
            short = ", ".join(sorted((*_SHORT, _RATES, SEED)))
            raise bad_request(
                f"--vary {name}: a workload has no such field; expected one such as operations.0.rate, or {short}."
            )
        elif name != SEED:
            _set(changed, _SHORT.get(name, name), value)
    return changed


def _multiply(document: dict[str, Any], factor: Any) -> None:
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise bad_request(f"--vary rates={factor}: expected a factor.")
    for operation in document.get("operations", []):
        if isinstance(operation, dict) and isinstance(operation.get("rate"), int | float):
            operation["rate"] *= factor


def _set(document: dict[str, Any], path: str, value: Any) -> None:
    *steps, last = path.split(".")
    place: Any = document
    for step in steps:
        if isinstance(place, list) and step.isdigit() and int(step) < len(place):
            place = place[int(step)]
        elif isinstance(place, dict):
            place = place.setdefault(step, {})
        else:
            place = None
    if not isinstance(place, dict):
        raise bad_request(f"--vary {path}: the workload has no such field. Write operations.0.rate for the first one.")
    if steps == ["container"] and last in _KINDS:
        for kind in _KINDS:
            place.pop(kind, None)
    place[last] = value


def compared(
    document: Mapping[str, Any],
    variations: Sequence[dict[str, Any]],
    run: Callable[[dict[str, Any], int | None], dict[str, Any]],
    *,
    keeps_timelines: bool = False,
) -> dict[str, Any]:
    """One run for each variation, and the names of figures that differ from the first run. `run` takes the content of a
    workload, and a seed where that is varied."""
    runs: list[dict[str, Any]] = []
    for values in variations:
        content = run(varied(document, values), _seed(values))
        if not keeps_timelines:
            content.pop("timeline")
        first = runs[0]["result"] if runs else content
        differing = [name for group, name in _COMPARED if content[group][name] != first[group][name]]
        if content["money"]["whole"]["total"] != first["money"]["whole"]["total"]:
            differing.append("money")
        runs.append({"values": values, "differing": differing, "result": content})
    return {"version": 1, "runs": runs}


def _seed(values: Mapping[str, Any]) -> int | None:
    seed = values.get(SEED)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise bad_request(f"--vary seed={seed}: expected a whole number from 0 on.")
    return seed

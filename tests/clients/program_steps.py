"""For the programs that are written in Python: running named steps, and the control API. Only Python's own library is
used here, since programs have environments of their own.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable
from typing import Any

ENDPOINT = os.environ.get("ARMILLARY_ENDPOINT", "")
KEY = os.environ.get("ARMILLARY_KEY", "")
DATABASE = os.environ.get("ARMILLARY_DATABASE", "")


class Differs(Exception):
    """A step works, but an application notices a difference from the cloud."""


class Missing(Exception):
    """The client has no such feature."""


StepFunction = Callable[[], None]


class Steps:
    """Functions in the order in which they were added; the name of a function is the step's, with dashes."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, StepFunction]] = []

    def __call__(self, function: StepFunction) -> StepFunction:
        self._steps.append((function.__name__.replace("_", "-"), function))
        return function

    def missing(self, why: str, *names: str) -> None:
        """Steps for which the client has no feature."""

        def step() -> None:
            raise Missing(why)

        self._steps += [(name, step) for name in names]

    def run(self) -> None:
        for name, function in self._steps:
            try:
                function()
            except Missing as missing:
                print(f"missing {name}: {missing}", flush=True)
            except Differs as difference:
                print(f"differs {name}: {difference}", flush=True)
            except Exception as error:
                said = " ".join(f"{type(error).__name__}: {error}".split())
                print(f"failed {name}: {said[:280]}", flush=True)
            else:
                print(f"ok {name}", flush=True)


def equal(found: Any, expected: Any) -> None:
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def control(method: str, path: str, content: Any = None) -> Any:
    request = urllib.request.Request(
        f"{os.environ['ARMILLARY_CONTROL']}/{path}",
        None if content is None else json.dumps(content).encode(),
        {"Authorization": f"Bearer {os.environ['ARMILLARY_CONTROL_KEY']}", "Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def split(container: str) -> None:
    """Splits the largest partition, and waits until the children have taken over."""
    place = f"databases/{DATABASE}/containers/{container}"
    control("POST", f"{place}/split", {})
    while control("GET", f"{place}/reshapes")["reshapes"]:
        pass


def throttle(container: str, operation: str, count: int) -> int:
    """The next requests of this kind get 429. The number of the rule."""
    rule = {"database": DATABASE, "container": container, "operations": [operation], "count": count}
    answer = control("POST", "faults", rule | {"status": 429, "retryAfterMs": 5})
    return int(answer["id"])


def hits(rule: int) -> int:
    return int(control("GET", f"faults/{rule}")["hits"])


def advance_clock(seconds: float) -> None:
    control("POST", "clock", {"advanceSeconds": seconds})


def item(number: int) -> dict[str, Any]:
    """The items that all programs use: 40 of them, over 8 partition keys and 3 groups."""
    return {
        "id": f"item-{number:02}",
        "pk": f"key-{number % 8}",
        "number": number,
        "group": "abc"[number % 3],
        "nested": {"tags": [f"tag-{number % 5}", "all"], "even": number % 2 == 0},
    }


ITEMS = [item(number) for number in range(40)]


def user_part(document: dict[str, Any]) -> dict[str, Any]:
    """Without what the server adds."""
    return {name: value for name, value in document.items() if not name.startswith("_")}

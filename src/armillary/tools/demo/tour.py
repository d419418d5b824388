"""`armillary demo`: a tour in eight steps on a server of its own. Orders are partitioned by country; one of them
becomes a hot key; requests are refused; more throughput splits partitions and does not help; another
partition key, by an online migration, does. Nothing is staged: each table is the server's answer.
"""

from __future__ import annotations

import sys
from textwrap import fill
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.commands import migrating, partitions, resharding
from armillary.tools.commands.arguments import container_path
from armillary.tools.commands.testing import clock
from armillary.tools.demo.demo_load import CUSTOMERS, Outcome, offer
from armillary.tools.demo.demo_server import PARTITION_RU, DemoServer
from armillary.tools.querying.command import show
from armillary.tools.querying.sql_pages import Asked, SqlAccount
from armillary.tools.remote import Line, Server
from armillary.tools.screen import Screen, count, counted, percent
from armillary.tools.transfer.endpoints.cosmos import ContainerLink

NAME: Final = "demo/orders"
_PLACE: Final = ContainerLink("demo", "orders")
_LOADED: Final = range(400)
_OFFERED: Final = 200
_RATE: Final = 100.0
_TOP: Final = 3
_STEPS: Final = 8
_PROSE_WIDTH: Final = 79


class Ended(Exception):
    """The tour was ended at a step."""


def run_demo(arguments: dict[str, Any]) -> int:
    is_unattended = "yes" in arguments
    if not is_unattended and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise bad_request("`armillary demo` waits for Enter at a terminal. Give --yes to run through all steps.")
    screen = Screen()
    try:
        with DemoServer() as server:
            Tour(server, screen, is_unattended=is_unattended).run()
    except (Ended, EOFError, KeyboardInterrupt):
        screen.say("\nThe tour has ended; its server is stopped.")
    return 0


class Tour:
    def __init__(self, server: DemoServer, screen: Screen, *, is_unattended: bool) -> None:
        self._server = server
        self._screen = screen
        self._is_unattended = is_unattended
        self._step = 0
        self._offered = _LOADED.stop  # orders so far

    def run(self) -> None:
        control = self._server.control()
        try:
            self._begin()
            self._load(control)
            self._hot_key()
            refused = self._refusals(control)
            self._split(control, refused)
            self._fix(control)
            after = self._after(control)
            self._end(refused, after)
        finally:
            control.close()

    def _heading(self, title: str, *lines: str) -> None:
        """The title of a step and its explanation; then Enter goes on."""
        self._step += 1
        self._screen.heading(f"\n{self._step} of {_STEPS}: {title}")
        self._say(*lines)
        if self._is_unattended:
            return
        if input("[Enter goes on, q ends] ").strip().lower() in ("q", "quit"):
            raise Ended

    def _say(self, *lines: str) -> None:
        """Prose, in lines that fit every terminal."""
        self._screen.say(fill(" ".join(lines), _PROSE_WIDTH))

    def _command(self, text: str) -> None:
        self._screen.say(f"\n$ armillary {text}")

    # The steps.

    def _begin(self) -> None:
        self._heading(
            "a server",
            f"A server runs in memory at {self._server.url} and refuses",
            "what is beyond the provisioned throughput, as the service does.",
            f"Partitions are small here: each may have {PARTITION_RU} RU/s, 10,000 in the service.",
        )

    def _load(self, control: Server) -> None:
        self._heading(
            "sample data",
            f"A web shop stores its orders by country: {2 * PARTITION_RU} RU/s on two partitions.",
            f"We write {len(_LOADED)} orders of {CUSTOMERS} customers, four of five of them from Germany,",
            "without budgets, so that it is done at once.",
        )
        control.post("databases", body={"name": _PLACE.database})
        self._command(f"containers create {NAME} --partition-key /country --throughput {2 * PARTITION_RU}")
        body = {"name": _PLACE.container, "partitionKey": ["/country"], "throughput": 2 * PARTITION_RU}
        control.post("databases", _PLACE.database, "containers", body=body)
        self._command(f"mode off {NAME}")
        clock.set_mode(control, self._screen, {"mode": "off", "containers": [NAME]})
        outcome = offer(self._server.url, self._server.key, _PLACE, "country", _LOADED, None, repeats=True)
        self._screen.say(f"{count(outcome.served)} orders were written.")
        self._command(f"mode enforce {NAME}")
        clock.set_mode(control, self._screen, {"mode": "enforce", "containers": [NAME]})
        self._command(f"partitions {NAME} --top {_TOP}")
        partitions.draw_partitions(control, self._screen, {"containers": [NAME], "top": _TOP})

    def _hot_key(self) -> None:
        self._heading(
            "a query and its cost",
            "A query that names the partition key asks one partition; one that does not asks all.",
            "The charge is what the answers say in x-ms-request-charge.",
        )
        for text in (
            "SELECT TOP 3 c.id, c.total FROM c WHERE c.country = 'at'",
            "SELECT TOP 3 c.id, c.total FROM c WHERE c.customerId = 'c-007'",
        ):
            self._command(f'query {NAME} "{text}"')
            account = SqlAccount(Line(self._server.url), self._server.key)
            try:
                show(account, Asked(_PLACE, text, []), self._screen, "table", is_explained=False)
            finally:
                account.close()

    def _refusals(self, control: Server) -> Outcome:
        self._heading(
            "a hot key",
            f"Now {_RATE:.0f} orders a second arrive. All of Germany is one partition key, so all of it",
            f"lies in one partition, which has {PARTITION_RU} RU/s. The other one has little to do.",
        )
        outcome = self._offer("country")
        self._say_outcome(outcome)
        self._command(f"partitions {NAME} --top {_TOP}")
        partitions.draw_partitions(control, self._screen, {"containers": [NAME], "top": _TOP})
        return outcome

    def _split(self, control: Server, before: Outcome) -> None:
        self._heading(
            "more throughput: a split",
            f"We double the throughput to {4 * PARTITION_RU} RU/s. Two partitions cannot carry that: each of them",
            "is split in two; clients may go on meanwhile. Then the same load again.",
        )
        self._command(f"scale {NAME} {4 * PARTITION_RU}")
        resharding.scale(control, self._screen, {"name": NAME, "throughput": 4 * PARTITION_RU})
        number = len(control.get(*container_path(NAME), "partitions", keys="none")["partitions"])
        self._screen.say(f"There are {number} partitions now.")
        outcome = self._offer("country")
        self._say_outcome(outcome)
        self._say(
            f"One partition key is never divided: Germany still has one partition with {PARTITION_RU} RU/s.",
            f"Twice the money does not help it: {percent(before.refused_share)} refused before,",
            f"{percent(outcome.refused_share)} now.",
        )

    def _fix(self, control: Server) -> None:
        self._heading(
            "the fix: another partition key",
            f"{CUSTOMERS} customers order about equally often. The container is migrated to /customerId",
            "while it is in use: items are copied, changes followed, both compared, names switched.",
        )
        self._command(f"migrate {NAME} demo/by-customer --partition-key /customerId")
        arguments = {"container": NAME, "target": "demo/by-customer", "partition_key": ["/customerId"]}
        migrating.migrate(control, self._screen, arguments)

    def _after(self, control: Server) -> Outcome:
        self._heading("the same load again", f"{_RATE:.0f} orders a second, by customer, at the same throughput.")
        outcome = self._offer("customerId")
        self._say_outcome(outcome)
        self._command(f"partitions {NAME} --top {_TOP}")
        partitions.draw_partitions(control, self._screen, {"containers": [NAME], "top": _TOP})
        return outcome

    def _end(self, before: Outcome, after: Outcome) -> None:
        self._step += 1
        self._screen.heading(f"\n{self._step} of {_STEPS}: what to keep")
        self._say(
            f"By country {percent(before.refused_share)} of the requests were refused, by customer",
            f"{percent(after.refused_share)}. `armillary advise` finds such a key from your data before anything is",
            "built on it, `armillary simulate` plays months of load, `armillary migrate` repairs what is there.",
        )
        if self._is_unattended:
            return
        self._screen.say(
            "\nThe server runs until you press Enter. In another terminal:\n"
            f"  armillary shell {NAME} --url {self._server.url}\n"
            f"  armillary top --url {self._server.url}\n"
            f"  armillary portal --url {self._server.url}"
        )
        input("[Enter ends] ")

    def _offer(self, property_: str) -> Outcome:
        numbers = range(self._offered, self._offered + _OFFERED)
        self._offered = numbers.stop
        return offer(self._server.url, self._server.key, _PLACE, property_, numbers, _RATE, repeats=False)

    def _say_outcome(self, outcome: Outcome) -> None:
        self._screen.say(
            f"{counted(outcome.served, 'order')} written, {count(outcome.refused)} refused with 429 "
            f"({percent(outcome.refused_share)}), in {outcome.seconds:.1f} s."
        )

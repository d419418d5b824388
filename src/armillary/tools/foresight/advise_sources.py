"""Where `armillary advise` reads rows: a file or an endpoint, as `armillary import` reads them, or a sample of a
running server's container.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from armillary.errors import Failure
from armillary.insight.advice.reading.data_profile import Profile
from armillary.net.certificate import CERTIFICATE_FILE
from armillary.tools.commands.arguments import container_path
from armillary.tools.foresight.live_sample import LiveSample
from armillary.tools.remote import Where, find_server
from armillary.tools.serving import event_loop
from armillary.tools.settings import Settings
from armillary.tools.transfer.command import endpoint_of
from armillary.tools.transfer.endpoints.cosmos import ContainerLink, CosmosEndpoint
from armillary.tools.transfer.endpoints.cosmos_source import CosmosSource
from armillary.tools.transfer.places import Reading, source_of
from armillary.tools.transfer.rows import Page, Source

_CHARGING: Final = ("cosmos:", "table:")
_VALUE: Final = re.compile(r"[-+]?[0-9][0-9.,eE:TZ+-]*")  # a number or a time
_CONTAINER: Final = re.compile(r"[^/\\:]+/[^/\\:]+")
_ENDINGS: Final = re.compile(r"\.(json|jsonl|ndjson|csv|parquet|bson)(\.gz)?$", re.IGNORECASE)


class PagedRows(Protocol):
    """Where pages of rows come from."""

    def pages(self) -> AsyncIterator[Page]: ...

    async def close(self) -> None: ...


class _AllRows:
    def __init__(self, source: Source) -> None:
        self._source = source

    def pages(self) -> AsyncIterator[Page]:
        return self._source.pages(None)

    async def close(self) -> None:
        await self._source.close()


@dataclass(frozen=True, slots=True)
class Rows:
    """A source, and what is known of it beside its rows."""

    source: PagedRows
    present_key: tuple[str, ...] = ()  # empty: none, or not known
    figures: dict[str, Any] | None = None  # exact ones of a container whose items are sampled
    statement: str = ""  # what the reader of the report has to know about how the rows were read


def rows_of(arguments: dict[str, Any], settings: Settings, rows: int, seed: int) -> Rows:
    place: str = arguments["source"]
    if is_container(place, arguments):
        return _container_rows(arguments, settings, rows, seed)
    how = Reading(
        format=arguments.get("format"),
        remote_key=arguments.get("remote_key"),
        is_text="csv_text" in arguments,
        certificate=_certificate(settings),
    )
    statement = "all items of the endpoint were read, which it charges" if place.startswith(_CHARGING) else ""
    return Rows(_AllRows(source_of(place, how)), statement=statement)


def _container_rows(arguments: dict[str, Any], settings: Settings, rows: int, seed: int) -> Rows:
    """A sample by the control API; where that cannot be used, all items through the SQL API."""
    place = arguments["source"]
    path = container_path(place)
    try:
        sample = LiveSample(find_server(settings, Where(arguments.get("url"))), place, rows, seed)
    except Failure as failure:
        reason = failure.message.rstrip(".")
    else:
        return Rows(sample, tuple(sample.figures["paths"]), sample.figures)
    link = ContainerLink(path[1], path[3])
    certificate = _certificate(settings)
    key = event_loop.run(_present_key(endpoint_of(settings, arguments.get("url"), certificate), link))
    source = CosmosSource(endpoint_of(settings, arguments.get("url"), certificate), link)
    return Rows(
        _AllRows(source),
        key,
        statement=f"all items were read through the SQL API, which charges for them, instead of a sample: {reason}",
    )


def _certificate(settings: Settings) -> Path | None:
    return None if settings.is_in_memory else settings.directory / CERTIFICATE_FILE


def is_container(place: str, arguments: dict[str, Any]) -> bool:
    """Whether a source is a container of a running server: it reads DATABASE/CONTAINER, and is no file."""
    if "format" in arguments or _CONTAINER.fullmatch(place) is None:
        return False
    return not Path(place).exists() and _ENDINGS.search(place) is None


def columns_named_by_values(arguments: dict[str, Any], profile: Profile) -> str:
    """A warning if the first line of a CSV file seems to hold values instead of names."""
    if arguments.get("format") != "csv" and not arguments["source"].lower().endswith((".csv", ".csv.gz")):
        return ""
    names = [each.steps[0] for each in profile.paths.values() if _VALUE.fullmatch(each.steps[0])]
    return f"columns are called {', '.join(names[:3])}: does the first line of the file hold values?" if names else ""


async def _present_key(endpoint: CosmosEndpoint, link: ContainerLink) -> tuple[str, ...]:
    try:
        definition = await endpoint.key_definition(link)
    finally:
        endpoint.close()
    return definition.paths if definition is not None and not definition.is_system else ()

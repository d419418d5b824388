"""`armillary import` and `armillary export`: connect source, transforms and sink, show the progress and
report the result. Exit codes: 0 all rows, 1 some were bad and the rest is done, 2 refused or broken off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson

from armillary.errors import Failure, Kind, bad_request
from armillary.net.certificate import CERTIFICATE_FILE
from armillary.tools.commands.arguments import container_path
from armillary.tools.control_file import Control, local_host, pinned_context, read_control
from armillary.tools.remote import Where, account_key, is_ours
from armillary.tools.screen import Screen, count, counted, units
from armillary.tools.serving import event_loop
from armillary.tools.settings import Settings
from armillary.tools.transfer.arguments import PARALLEL
from armillary.tools.transfer.checkpoint import Checkpoint
from armillary.tools.transfer.endpoints.cosmos import ContainerLink, CosmosEndpoint
from armillary.tools.transfer.endpoints.cosmos_sink import CosmosSink
from armillary.tools.transfer.endpoints.cosmos_source import CosmosSource, KeyPart, QuerySource
from armillary.tools.transfer.endpoints.http_client import TIMEOUT_S
from armillary.tools.transfer.pipeline import BadRows, Pipeline, Totals
from armillary.tools.transfer.places import ENDINGS, Reading, sink_of, source_of
from armillary.tools.transfer.rows import Document, Sink, Source
from armillary.tools.transfer.transforms import Transforms

SOME_BAD: Final = 1
_PARALLEL_MAX: Final = 1000
_PAGES_AT_ONCE: Final = 12
_TIMEOUT_S_MAX: Final = 86_400.0
_TRANSFORMS: Final = ("synthetic_key", "id", "rename", "type", "drop", "csv_text", "bson_exact", "format", "delimiter")
_CHOICES: Final = ("partition_key_value", "query")  # which rows are exported


def run_transfer(name: str, arguments: dict[str, Any], settings: Settings) -> int:
    try:
        return event_loop.run(_run(name, arguments, settings))
    except KeyboardInterrupt:
        print("Stopped. Run the same command again to continue.", file=sys.stderr)
        raise


async def _run(name: str, arguments: dict[str, Any], settings: Settings) -> int:
    parallel = arguments.get("parallel", PARALLEL)
    if not 1 <= parallel <= _PARALLEL_MAX:
        raise bad_request(f"--parallel is {parallel}; expected a number from 1 to {_PARALLEL_MAX}.")
    timeout_s = arguments.get("timeout", TIMEOUT_S)
    if not 0 < timeout_s <= _TIMEOUT_S_MAX:
        raise bad_request(f"--timeout is {timeout_s:g}; expected seconds, more than 0 and up to {_TIMEOUT_S_MAX:g}.")
    certificate = None if settings.is_in_memory else settings.directory / CERTIFICATE_FILE
    how = Reading(
        format=arguments.get("format"),
        remote_key=arguments["remote_key"],
        is_text="csv_text" in arguments,
        is_exact="bson_exact" in arguments,
        parallel=parallel,
        certificate=certificate,
        delimiter=_delimiter(arguments.get("delimiter")),
        timeout_s=timeout_s,
    )
    transforms = Transforms(
        renames=arguments.get("rename", ()),
        types=arguments.get("type", ()),
        synthetic_keys=arguments.get("synthetic_key", ()),
        item_id=arguments.get("id"),
        drops=arguments.get("drop", ()),
    )
    _refuse_swapped(name, arguments)
    _, database, _, container = container_path(arguments["container"])
    endpoint = endpoint_of(settings, arguments.get("url"), certificate, timeout_s)
    place = ContainerLink(database, container)
    source: Source
    sink: Sink
    if name == "import":
        source, sink = source_of(arguments["place"], how), CosmosSink(endpoint, place, parallel)
    else:
        source, sink = _exported(endpoint, place, arguments), sink_of(arguments["place"], how)
    if name == "import" and "partition_key" in arguments:
        await _ensure(endpoint, place, arguments["partition_key"], arguments.get("throughput"))
    elif "throughput" in arguments:
        raise bad_request("--throughput is for a new container: give its --partition-key too.")
    identity = _identity(name, arguments, source)
    state = Path(arguments.get("state") or f"armillary-{name}-{_short(identity)}.state")
    checkpoint = Checkpoint(state, identity, is_restart="restart" in arguments or not sink.is_resumable)
    bad = Path(arguments.get("bad") or state.with_suffix(".bad.jsonl"))
    return await _carry(
        name, arguments, Parts(source, sink, transforms, checkpoint, BadRows(bad, checkpoint.bad_bytes))
    )


def _refuse_swapped(name: str, arguments: dict[str, Any]) -> None:
    """The container stands last in an import and first in an export: the other order is a common mistake."""
    container, place = arguments["container"], arguments["place"]
    is_place = container == "-" or ":" in container or Path(container).suffix in ENDINGS
    if is_place and place.count("/") == 1 and not Path(place).exists() and ":" not in place:
        order = f"{container} {place}" if name == "import" else f"{place} {container}"
        raise bad_request(f"The container and the file are in the wrong order: write `armillary {name} {order}`.")


def _exported(endpoint: CosmosEndpoint, place: ContainerLink, arguments: dict[str, Any]) -> Source:
    key = [key_part(each) for each in arguments.get("partition_key_value", ())]
    if "query" in arguments:
        return QuerySource(endpoint, place, arguments["query"], key)
    return CosmosSource(endpoint, place, key)


def key_part(text: str) -> KeyPart:
    """A component of a partition key: JSON if it is a value that can be one, else text."""
    try:
        value = orjson.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | None) else text


def _delimiter(text: str | None) -> str | None:
    text = "\t" if text in ("tab", "\\t") else text
    if text is not None and (len(text) != 1 or text in '"\r\n'):
        raise bad_request(f"--delimiter is {text!r}; expected one character, or tab.")
    return text


async def _ensure(endpoint: CosmosEndpoint, place: ContainerLink, paths: list[str], throughput_ru: int | None) -> None:
    """The container, partitioned as was said."""
    if await endpoint.ensure_container(place, paths, throughput_ru):
        return
    present = await endpoint.key_definition(place)
    if present is None or list(present.paths) != paths:
        key = ", ".join(present.paths) if present is not None and not present.is_system else "nothing"
        raise bad_request(
            f"{place.database}/{place.container} exists already with the partition key {key}: leave "
            "--partition-key out, or name another container."
        )


class Parts:
    """Of a run."""

    def __init__(
        self, source: Source, sink: Sink, transforms: Transforms, checkpoint: Checkpoint, bad_rows: BadRows
    ) -> None:
        self.source, self.sink, self.transforms = source, sink, transforms
        self.checkpoint, self.bad_rows = checkpoint, bad_rows


async def _carry(name: str, arguments: dict[str, Any], parts: Parts) -> int:
    screen = Screen(is_json="json" in arguments or (arguments["place"] == "-" and name == "export"))
    checkpoint = parts.checkpoint
    begun_s, rows_before = time.monotonic(), checkpoint.rows
    said = f"{name} {arguments['container']}"
    with screen.progress(said) as update:

        def progress(totals: Totals, share: float | None) -> None:
            rate = (totals.rows - rows_before) / max(time.monotonic() - begun_s, 1e-3)
            bad = f", {count(totals.bad_rows)} bad" if totals.bad_rows else ""
            charge = f", {units(totals.charge_ru)} RU" if totals.charge_ru else ""
            update(share or 0.0, f"{said}: {count(totals.rows)} rows{bad}, {count(rate)}/s{charge}")

        pipeline = Pipeline(
            parts.source,
            parts.sink,
            parts.transforms,
            checkpoint,
            parts.bad_rows,
            pages_at_once=_PAGES_AT_ONCE,
            progress=progress,
        )
        totals = await _or_said(
            pipeline.run, checkpoint, can_make="partition_key" not in arguments and name == "import"
        )
    checkpoint.forget()
    taken_s = time.monotonic() - begun_s
    _report(screen, arguments, parts, totals, rows_before, taken_s)
    return SOME_BAD if totals.bad_rows else 0


async def _or_said(run: Callable[[], Any], checkpoint: Checkpoint, *, can_make: bool) -> Totals:
    """A run that breaks off says how it is taken up again."""
    try:
        totals: Totals = await run()
        return totals
    except Failure as failure:
        if failure.kind is Kind.NOT_FOUND:
            failure.message = failure.message.replace("colls '", "container '").replace("dbs '", "database '")
        if failure.kind is Kind.NOT_FOUND and can_make:
            failure.message += " Give --partition-key, such as --partition-key /customerId, to create it."
        if checkpoint.is_kept:
            failure.message += " What was done so far is kept: run the same command again to continue."
        raise


def _report(
    screen: Screen, arguments: dict[str, Any], parts: Parts, totals: Totals, rows_before: int, taken_s: float
) -> None:
    rate = (totals.rows - rows_before) / max(taken_s, 1e-3)
    if "json" in arguments:
        screen.content(
            {
                "rows": totals.rows,
                "badRows": totals.bad_rows,
                "badFile": str(parts.bad_rows.path) if totals.bad_rows else None,
                "rowsWithoutKey": totals.without_key,
                "chargeRu": round(totals.charge_ru, 2),
                "refused": totals.refused,
                "refusedRu": round(totals.refused_ru, 2),
                "seconds": round(taken_s, 3),
                "rowsPerSecond": round(rate, 1),
                "resumed": parts.checkpoint.is_resumed,
            }
        )
        return
    if screen.is_json:
        return  # standard output carries the items
    charge = f" for {units(totals.charge_ru)} RU" if totals.charge_ru else ""
    screen.say(f"{counted(totals.rows, 'row')} in {taken_s:.1f} s ({count(rate)}/s){charge}.")
    if totals.refused:
        screen.say(
            f"{counted(totals.refused, 'operation')} refused for lack of throughput (429) and repeated, for "
            f"{units(totals.refused_ru)} RU more. Provision more, or give fewer with --parallel."
        )
    if totals.without_key:
        verb = "has" if totals.without_key == 1 else "have"
        key = getattr(parts.sink, "key_paths", "")
        screen.say(
            f"{counted(totals.without_key, 'row')} {verb} no value at the partition key{key}: they share one logical "
            "partition. Make one with --synthetic-key, or choose another key."
        )
    if totals.bad_rows:
        screen.say(f"{counted(totals.bad_rows, 'bad row')}: {parts.bad_rows.path} has them with the reasons.")
        if parts.bad_rows.first_reason is not None:
            screen.say(f"The first is {parts.bad_rows.first_reason.rstrip('.')}.")


def endpoint_of(
    settings: Settings, url: str | None, certificate: Path | None, timeout_s: float = TIMEOUT_S
) -> CosmosEndpoint:
    """The server that these settings are those of."""
    found = Control(None, None) if settings.is_in_memory or url is not None else read_control(settings.directory)
    key = _key(settings, Where(url, timeout_s=timeout_s))
    if found.url is not None and found.url.startswith("https:") and found.certificate is not None:
        return CosmosEndpoint(found.url, key, context=pinned_context(found.certificate), timeout_s=timeout_s)
    host = local_host(settings.host)
    default = f"http://{f'[{host}]' if ':' in host else host}:{settings.sql_port}"
    return CosmosEndpoint(url or found.url or default, key, certificate, timeout_s=timeout_s)


def _key(settings: Settings, where: Where) -> str:
    """--url may name a server that has no control API: only a server on this machine is asked for its key, and one that
    does not tell it refuses the first request in words of its own."""
    if not is_ours(where.url, settings.host):
        return settings.key
    try:
        return account_key(settings, where)
    except Failure:
        return settings.key


def _identity(name: str, arguments: dict[str, Any], source: Source) -> Document:
    """What must be the same for a run to be resumed. No key is in it."""
    place: str = arguments["place"]
    place = place.partition("@")[2] if place.startswith("mongodb") and "@" in place else place
    how = {each: arguments[each] for each in (*_TRANSFORMS, *_CHOICES) if each in arguments}
    found: Document = {"command": name, "place": place, "container": arguments["container"], "source": source.identity}
    return orjson.loads(orjson.dumps(found | {"arguments": how}))  # type: ignore[no-any-return]


def _short(identity: Document) -> str:
    """The same for a file that has grown: that is then said, not begun anew unseen."""
    kept = {name: identity[name] for name in ("command", "place", "container")}
    return sha256(orjson.dumps(kept)).hexdigest()[:10]

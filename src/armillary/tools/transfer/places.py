"""The source or sink that an argument of `import` and `export` names: a file by its ending, or an endpoint by the
scheme of its address.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from armillary.errors import bad_request
from armillary.tools.transfer.endpoints.cosmos import ContainerLink, CosmosEndpoint
from armillary.tools.transfer.endpoints.cosmos_sink import CosmosSink
from armillary.tools.transfer.endpoints.cosmos_source import CosmosSource
from armillary.tools.transfer.endpoints.http_client import TIMEOUT_S
from armillary.tools.transfer.endpoints.table_endpoint import TableEndpoint, TableSink, TableSource
from armillary.tools.transfer.files.bson_files import BsonSink, BsonSource, bson_file
from armillary.tools.transfer.files.csv_files import CsvSink, CsvSource
from armillary.tools.transfer.files.json_files import JsonArraySource, JsonLinesSource, JsonSink
from armillary.tools.transfer.files.parquet_files import ParquetSink, ParquetSource
from armillary.tools.transfer.rows import Sink, Source

ENDINGS: Final = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".bson": "bson",
}
_COSMOS, _TABLE, _MONGO = "cosmos:", "table:", ("mongodb://", "mongodb+srv://")


class Reading(NamedTuple):
    """How places are read and written, as far as it is not said by their names."""

    format: str | None = None
    remote_key: str | None = None
    is_text: bool = False  # of CSV: every cell is text
    is_exact: bool = False  # of BSON: with all types
    parallel: int = 100
    certificate: Path | None = None
    delimiter: str | None = None  # of CSV; None: a comma, or as the first line of a source says
    timeout_s: float = TIMEOUT_S


def source_of(place: str, how: Reading) -> Source:
    if place.startswith(_COSMOS):
        endpoint, link = _cosmos(place, how)
        return CosmosSource(endpoint, link)
    if place.startswith(_TABLE):
        return TableSource(TableEndpoint(place.removeprefix(_TABLE), _key(place, how), how.certificate, how.timeout_s))
    if place.startswith(_MONGO):
        from armillary.tools.transfer.endpoints.mongo_endpoint import MongoSource  # loading the driver takes a while

        return MongoSource(place, is_exact=how.is_exact)
    path = None if place == "-" else Path(place)
    match _format(place, path, how):
        case "json":
            return JsonArraySource(path)
        case "csv":
            return CsvSource(path, is_text=how.is_text, delimiter=how.delimiter)
        case "parquet":
            return ParquetSource(_file(path, "Parquet"))
        case "bson":
            return BsonSource(bson_file(_file(path, "BSON")), is_exact=how.is_exact)
    return JsonLinesSource(path)


def sink_of(place: str, how: Reading) -> Sink:
    if place.startswith(_COSMOS):
        endpoint, link = _cosmos(place, how)
        return CosmosSink(endpoint, link, how.parallel)
    if place.startswith(_TABLE):
        endpoint_of_table = TableEndpoint(place.removeprefix(_TABLE), _key(place, how), how.certificate, how.timeout_s)
        return TableSink(endpoint_of_table, how.parallel)
    if place.startswith(_MONGO):
        from armillary.tools.transfer.endpoints.mongo_endpoint import MongoSink

        return MongoSink(place, how.parallel, is_exact=how.is_exact)
    path = None if place == "-" else Path(place)
    form = _format(place, path, how)
    if path is not None and path.suffix == ".gz" and form != "bson":
        raise bad_request("Only BSON is written compressed (.bson.gz).")
    match form:
        case "json":
            return JsonSink(path, is_array=True)
        case "csv":
            return CsvSink(path, how.delimiter or ",")
        case "parquet":
            return ParquetSink(_file(path, "Parquet"))
        case "bson":
            return BsonSink(_file(path, "BSON"), is_exact=how.is_exact)
    return JsonSink(path, is_array=False)


def _format(place: str, path: Path | None, how: Reading) -> str:
    form = _named_format(place, path, how)
    if how.delimiter is not None and form != "csv":
        raise bad_request("--delimiter is for CSV files: leave it out, or say --format csv.")
    return form


def _named_format(place: str, path: Path | None, how: Reading) -> str:
    if how.format is not None:
        return how.format
    if path is None:
        return "jsonl"
    if path.is_dir():
        return "bson"
    suffixes = [each.lower() for each in path.suffixes]
    ending = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else suffixes[-1] if suffixes else ""
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise bad_request(f"What {place} holds is not said by its ending ({known}): say it with --format.")
    return ENDINGS[ending]


def _file(path: Path | None, form: str) -> Path:
    if path is None:
        raise bad_request(f"{form} needs a file; standard input and output carry JSON and CSV.")
    return path


def _cosmos(place: str, how: Reading) -> tuple[CosmosEndpoint, ContainerLink]:
    parts = urlsplit(place.removeprefix(_COSMOS))
    segments = [unquote(each) for each in parts.path.split("/") if each]
    if len(segments) != 2:
        raise bad_request("A container elsewhere is named as cosmos:https://host:port/database/container.")
    endpoint = CosmosEndpoint(
        f"{parts.scheme}://{parts.netloc}", _key(place, how), how.certificate, timeout_s=how.timeout_s
    )
    return endpoint, ContainerLink(*segments)


def _key(place: str, how: Reading) -> str:
    if how.remote_key is None:
        raise bad_request(f"{place} needs a key: give it in ARMILLARY_REMOTE_KEY, or with --remote-key.")
    return how.remote_key

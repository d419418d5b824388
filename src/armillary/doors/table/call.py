"""One request of the Table protocol: its table, the level of metadata and the preference that it asks for, and its
answer. Also the settings of the door."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, Protocol

from armillary.account.account import Account
from armillary.account.catalog.tables import find_table
from armillary.account.container import Container
from armillary.doors.table.access.grants import Action, Grant
from armillary.doors.table.addresses import Address, check_table
from armillary.doors.table.entities.entities import Form, Rendered, quoted
from armillary.doors.table.errors import refused
from armillary.doors.table.service import storage_rules
from armillary.errors import Failure, Kind
from armillary.model.charges import Part, consistency_factor
from armillary.model.items import parse_json
from armillary.net.charged_requests import EXPLAIN, ChargedCall, HeaderList
from armillary.net.http import Request, Response

VERSION: Final = b"2019-02-02"
_VERSION_MIN: Final = b"2009-09-19"
_VERSION = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LEVELS: Final = {"nometadata": "no", "minimalmetadata": "minimal", "fullmetadata": "full"}
_FLAVORS: Final = ("cosmos", "storage")


@dataclass(frozen=True, slots=True)
class TableSettings:
    flavor: str = "cosmos"  # or storage
    throughput_ru: int = 400  # of tables that are made without saying how much

    def __post_init__(self) -> None:
        if self.flavor not in _FLAVORS:
            raise ValueError(f"there is no flavor {self.flavor!r} of tables")

    @property
    def is_storage(self) -> bool:
        return self.flavor == "storage"


class Services(Protocol):
    """What actions use of the server beside their own call: `TableDoor` offers it."""

    account: Account
    settings: TableSettings
    rendered: Rendered

    def accounts_of(self, headers: dict[bytes, bytes]) -> frozenset[str]: ...
    def shared_headers(self, headers: dict[bytes, bytes], request_id: str) -> HeaderList: ...
    def moment(self) -> str: ...
    async def answer_for(self, request: Request, address: Address, grant: Grant, request_id: str) -> Response: ...


class Call(ChargedCall):
    """A request with its address and its grant, and the answers that its actions make."""

    __slots__ = ("address", "consistency", "grant", "is_storage", "level", "request_id", "services")

    def __init__(
        self,
        services: Services,
        request: Request,
        address: Address,
        grant: Grant,
        request_id: str,
        consistency: str | None = None,
    ) -> None:
        """`consistency`: the level of reads, if it is not the account's."""
        super().__init__(
            services.account, request, explains=EXPLAIN in request.headers and _is_wanted(request.headers[EXPLAIN])
        )
        self.services = services
        self.address = address
        self.grant = grant
        self.request_id = request_id
        self.consistency = consistency or services.account.settings.consistency
        self.is_storage = services.settings.is_storage
        self.level = level_of(request.headers.get(b"accept"), address.query.get("$format"))

    def table(self, action: Action, name: str | None = None) -> Container:
        """The table of the request, after a check that the grant allows the action."""
        name = self.table_name(name)
        self.grant.check(action, name)
        return find_table(self.account, name, is_storage=self.is_storage)

    def table_name(self, given: str | None = None) -> str:
        """The name of the addressed table; refused if it is not a valid name."""
        name = self.address.table if given is None else given
        if self.is_storage:
            storage_rules.check_table(name)
        return check_table(name)

    @property
    def read_factor(self) -> int:
        """The factor of a read's charge at the level that it is answered at."""
        return consistency_factor(self.consistency)

    def json(self) -> Any:
        """The body of a request, which must be JSON."""
        content_type = self.headers.get(b"content-type", b"application/json").lower()
        if not content_type.startswith((b"application/json", b"text/json")):
            raise unsupported_media(content_type)
        try:
            return parse_json(self.body)
        except Failure as failure:
            raise refused("InvalidInput", f"One of the request inputs is not valid. {failure.message}") from None

    # What answers say.

    @property
    def root_url(self) -> str:
        """The account's address, as the client wrote it."""
        host = self.headers.get(b"host", b"localhost").decode("latin-1")
        account = f"/{self.address.account_segment}" if self.address.account_segment is not None else ""
        return f"{'https' if self.request.is_tls else 'http'}://{host}{account}"

    def form(self, table: str, wanted: frozenset[str] | None = None) -> Form:
        if self.level != "full":
            return Form(self.level, wanted)
        return Form("full", wanted, self.root_url, f"{self.account.settings.name}.{table}", quoted(table))

    def metadata(self, rest: str) -> dict[str, str]:
        return {} if self.level == "no" else {"odata.metadata": f"{self.root_url}/$metadata#{rest}"}

    def answer(
        self,
        status: int,
        charge_ru: float,
        body: bytes = b"",
        extra: Iterable[tuple[bytes, bytes]] = (),
        parts: Iterable[Part] | None = None,
    ) -> Response:
        """`parts` of the charge are given if the client asked for them (`explains`)."""
        headers = self.charged(charge_ru, extra, parts)
        if body:
            headers.append(
                (b"content-type", b"application/json;odata=%b;streaming=true;charset=utf-8" % _WORDS[self.level])
            )
        return Response(status, [*self.services.shared_headers(self.headers, self.request_id), *headers], body)

    def answer_xml(self, status: int, charge_ru: float, body: bytes) -> Response:
        response = self.answer(status, charge_ru, b"", [(b"content-type", b"application/xml")])
        response.body = body
        return response


_WORDS: Final = {level: word.encode() for word, level in _LEVELS.items()}


@lru_cache(maxsize=256)
def level_of(accept: bytes | None, wanted: str | None) -> str:
    """How much metadata is asked for. JSON is the only form."""
    text = wanted or (accept or b"").decode("latin-1")
    if not text or text == "application/json":
        return "minimal"
    for choice in text.lower().split(","):
        kind, *parameters = [part.strip() for part in choice.split(";")]
        if kind not in ("application/json", "json", "*/*", "application/*", "multipart/mixed", "application/xml"):
            continue
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name == "odata":
                if value not in _LEVELS:
                    raise unsupported_media(choice.encode("latin-1", "replace"))
                return _LEVELS[value]
        return "minimal"
    raise unsupported_media(text.encode("latin-1", "replace"))


def _is_wanted(given: bytes) -> bool:
    if given.lower() not in (b"true", b"false"):
        raise refused(
            "InvalidHeaderValue",
            f"The value for one of the HTTP headers is not in the correct format: {EXPLAIN.decode()} is true or false.",
        )
    return given.lower() == b"true"


def unsupported_media(given: bytes) -> Failure:
    return Failure(
        Kind.UNSUPPORTED_MEDIA,
        f"None of the provided media types are supported: {given[:100].decode('latin-1')}. Use application/json.",
    )


def check_version(headers: dict[bytes, bytes]) -> None:
    given = headers.get(b"x-ms-version")
    if given is not None and (not _VERSION.fullmatch(given) or given < _VERSION_MIN):
        raise refused(
            "InvalidHeaderValue",
            "The value for one of the HTTP headers is not in the correct format: x-ms-version is a date such as "
            f"{VERSION.decode()}, not before {_VERSION_MIN.decode()}.",
        )


class Preference(Enum):
    NONE = b""
    CONTENT = b"return-content"
    NO_CONTENT = b"return-no-content"

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Sent only if the request has `Prefer`: the Python client decides by it what it returns."""
        return [(b"preference-applied", self.value)] if self.value else []


def preference_of(headers: Mapping[bytes, bytes]) -> Preference:
    given = headers.get(b"prefer")
    if given is None:
        return Preference.NONE
    try:
        return Preference(given.strip().lower())
    except ValueError:
        raise refused(
            "InvalidHeaderValue",
            "The value for one of the HTTP headers is not in the correct format: Prefer is return-content or "
            "return-no-content.",
        ) from None

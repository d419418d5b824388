"""One request of the management API: the names in its address, its body, and its answer with the ids and types of Azure
Resource Manager.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.security.credentials import Credentials
from armillary.doors.management.addresses import ACCOUNTS, PROVIDER, Address
from armillary.doors.management.errors import CONTENT_TYPE
from armillary.doors.management.members import Members
from armillary.errors import Failure, Kind, bad_request
from armillary.model.items import parse_json
from armillary.model.json_members import shown
from armillary.model.resources import ResourceType
from armillary.net.charged_requests import HeaderList
from armillary.net.control_keys import ControlGrant
from armillary.net.http import Request, Response

Action = Callable[["Call"], Coroutine[Any, Any, Response]]

READ_ONLY: Final = frozenset("_rid _ts _etag _self _colls _users _docs _sprocs _triggers _udfs _conflicts".split())


@dataclass(frozen=True, slots=True)
class ManagementSettings:
    """Request units a second of what is created without a throughput, in a database that has none to share."""

    mongo_throughput_ru: int = limits.THROUGHPUT_MIN_RU
    table_throughput_ru: int = limits.THROUGHPUT_MIN_RU


class Services(Protocol):
    """What actions use of the server beside their own call: `ManagementDoor` offers it."""

    account: Account
    settings: ManagementSettings
    credentials: Credentials
    addresses: Mapping[str, str]  # of the doors, as clients reach them


class Envelope(NamedTuple):
    """The body of a PUT."""

    resource: Members
    options: Members


class Call:
    __slots__ = ("account", "address", "body", "grant", "headers", "names", "request", "services")

    def __init__(
        self,
        services: Services,
        request: Request,
        address: Address,
        names: Sequence[str],
        grant: ControlGrant,
        headers: HeaderList,
    ) -> None:
        """`names`: those in the path after the account, in their order. `headers`: of every answer."""
        self.services = services
        self.account = services.account
        self.request = request
        self.address = address
        self.names = names
        self.grant = grant
        self.headers = headers

    # What the address names.

    def database(self) -> Record:
        return find_database(self.account, self.names[0])

    def find_container(self) -> Container | None:
        """The container that the path names, in a database that has to exist."""
        database = self.database()
        record = self.account.catalog.find(ResourceType.CONTAINER, database.rid, self.names[1])
        if record is None or record.name != self.names[1]:  # the catalog finds rids too
            return None
        return self.account.container_by_rid(record.rid)

    def container(self, what: str) -> Container:
        """`what`: the API's word for it."""
        container = self.find_container()
        if container is None:
            raise Failure(
                Kind.NOT_FOUND,
                f"The {what} '{shown(self.names[1])}' does not exist in the database '{shown(self.names[0])}'.",
            )
        return container

    # What it sends.

    def members(self) -> Members:
        """The body, an object."""
        request = self.request
        if len(request.body) > limits.MANAGEMENT_BODY_BYTES_MAX:
            raise Failure(Kind.TOO_LARGE, f"The body is larger than {limits.MANAGEMENT_BODY_BYTES_MAX} bytes.")
        # Pages of another site can send forms and plain text without a CORS preflight, but not this media type.
        media_type = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != b"application/json":
            raise Failure(Kind.UNSUPPORTED_MEDIA, "The body must be JSON: send 'Content-Type: application/json'.")
        return Members(parse_json(request.body), "")

    def envelope(self, kind: str) -> Envelope:
        """The body of a PUT. What it repeats of the address, and the account's location, must be right."""
        body = self.members()
        body.expect("id", self.id_of(kind))
        body.expect("name", self.names[-1])
        body.expect("type", type_of(kind))
        self.check_location(body)
        if body.take("tags"):
            body.refuse("tags", "resources of this server have no tags.")
        properties = body.required_object("properties")
        envelope = Envelope(properties.required_object("resource"), properties.object("options"))
        body.end()
        properties.end()
        return envelope

    def check_location(self, body: Members) -> None:
        """The region, as in `West US` or `westus`."""
        given = body.text("location")
        region = self.account.settings.region
        if given is not None and given.lower().replace(" ", "") != region.lower().replace(" ", ""):
            raise bad_request(f"'location' is '{shown(given)}', and this server is in '{region}' (--region).")

    def named_resource(self, resource: Members) -> str:
        """The name of what a PUT creates or updates. Refuses members that no resource of this server has."""
        name = self.names[-1]
        given = resource.text("id")
        if given is not None and given != name:
            raise Failure(
                Kind.BAD_REQUEST, f"The resource has the id '{shown(given)}' and the address '{shown(name)}'."
            )
        mode = resource.text("createMode")
        if mode not in (None, "Default"):
            resource.refuse("createMode", "Default is the only mode. Snapshots are restored by `armillary snapshots`.")
        resource.refuse("restoreParameters", "snapshots are restored by `armillary snapshots`.")
        resource.refuse("analyticalStorageTtl", "there is no analytical store.")
        resource.skip(READ_ONLY)
        return name

    def refuse_body(self) -> None:
        """Of a request that says all in its address."""
        if self.request.body.strip() not in (b"", b"{}", b"null"):
            raise Failure(Kind.BAD_REQUEST, "This request takes no body.")

    # What is answered.

    def id_of(self, kind: str, *names: str) -> str:
        """The id of a resource. `kind`: the words of its address, joined by slashes. `names`: between these words;
        those of the address, if they are not given."""
        words = kind.split("/")
        every = [*(names or self.names)]
        parts = [f"/{word}/{every[index]}" if index < len(every) else f"/{word}" for index, word in enumerate(words)]
        return self.address.account_id(self.account.settings.name) + "".join(parts)

    def answer(self, content: Any, status: int = 200) -> Response:
        return Response(status, [*self.headers, CONTENT_TYPE], orjson.dumps(content))

    def answer_resource(self, kind: str, resource: dict[str, Any]) -> Response:
        """The resource that the address names."""
        return self.answer(entry(self.id_of(kind), kind, self.names[-1], resource))

    def answer_list(self, kind: str, resources: Sequence[tuple[str, dict[str, Any]]]) -> Response:
        """Names and resources below the names of the address."""
        found = [entry(self.id_of(kind, *self.names, name), kind, name, resource) for name, resource in resources]
        return self.answer({"value": found})

    def answer_deleted(self) -> Response:
        """204: the operation has ended, and there is nothing that clients have to poll."""
        return Response(204, self.headers)


def type_of(kind: str) -> str:
    return f"{PROVIDER}/{ACCOUNTS}/{kind}"


def entry(resource_id: str, kind: str, name: str, resource: dict[str, Any]) -> dict[str, Any]:
    return {"id": resource_id, "type": type_of(kind), "name": name, "properties": {"resource": resource}}


def find_database(account: Account, name: str) -> Record:
    found = account.catalog.find(ResourceType.DATABASE, b"", name)
    if found is None or found.name != name:  # the catalog finds rids too
        raise Failure(Kind.NOT_FOUND, f"The database '{shown(name)}' does not exist in this account.")
    return found

"""How clients reach the server: http and https on one port, by any name, with any of its keys."""

from __future__ import annotations

import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.cosmos import CosmosClient, PartitionKey
from sdk.clients import everything, refused
from support.process import ServerProcess


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_both_schemes_and_any_name(
    connect: Any, server: ServerProcess, name: str, scheme: str, host: str
) -> None:
    client = await connect(f"{scheme}://{host}:{server.port}")
    database = await client.create_database(name)
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=11_000)
    for number in range(5):
        await container.create_item({"id": str(number), "pk": number})
    assert len(await everything(container.query_items("SELECT * FROM c WHERE c.pk >= 0"))) == 5
    # The client went on with the address that it came with.
    manager = client.client_connection._global_endpoint_manager
    assert manager.get_write_endpoint().rstrip("/") == f"{scheme}://{host}:{server.port}"
    await client.delete_database(name)


async def test_one_sees_what_the_other_wrote(connect: Any, server: ServerProcess, database: Any, name: str) -> None:
    secure = await connect(f"https://localhost:{server.port}/")
    container = await database.create_container("c", PartitionKey("/pk"))
    await secure.get_database_client(name).get_container_client("c").create_item({"id": "1", "pk": "a"})
    assert (await container.read_item("1", "a"))["id"] == "1"


async def test_keys(connect: Any, start_server: Callable[..., ServerProcess]) -> None:
    keys = {role: b64encode(role.encode() * 8).decode() for role in ("primary", "second", "reading", "reading2")}
    server = start_server(
        *("--durability", "relaxed"),
        *("--key", keys["primary"], "--secondary-key", keys["second"]),
        *("--read-only-key", keys["reading"], "--secondary-read-only-key", keys["reading2"]),
    )
    with refused(401):
        await connect(server.url)
    first = await connect(server.url, keys["primary"])
    database = await first.create_database("db")
    container = await database.create_container("c", PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "a"})
    second = await connect(server.url, keys["second"])
    await second.get_database_client("db").get_container_client("c").create_item({"id": "2", "pk": "a"})
    for role in ("reading", "reading2"):
        reader = await connect(server.url, keys[role])
        mine = reader.get_database_client("db").get_container_client("c")
        assert (await mine.read_item("1", "a"))["id"] == "1"
        assert len(await everything(mine.query_items("SELECT * FROM c"))) == 2
        with refused(403):
            await mine.create_item({"id": "3", "pk": "a"})
        with refused(403):
            await mine.delete_item("1", "a")
        with refused(403):
            await mine.execute_item_batch([("delete", ("1",))], "a")
        with refused(403):
            await reader.delete_database("db")
        with refused(403):
            await reader.create_database("other")


async def test_connection_string(server: ServerProcess, name: str) -> None:
    text = f"AccountEndpoint={server.url}/;AccountKey={server.key};"
    with CosmosClient.from_connection_string(text) as client:
        account = client.get_database_account()
        assert account.ConsistencyPolicy["defaultConsistencyLevel"] == "Session"
        assert [each["name"] for each in account.WritableLocations]
        client.create_database(name)
        client.delete_database(name)


class EmulatorCredential:
    """The token that the emulator takes for Azure AD's: unsigned, with the account's key in the signature's place."""

    def __init__(self, key: str, lifetime_s: int = 3600) -> None:
        self._key = key
        self._lifetime_s = lifetime_s

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        now_s = int(time.time())
        ends_s = now_s + self._lifetime_s
        name = "CosmosEmulatorPrimaryMaster"
        header = {"typ": "JWT", "alg": "RS256", "x5t": name, "kid": name}
        claims = {
            "aud": "https://localhost.localhost",
            "iss": "https://sts.fake-issuer.net/7b1999a1-dfd7-440e-8204-00170979b984",
            "iat": now_s,
            "nbf": now_s,
            "exp": ends_s,
            "tid": "EmulatorFederation",
            "ver": "1.0",
            "scp": "user_impersonation",
        }
        parts = [json.dumps(header).encode(), json.dumps(claims).encode(), self._key.encode()]
        return AccessToken(".".join(urlsafe_b64encode(part).decode().strip("=") for part in parts), now_s + 3600)


class AsyncEmulatorCredential(EmulatorCredential):
    async def get_token(self, *arguments: str, **options: Any) -> AccessToken:  # type: ignore[override]
        return super().get_token(*arguments, **options)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> AsyncEmulatorCredential:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


async def test_azure_ad(connect: Any, server: ServerProcess, container: Any, name: str, flavour: str) -> None:
    kind = EmulatorCredential if flavour == "sync" else AsyncEmulatorCredential
    url = f"https://localhost:{server.port}"
    client = await connect(url, kind(server.key))
    mine = client.get_database_client(name).get_container_client("items")
    await mine.create_item({"id": "1", "pk": "a"})
    assert (await mine.read_item("1", "a"))["id"] == "1"
    assert len(await everything(mine.query_items("SELECT * FROM c"))) == 1
    with refused(403, 5300):
        await client.create_database("other")
    with refused(401):
        await connect(url, kind("bm90IHRoZSBrZXkgb2YgdGhpcyBzZXJ2ZXI="))
    with refused(401):
        await connect(url, kind(server.key, -1000))

"""Authentication with SCRAM or PLAIN: the user is the account, its passwords are the account's keys. Each connection
authenticates for itself.

Keys are derived once for each mechanism, in a thread, when a client first needs them. Comparisons with secrets take
constant time.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Sequence
from typing import Final

from bson.binary import Binary

from armillary.audit import SignInLog
from armillary.clock import Clock
from armillary.doors.mongo.client import Client
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.sessions import scram
from armillary.doors.mongo.settings import Grant
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

log = logging.getLogger(__name__)

_CONVERSATION: Final = 1
_NONCE_BYTES: Final = 24
_Secrets = tuple[list[scram.Secret], list[scram.Secret]]  # of users that do not exist, and of the one that does


class Authenticator:
    def __init__(
        self, account: str, owners: Sequence[str | None], readers: Sequence[str | None], secret: bytes, clock: Clock
    ) -> None:
        """`secret`: salts are derived from it."""
        self._account = account
        self._secret = secret
        self._clock = clock
        self._keys: list[tuple[str, Grant]] = []
        self.sign_in_log = SignInLog("mongo")
        self._derived: dict[str, asyncio.Future[_Secrets]] = {}
        self.use(owners, readers)

    def use(self, owners: Sequence[str | None], readers: Sequence[str | None]) -> None:
        """Replace the account's keys."""
        self._keys = [(key, Grant.WRITE) for key in owners if key] + [(key, Grant.READ) for key in readers if key]
        self._derived = {}

    def still_has(self, client: Client) -> bool:
        """Whether the key that a client authenticated with is still one of the account's."""
        return client.came_with in {key for key, _ in self._keys}

    def mechanisms_of(self, user: str) -> list[str]:
        """For hello's saslSupportedMechs, which asks with `database.user`. The answer is the same whether that user
        exists or not: a stranger learns no name from it."""
        return [scram.SHA_1.name, scram.SHA_256.name]

    async def start(self, client: Client, request: Fields) -> Document:
        mechanism = request.text("mechanism", "")
        payload = request.payload("payload")
        client.conversation = None
        if mechanism == "PLAIN":
            return self._plain(client, payload)
        known = scram.MECHANISMS.get(mechanism)
        if known is None:
            raise refusal(2, f"Unsupported mechanism '{mechanism[:64]}' on authentication database")
        options = request.optional_document("options") or {}
        conversation = scram.Conversation(
            known,
            payload,
            lambda user: scram.salt_of(known, self._secret, user),
            self._clock.random_bytes(_NONCE_BYTES),
            skips_empty=bool(options.get("skipEmptyExchange", False)),
        )
        client.conversation = conversation
        return _step(conversation.first_answer, is_done=False)

    async def go_on(self, client: Client, request: Fields) -> Document:
        conversation = client.conversation
        if conversation is None:
            raise refusal(17, "No SASL session state found")
        if request.body.get("conversationId") != _CONVERSATION:
            client.conversation = None
            raise refusal(17, "sasl: Mismatched conversation id")
        payload = request.payload("payload")
        if conversation.is_proven:
            client.conversation = None
            if payload:
                raise scram.failed("The last message of the client is not empty")
            self._admit(client, conversation.user, conversation.grant, conversation.password)
            return _step(b"", is_done=True)
        client.conversation = None
        answer = conversation.prove(payload, await self._secrets(conversation))
        if not conversation.skips_empty:
            client.conversation = conversation
            return _step(answer, is_done=False)
        self._admit(client, conversation.user, conversation.grant, conversation.password)
        return _step(answer, is_done=True)

    def _plain(self, client: Client, payload: bytes) -> Document:
        if not client.is_tls:
            raise refusal(2, "The mechanism PLAIN sends the key as it is: it is accepted over TLS only")
        user, password = scram.plain_credentials(payload)
        found = Grant.NOTHING
        for key, grant in self._keys:
            if hmac.compare_digest(key.encode(), password.encode()):
                found = grant
        if found is Grant.NOTHING or user != self._account:
            raise scram.failed()
        self._admit(client, user, found, password)
        return _step(b"", is_done=True)

    def _admit(self, client: Client, user: str, grant: Grant, key: str) -> None:
        client.came_with = key
        if not self.still_has(client):  # the key was replaced between two steps
            raise scram.failed()
        client.user = user
        client.grant = grant
        self.sign_in_log.granted(client.remote[0], "key" if grant is Grant.WRITE else "read-only key")

    async def _secrets(self, conversation: scram.Conversation) -> list[scram.Secret]:
        mechanism = conversation.mechanism
        if mechanism.name not in self._derived:
            await asyncio.sleep(0)  # a request is started without a task
            self._derived[mechanism.name] = asyncio.get_running_loop().run_in_executor(None, self._derive, mechanism)
        found = await asyncio.shield(self._derived[mechanism.name])
        return found[hmac.compare_digest(conversation.user.encode(), self._account.encode())]

    def _derive(self, mechanism: scram.Mechanism) -> _Secrets:
        salt = scram.salt_of(mechanism, self._secret, self._account)
        made = [scram.secret_of(mechanism, self._account, key, salt, grant) for key, grant in self._keys]
        # For unknown users: as many keys, which match no proof.
        return [each._replace(stored_key=bytes(len(each.stored_key)), grant=Grant.NOTHING) for each in made], made


def _step(payload: bytes, *, is_done: bool) -> Document:
    return {"conversationId": _CONVERSATION, "done": is_done, "payload": Binary(payload, 0)}


def unauthorized(name: str) -> Failure:
    return Failure(Kind.UNAUTHORIZED, f"Command {name} requires authentication", details={"code": 13})
